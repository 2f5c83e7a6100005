package memory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

var _ brokers.Positioner = (*conn)(nil)

// Seek implements brokers.Positioner, for queues with partitions.
func (c *conn) Seek(ctx context.Context, src any, to brokers.SeekTo, dry bool) ([]brokers.Moved, error) {
	s, ok := src.(source)
	if !ok {
		return nil, seekRefused("", errors.New("the source is not a memory source"), "use the source that this driver's Parse returned")
	}
	done, err := c.pass(ctx, OpSeek, "queue "+s.queue)
	if err != nil {
		return nil, err
	}
	b := c.link.b
	b.mu.Lock()
	defer b.unlock()
	q := b.queues[s.queue]
	if q == nil {
		return nil, missing(OpSeek, s.queue, false)
	}
	p, ok := q.store.(*positions)
	switch {
	case !ok:
		return nil, seekRefused(s.queue, errors.New("the queue keeps no positions"), "")
	case len(q.subs) > 0:
		return nil, seekRefused(s.queue, fmt.Errorf("%d subscriptions consume the queue", len(q.subs)), "stop them first")
	}
	targets, err := p.resolve(to)
	if err != nil {
		return nil, err
	}
	var moved []brokers.Moved
	for i, part := range p.parts {
		at, named := targets[i]
		if !named || at == part.committed {
			continue
		}
		moved = append(moved, brokers.Moved{Origin: partitionName(p.q.name, i), Before: part.committed, After: at})
		if !dry {
			part.committed = at
		}
	}
	return moved, done
}

// resolve finds the wanted position of each partition by its index. Here a
// partition without a position begins at 0.
func (p *positions) resolve(to brokers.SeekTo) (map[int]int64, error) {
	out := map[int]int64{}
	for i, part := range p.parts {
		switch {
		case to.Latest:
			out[i] = int64(len(part.log))
		case to.Earliest:
			out[i] = 0
		case !to.Time.IsZero():
			out[i] = part.since(to.Time)
		}
	}
	for name, at := range to.Positions {
		i, ok := p.index(name)
		if !ok {
			return nil, &brokers.Error{Class: brokers.Missing, Op: "seek in queue " + p.q.name, Err: fmt.Errorf("it has no partition %q", name)}
		}
		if end := int64(len(p.parts[i].log)); at > end {
			return nil, seekRefused(p.q.name, fmt.Errorf("%s ends at %d, before %d", name, end, at), "")
		}
		out[i] = max(at, 0)
	}
	return out, nil
}

func (p *positions) index(name string) (int, bool) {
	for i := range p.parts {
		if name == partitionName(p.q.name, i) || name == strconv.Itoa(i) {
			return i, true
		}
	}
	return 0, false
}

// since is the first offset published at t or later.
func (p *partition) since(t time.Time) int64 {
	for i, m := range p.log {
		if !m.published.Before(t) {
			return int64(i)
		}
	}
	return int64(len(p.log))
}

func seekRefused(queue string, err error, remedy string) error {
	return &brokers.Error{Class: brokers.Refused, Op: "seek in queue " + queue, Err: err, Remedy: remedy}
}
