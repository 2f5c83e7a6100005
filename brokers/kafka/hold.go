package kafka

import (
	"context"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// Hold stops the fetching and lets what is given back be fetched again later:
// nobody else can have it meanwhile, for the membership is kept.
func (s *subscription) Hold(ctx context.Context, unstarted []*brokers.Delivery) (brokers.Report, error) {
	s.mu.Lock()
	if s.err != nil {
		defer s.mu.Unlock()
		return brokers.Report{}, s.ended()
	}
	s.held = true
	rep := brokers.Report{Returned: s.release(unstarted)}
	s.interrupt()
	marks := s.marks()
	s.mu.Unlock()

	confirmed := s.confirm(ctx, marks)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.report(&rep, marks)
	rep.Released = confirmed && rep.Unconfirmed == 0
	if s.err != nil {
		return rep, s.ended()
	}
	return rep, nil
}

// release books what is given back, the driver's own included, and counts it;
// mu is held.
func (s *subscription) release(ds []*brokers.Delivery) int {
	n := 0
	for _, d := range ds {
		if t, ok := d.Ref.(*tracker); ok && t.sub == s && !t.retired && t.free(d.Position) {
			n++
		}
	}
	for i := range s.buffer {
		if trackerOf(&s.buffer[i]).free(s.buffer[i].Position) {
			n++
		}
	}
	s.buffer = nil
	return n
}

// marks are how many acks each tracker has seen pass; mu is held.
func (s *subscription) marks() map[*tracker]int {
	out := map[*tracker]int{}
	for _, t := range s.each() {
		out[t] = t.passed
	}
	return out
}

// report adds what is to be told once; mu is held.
func (s *subscription) report(rep *brokers.Report, marks map[*tracker]int) {
	for t, mark := range marks {
		if !t.retired {
			rep.Unconfirmed += t.unproven(mark)
		}
	}
	rep.Unconfirmed += s.unconfirmed
	rep.OwnershipLost += s.ownershipLost
	rep.WillRepeat += s.willRepeat
	s.unconfirmed, s.ownershipLost, s.willRepeat = 0, 0, 0
}

// ended is the error of a call on an epoch that is over; mu is held.
func (s *subscription) ended() error {
	if s.closed {
		return fenced(s.op, errClosed)
	}
	return s.err
}

// Flow lets the poller fetch again, from the lowest offset given back.
func (s *subscription) Flow(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.ended()
	}
	if s.held {
		s.held = false
		s.interrupt()
	}
	return nil
}
