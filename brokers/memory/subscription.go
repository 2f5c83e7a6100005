package memory

import (
	"cmp"
	"context"
	"errors"
	"math"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// subscription is one consumer's intake. Its fields are guarded by the broker's
// lock.
type subscription struct {
	// id counts the subscriptions of a broker: the epoch in the history.
	id       uint64
	conn     *conn
	q        *queue
	observer brokers.Observer
	caps     brokers.Capabilities
	// wait: the spec waits for a missing queue.
	wait bool

	// wake tells a waiting Receive to look again; holds one signal.
	wake chan struct{}
	// want is the credit of the Receive that waits; no messages: none does.
	want      brokers.Credit
	receiving bool
	// fetch is when a delayed fetch is there, whichever Receive waits for it. It
	// belongs to Receive alone.
	fetch time.Time
	// buffer is what was taken for a later Receive. Its elements become the
	// caller's one after another and are never written again.
	buffer []brokers.Delivery
	// held is the consumer's side of Hold, left the broker's.
	held, left bool
	// broken is why it ended by itself; closed, that its owner closed it; gone,
	// that the broker has let go of it.
	broken *cause
	closed bool
	gone   bool

	// has is what was taken and is not settled, buffer included.
	has hands
	// alive is when the broker last heard that it is being held, and expiry looks
	// whether that was too long ago.
	alive  time.Time
	expiry *time.Timer
	// lots are the partitions that it has, turn where the next batch begins.
	lots []*lot
	turn int
	asks []*ask
	// origin is the queue, where acks are single; feeds are those of an endless one.
	origin *brokers.Origin
	feeds  []*feed

	wire []*parcel
	// What the next report tells, beside what is on the wire.
	unconfirmed, ownershipLost, willRepeat int
}

var _ brokers.Subscription = (*subscription)(nil)

// Receive implements brokers.Subscription.
func (s *subscription) Receive(ctx context.Context, limit brokers.Credit) ([]brokers.Delivery, error) {
	if err := s.fetched(ctx); err != nil {
		return nil, err
	}
	b := s.q.b
	b.mu.Lock()
	defer b.unlock()
	if err := s.fail(b.nextFailure(OpReceive), OpReceive); err != nil {
		return nil, err
	}
	s.checkReceive(limit)
	s.receiving = true
	defer func() { s.receiving, s.want = false, brokers.Credit{} }()
	for {
		if batch, err := s.next(limit); batch != nil || err != nil {
			return batch, err
		}
		s.want = limit
		b.unlock()
		var err error
		select {
		case <-s.wake:
		case <-ctx.Done():
			err = ctx.Err()
		}
		b.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
}

func (s *subscription) checkReceive(limit brokers.Credit) {
	if s.receiving {
		s.q.b.complainf("subscription %d: two Receives at once", s.id)
	}
	if limit.Messages < 1 || limit.Bytes < 1 {
		s.q.b.complainf("subscription %d: a credit of %d messages and %d bytes", s.id, limit.Messages, limit.Bytes)
	}
}

// next is what Receive can return without waiting.
func (s *subscription) next(limit brokers.Credit) ([]brokers.Delivery, error) {
	if err := s.ended(OpReceive); err != nil || s.held {
		return nil, err
	}
	s.want = limit
	if want := s.wants(); want.Messages > 0 && s.q.serves(s) {
		s.keep(s.q.store.take(s, want))
	}
	n := within(s.buffer, limit)
	if n == 0 {
		return nil, nil
	}
	batch := s.buffer[:n:n]
	if s.buffer = s.buffer[n:]; len(s.buffer) == 0 {
		s.buffer = nil
	}
	return batch, nil
}

// keep lays deliveries ready for Receive.
func (s *subscription) keep(ds []brokers.Delivery) {
	if len(s.buffer) == 0 {
		s.buffer = ds
		return
	}
	s.buffer = append(s.buffer, ds...)
}

// within counts the deliveries that fit a credit, a single larger one included.
func within(ds []brokers.Delivery, limit brokers.Credit) int {
	bytes := limit.Bytes
	for i := range ds {
		if bytes -= ds[i].Size; i == limit.Messages || (bytes < 0 && i > 0) {
			return i
		}
	}
	return len(ds)
}

// wants is how much the broker may hand to s at present: what fills the
// prefetch, else what a waiting Receive asked for.
func (s *subscription) wants() brokers.Credit {
	if s.gone || s.closed || s.held || !s.conn.link.up() {
		return brokers.Credit{}
	}
	if ahead := s.q.o.Prefetch - len(s.buffer); ahead > 0 {
		return brokers.Credit{Messages: ahead, Bytes: math.MaxInt64}
	}
	if len(s.buffer) > 0 {
		return brokers.Credit{}
	}
	return s.want
}

// signal wakes a waiting Receive.
func (s *subscription) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// ended is the error of a call on a subscription that has ended; nil while it
// has not.
func (s *subscription) ended(op Op) error {
	switch {
	case s.closed:
		return s.fenced(op)
	case s.broken != nil:
		err := s.broken.at(op, "queue "+s.q.name)
		err.Wait = err.Class == brokers.Missing && s.wait
		return err
	}
	return nil
}

func (s *subscription) fenced(op Op) *brokers.Error {
	return (&cause{class: brokers.Fenced, err: errClosed}).at(op, "queue "+s.q.name)
}

// fetched waits for a delayed fetch. It is nothing to the broker, so that a
// frozen one does not stop what lies here.
func (s *subscription) fetched(ctx context.Context) error {
	b := s.q.b
	b.mu.Lock()
	err := s.ended(OpReceive)
	if d := b.delays[OpReceive]; d > 0 && s.fetch.IsZero() {
		s.fetch = time.Now().Add(d)
	}
	b.unlock()
	if err != nil || s.fetch.IsZero() {
		return cmp.Or(err, ctx.Err())
	}
	if err := sleep(ctx, time.Until(s.fetch)); err != nil {
		return err
	}
	s.fetch = time.Time{}
	return nil
}

// reach waits as the faults of op want. A failure other than ctx's ends the
// subscription, but for Lag.
func (s *subscription) reach(ctx context.Context, op Op) error {
	b := s.q.b
	b.mu.Lock()
	err := s.ended(op)
	b.unlock()
	if err != nil {
		return err
	}
	_, err = s.conn.pass(ctx, op, "queue "+s.q.name)
	if e, ok := errors.AsType[*brokers.Error](err); ok && op == OpFlow {
		b.mu.Lock()
		defer b.unlock()
		s.breakOff(&cause{class: e.Class, err: e.Err, remedy: e.Remedy})
	}
	return err
}

// fail ends the subscription with an injected failure; nil is none.
func (s *subscription) fail(f *Failure, op Op) error {
	if f == nil {
		return nil
	}
	s.breakOff(&cause{class: f.Class, err: errInjected})
	return f.at(op, "queue "+s.q.name)
}

// breakOff ends the subscription from the broker's side: what is on the wire is
// lost, and what it has goes back.
func (s *subscription) breakOff(why *cause) {
	if s.gone {
		return
	}
	if s.broken == nil {
		s.broken = why
	}
	for _, p := range s.wire {
		if !p.told {
			s.unconfirmed += len(p.settle)
		}
		p.end()
	}
	s.wire = nil
	s.leave()
}

// leave lets the broker forget s.
func (s *subscription) leave() {
	s.gone, s.buffer = true, nil
	if s.expiry != nil {
		s.expiry.Stop()
	}
	for _, a := range s.asks {
		a.cancel(errClosed)
	}
	s.q.remove(s)
	if s.closed {
		delete(s.conn.subs, s)
	}
	s.signal()
}

// Flow implements brokers.Subscription.
func (s *subscription) Flow(ctx context.Context) error {
	if err := s.reach(ctx, OpFlow); err != nil {
		return err
	}
	b := s.q.b
	b.mu.Lock()
	defer b.unlock()
	if err := s.ended(OpFlow); err != nil || !s.held {
		return err
	}
	s.held = false
	if s.left && s.q.o.LeaveOnHold {
		s.q.last(s)
	}
	s.left = false
	s.q.dispatch()
	s.signal()
	return nil
}

// Lag implements brokers.Subscription.
func (s *subscription) Lag(ctx context.Context) (brokers.Lag, error) {
	if err := s.reach(ctx, OpLag); err != nil {
		return brokers.Lag{}, err
	}
	b := s.q.b
	b.mu.Lock()
	defer b.unlock()
	if err := s.ended(OpLag); err != nil {
		return brokers.Lag{}, err
	}
	waiting, _ := s.q.store.count()
	lag := brokers.Lag{Messages: waiting}
	for _, l := range s.lots {
		lag.Uncommitted += int64(len(l.part.log)) - l.part.committed
		lag.Gap = max(lag.Gap, l.taken())
	}
	return lag, nil
}

// Capabilities implements brokers.Subscription.
func (s *subscription) Capabilities() brokers.Capabilities { return s.caps }
