package memory

import (
	"context"
	"slices"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// held is a message in the hands of a subscription. It is the Ref of the
// delivery, so that a settlement finds what it is about and who has it now.
type held struct {
	msg *message
	sub *subscription
	lot *lot // nil without partitions
	at  time.Time
	// sent: its settlement or give-back is on the wire or has arrived.
	sent       bool
	prev, next *held
}

// hands is a list of what a subscription has, in the order taken.
type hands struct {
	first, last *held
	n           int
}

func (l *hands) add(h *held) {
	h.prev, h.next = l.last, nil
	if l.last != nil {
		l.last.next = h
	} else {
		l.first = h
	}
	l.last = h
	l.n++
	h.msg.holder = h
}

func (l *hands) remove(h *held) {
	if h.prev != nil {
		h.prev.next = h.next
	} else {
		l.first = h.next
	}
	if h.next != nil {
		h.next.prev = h.prev
	} else {
		l.last = h.prev
	}
	h.prev, h.next = nil, nil
	l.n--
	h.msg.holder = nil
}

// mine is the message behind a settlement; nil when the broker has taken it away.
func (s *subscription) mine(d *brokers.Delivery) *held {
	h, ok := d.Ref.(*held)
	if !ok || h.sub != s || h.msg.holder != h {
		return nil
	}
	return h
}

// parcel is what a subscription sends to the broker in one piece.
type parcel struct {
	due    time.Time
	settle []brokers.Settlement
	back   []*brokers.Delivery
	// hold and close say which call sent it.
	hold, close bool
	// told: a report has counted it as unconfirmed.
	told bool
	// seen: the broker has answered. over is closed then, or when it is lost.
	seen bool
	over chan struct{}
}

func (p *parcel) end() {
	if p.over != nil {
		close(p.over)
	}
}

// Settle implements brokers.Subscription. It never blocks.
func (s *subscription) Settle(_ context.Context, st []brokers.Settlement) error {
	b := s.q.b
	b.mu.Lock()
	defer b.unlock()
	if s.ended(OpSettle) != nil {
		return s.fenced(OpSettle)
	}
	f, d := b.nextFailure(OpSettle), b.delays[OpSettle]
	if f != nil && !f.Done {
		return s.fail(f, OpSettle)
	}
	for i := range st {
		s.mark(st[i].Delivery, "settled")
	}
	switch {
	case f != nil:
		s.arriveUnheard(len(s.wire))
		s.q.store.settle(s, st)
	case d > 0 || len(s.wire) > 0 || !s.conn.link.up():
		s.send(&parcel{settle: slices.Clone(st)}, d)
	default:
		s.q.store.settle(s, st)
	}
	return s.fail(f, OpSettle)
}

// mark notes that a delivery leaves the caller's hands, and tells whether it had
// been there.
func (s *subscription) mark(d *brokers.Delivery, how string) bool {
	if _, ok := d.Ref.(*slab); ok {
		return true // an endless queue only counts
	}
	h, ok := d.Ref.(*held)
	switch {
	case !ok || h.sub != s:
		s.q.b.complainf("subscription %d: %s is %s, but is not a delivery of it", s.id, d.ID(), how)
		return false
	case h.sent:
		s.q.b.complainf("subscription %d: %s is %s, but was settled or given back before", s.id, d.ID(), how)
		return false
	}
	h.sent = true
	return true
}

// Hold implements brokers.Subscription.
func (s *subscription) Hold(ctx context.Context, unstarted []*brokers.Delivery) (brokers.Report, error) {
	b := s.q.b
	b.mu.Lock()
	err := s.ended(OpHold)
	if err == nil {
		err = s.fail(b.nextFailure(OpHold), OpHold)
	}
	if err != nil {
		defer b.unlock()
		return s.report(), err
	}
	s.held = true
	p := s.giveBack(unstarted)
	p.hold = true
	returned := len(p.back)
	s.send(p, b.delays[OpHold])
	b.unlock()
	return s.await(ctx, p, returned)
}

// Close implements brokers.Subscription.
func (s *subscription) Close(ctx context.Context, unsettled []*brokers.Delivery) (brokers.Report, error) {
	b := s.q.b
	b.mu.Lock()
	if s.closed {
		b.unlock()
		return brokers.Report{}, nil
	}
	if err := s.fail(b.nextFailure(OpClose), OpClose); err != nil {
		defer b.unlock()
		s.closed = true
		delete(s.conn.subs, s)
		return s.report(), err
	}
	p := s.giveBack(unsettled)
	p.close = true
	returned := len(p.back)
	s.closed = true
	for _, a := range s.asks {
		a.cancel(errClosed)
	}
	if s.gone {
		defer b.unlock()
		delete(s.conn.subs, s)
		rep := s.report()
		rep.Returned, rep.Released = returned, s.broken.class != brokers.Unreachable
		return rep, nil
	}
	s.signal()
	s.send(p, b.delays[OpClose])
	b.unlock()
	rep, err := s.await(ctx, p, returned)
	s.awaitAsks(ctx)
	return rep, err
}

// giveBack collects what goes back: ds and what the driver itself holds.
func (s *subscription) giveBack(ds []*brokers.Delivery) *parcel {
	p := &parcel{over: make(chan struct{}), back: make([]*brokers.Delivery, 0, len(ds)+len(s.buffer))}
	for _, d := range ds {
		if s.mark(d, "given back") {
			p.back = append(p.back, d)
		}
	}
	for i := range s.buffer {
		s.mark(&s.buffer[i], "given back")
		p.back = append(p.back, &s.buffer[i])
	}
	s.buffer = nil
	return p
}

// send puts p on the wire for d.
func (s *subscription) send(p *parcel, d time.Duration) {
	p.due = time.Now().Add(d)
	s.wire = append(s.wire, p)
	if d > 0 {
		time.AfterFunc(d, func() {
			s.q.b.mu.Lock()
			defer s.q.b.unlock()
			s.arriveDue()
		})
	}
	s.arriveDue()
}

// arriveDue lets arrive what has been long enough on its way.
func (s *subscription) arriveDue() {
	for now := time.Now(); len(s.wire) > 0 && s.conn.link.up() && !s.wire[0].due.After(now); {
		s.arrive(true)
	}
}

// arriveUnheard lets the first n parcels arrive, but their sender never knows.
func (s *subscription) arriveUnheard(n int) {
	for range min(n, len(s.wire)) {
		if p := s.wire[0]; !p.told {
			s.unconfirmed += len(p.settle)
		}
		s.arrive(false)
	}
}

// arrive hands the first parcel on the wire to the broker; heard: and its answer
// to the sender.
func (s *subscription) arrive(heard bool) {
	p := s.wire[0]
	s.wire = s.wire[1:]
	s.q.store.settle(s, p.settle)
	s.q.store.giveBack(s, p.back)
	p.seen = heard
	switch {
	case p.close:
		s.leave()
	case p.hold:
		s.left = s.held
		s.q.dispatch()
	}
	p.end()
}

// await waits until the broker has got p, or ctx ends, and reports.
func (s *subscription) await(ctx context.Context, p *parcel, returned int) (brokers.Report, error) {
	select {
	case <-p.over:
	case <-ctx.Done():
	}
	b := s.q.b
	b.mu.Lock()
	defer b.unlock()
	rep := s.report()
	rep.Returned, rep.Released = returned, p.seen
	op := OpHold
	if p.close {
		op = OpClose
	}
	switch {
	case p.seen:
		return rep, nil
	case s.broken != nil:
		return rep, s.broken.at(op, "queue "+s.q.name)
	}
	return rep, ctx.Err()
}

// report tells what happened since the last one.
func (s *subscription) report() brokers.Report {
	for _, p := range s.wire {
		if !p.told {
			s.unconfirmed += len(p.settle)
			p.told = true
		}
	}
	rep := brokers.Report{Unconfirmed: s.unconfirmed, OwnershipLost: s.ownershipLost, WillRepeat: s.willRepeat}
	s.unconfirmed, s.ownershipLost, s.willRepeat = 0, 0, 0
	return rep
}
