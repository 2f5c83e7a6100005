package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// link is the network between all connections of one name and the broker, and
// what is wrong with it.
type link struct {
	b    *Broker
	name string
	// frozen is closed when the link thaws or goes down; nil: not frozen.
	frozen   chan struct{}
	frozenAt time.Time
	// down is why nothing gets through; nil: up.
	down  *cause
	conns []*conn
}

// up tells whether what is sent arrives.
func (l *link) up() bool { return l.frozen == nil && l.down == nil }

// pass waits as long as the faults of op want, and returns the error they make.
// done is a failure that is to come only after the broker did what was asked.
func (l *link) pass(ctx context.Context, op Op, subject string) (done, err error) {
	b := l.b
	b.mu.Lock()
	d := b.delays[op]
	b.unlock()
	if err := sleep(ctx, d); err != nil {
		return nil, err
	}
	for {
		b.mu.Lock()
		frozen := l.frozen
		if frozen == nil {
			done, err := l.outcome(op, subject)
			b.unlock()
			return done, err
		}
		b.unlock()
		select {
		case <-frozen:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// outcome is what a call finds once it got through.
func (l *link) outcome(op Op, subject string) (done, err error) {
	if l.down != nil {
		return nil, l.down.at(op, subject)
	}
	f := l.b.nextFailure(op)
	switch {
	case f == nil:
		return nil, nil
	case f.Done:
		return f.at(op, subject), nil
	}
	return nil, f.at(op, subject)
}

// sleep waits for d unless ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// conn is one connection, from Open to Close or Lost.
type conn struct {
	link *link
	lost chan struct{}
	// gone is why this conn is of no more use; nil while it is.
	gone *cause
	subs map[*subscription]struct{}
}

var _ brokers.Conn = (*conn)(nil)

// pass is the link's, for a conn that may be gone.
func (c *conn) pass(ctx context.Context, op Op, subject string) (done, err error) {
	if done, err = c.link.pass(ctx, op, subject); err != nil {
		return nil, err
	}
	c.link.b.mu.Lock()
	defer c.link.b.unlock()
	if c.gone != nil {
		return nil, c.gone.at(op, subject)
	}
	return done, nil
}

func (c *conn) Subscribe(ctx context.Context, src any, o brokers.Observer) (brokers.Subscription, error) {
	s, ok := src.(source)
	if !ok {
		return nil, &brokers.Error{
			Class: brokers.Refused, Op: "subscribe", Err: errors.New("the source is not a memory source"),
			Remedy: "use the source that this driver's Parse returned",
		}
	}
	if _, err := c.pass(ctx, OpSubscribe, "queue "+s.queue); err != nil {
		return nil, err
	}
	b := c.link.b
	b.mu.Lock()
	defer b.unlock()
	sub, err := b.subscribe(c, s, o)
	if err != nil {
		return nil, err
	}
	return sub, nil
}

func (c *conn) Publish(ctx context.Context, ps []brokers.Publication) error {
	done, err := c.pass(ctx, OpPublish, subjects(ps))
	if err != nil {
		return err
	}
	b := c.link.b
	b.mu.Lock()
	defer b.unlock()
	for i := range ps {
		if err := b.store(&ps[i]); err != nil {
			return err
		}
	}
	return done
}

// subjects names the queues of ps, each once.
func subjects(ps []brokers.Publication) string {
	var names []string
	for i := range ps {
		if name := fmt.Sprint(ps[i].Target); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// store puts one publication into its queue.
func (b *Broker) store(p *brokers.Publication) error {
	t, ok := p.Target.(target)
	if !ok {
		return &brokers.Error{
			Class: brokers.Refused, Op: "publish", Err: errors.New("the target is not a memory target"),
			Remedy: "use the target that this driver's Parse returned",
		}
	}
	q := b.queues[string(t)]
	switch {
	case q == nil && b.o.CreateTargets:
		q = b.create(string(t), b.o.Queue)
	case q == nil:
		return missing(OpPublish, string(t), false)
	}
	if q.refusal != nil {
		return q.refusal.at(OpPublish, "queue "+q.name)
	}
	q.publish([]Message{{ID: p.ID, Key: p.Key, Body: p.Body, Headers: p.Headers}})
	return nil
}

func (c *conn) Err() error {
	b := c.link.b
	b.mu.Lock()
	defer b.unlock()
	switch {
	case c.gone != nil:
		return c.gone.at(OpOpen, c.link.name)
	case c.link.down != nil:
		return c.link.down.at(OpOpen, c.link.name)
	}
	return nil
}

func (c *conn) Lost() <-chan struct{} { return c.lost }

func (c *conn) Close(context.Context) error {
	b := c.link.b
	b.mu.Lock()
	c.link.conns = slices.DeleteFunc(c.link.conns, func(o *conn) bool { return o == c })
	for _, s := range c.open() {
		if !s.closed {
			b.complainf("connection %s was closed before its subscription %d", c.link.name, s.id)
		}
	}
	c.end(&cause{class: brokers.Fenced, err: errClosed})
	b.unlock()
	return nil
}

// open lists the subscriptions that the broker still serves, the oldest first.
func (c *conn) open() []*subscription {
	return slices.SortedFunc(maps.Keys(c.subs), func(a, b *subscription) int { return cmp.Compare(a.id, b.id) })
}

// end makes c useless; its subscriptions end with it.
func (c *conn) end(why *cause) {
	if c.gone != nil {
		return
	}
	c.gone = why
	for _, s := range c.open() {
		s.breakOff(why)
	}
}
