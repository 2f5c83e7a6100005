package kafka

import (
	"context"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// Close ends the epoch: positions are committed, the member leaves the group (a
// static one stays for session_timeout, as it is meant to), and the client
// ends. What the caller lists and what the driver holds is counted as given
// back: nobody else had it, and the next owner of its partition begins there.
func (s *subscription) Close(ctx context.Context, unsettled []*brokers.Delivery) (brokers.Report, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return brokers.Report{}, nil
	}
	s.closed = true
	rep := brokers.Report{Returned: s.release(unsettled)}
	marks := s.marks()
	broke := s.err
	s.mu.Unlock()
	s.fail(fenced(s.op, errClosed))
	s.end(errClosed)

	done := make(chan bool, 1)
	s.c.work.Go(func() { done <- s.finish(broke, marks) })
	released := false
	select {
	case released = <-done:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report(&rep, marks)
	for _, t := range s.each() {
		rep.WillRepeat += t.done
	}
	rep.Released = released && rep.Unconfirmed == 0
	return rep, nil
}

// finish brings to the broker what Close owes it, and tells whether the broker
// confirmed it. It ends by itself.
func (s *subscription) finish(broke error, marks map[*tracker]int) bool {
	defer s.c.remove(s)
	limit, cancel := context.WithTimeoutCause(context.Background(), backgroundLimit, errSilent)
	defer cancel()
	<-s.polled
	confirmed := true
	switch brokers.ClassOf(broke) {
	case 0, brokers.Transient, brokers.Refused, brokers.Lost:
		confirmed = s.confirm(limit, marks)
	case brokers.Unreachable, brokers.Missing, brokers.Fenced:
		// The group has given the partitions away, or they are gone.
		confirmed = false
	}
	left := s.leave(limit)
	s.client.Close()
	return confirmed && left
}

// leave tells the group. It returns within ctx, also when the broker is frozen.
// The poller has ended, so nothing may keep the group waiting any more.
func (s *subscription) leave(ctx context.Context) bool {
	s.client.AllowRebalance()
	defer s.client.AllowRebalance()
	return s.client.LeaveGroupContext(ctx) == nil
}
