package supervisor

import (
	"context"
	"sync"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// hubSize is how many events are kept for watchers that read slowly or come
// back. A watcher that falls further behind is closed.
const hubSize = 32768

// event is one thing that happened; what users see of it is made when it is
// sent, so that a kept event costs little.
type event struct {
	revision uint64
	c        *consumer
	rec      *pb.Consumer
	view     *view
	row      *pb.Transition
	receipt  *pb.Receipt
	deleted  bool
}

// message is the event as users see it, with the figures of this moment.
func (e event) message() *pb.WatchResponse {
	m := &pb.WatchResponse{Revision: e.revision, Transition: e.row}
	switch {
	case e.deleted:
		m.Event = &pb.WatchResponse_Deleted{Deleted: &pb.Deleted{
			Namespace: e.c.key.namespace, Name: e.c.key.name, Uid: e.rec.GetUid(),
		}}
	case e.receipt != nil:
		m.Event = &pb.WatchResponse_Receipt{Receipt: e.receipt}
	default:
		m.Event = &pb.WatchResponse_Consumer{Consumer: e.c.snapshotOf(e.rec, e.view)}
	}
	return m
}

// hub numbers what happens and keeps the last of it in a ring. Watchers read
// the ring at their own pace; nobody waits for them.
type hub struct {
	mu   sync.Mutex
	rev  uint64
	base uint64 // no event up to this revision is in the ring
	ring []event
	more chan struct{} // closed when something is added
}

// newHub begins above every revision of earlier processes: the store counts
// boots.
func newHub(boot uint64) *hub {
	return &hub{rev: boot << 32, base: boot << 32, more: make(chan struct{})}
}

func (h *hub) now() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rev
}

// publish adds an event; fill gets its revision under the hub's lock, so that
// what a reader finds after that revision is at least as new.
func (h *hub) publish(fill func(revision uint64) event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rev++
	e := fill(h.rev)
	e.revision = h.rev
	if len(h.ring) < hubSize {
		h.ring = append(h.ring, e)
	} else {
		h.ring[(h.rev-1)%hubSize] = e
		h.base++
	}
	close(h.more)
	h.more = make(chan struct{})
}

// after returns the events after a revision; ok is false when some of them are
// no longer kept.
func (h *hub) after(rev uint64, limit int) (events []event, more <-chan struct{}, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if rev < h.base || rev > h.rev {
		return nil, nil, false
	}
	for r := rev + 1; r <= h.rev && len(events) < limit; r++ {
		events = append(events, h.ring[(r-1)%hubSize])
	}
	return events, h.more, true
}

// follow hands on what comes after a revision until ctx ends, and tells of
// idleness at each tick.
func (h *hub) follow(ctx context.Context, rev uint64, send func(event) error, idle func(rev uint64) error,
	tick <-chan time.Time,
) error {
	for {
		events, more, ok := h.after(rev, 256)
		if !ok {
			return errorf(pb.ErrorReason_ERROR_REASON_SLOW_WATCHER,
				"the watcher fell more than %d events behind and was closed: watch again from the beginning", hubSize)
		}
		for _, e := range events {
			if err := send(e); err != nil {
				return err
			}
			rev = e.revision
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-more:
		case <-tick:
			if err := idle(rev); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
