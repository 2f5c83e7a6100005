package rabbitmq

import (
	"context"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// Close ends the epoch by ending its channel: the broker then puts all that is
// unsettled back to where it was, before it gives anything to the queue's next
// consumer. Cancelling first would let that one overtake. Where the end of a
// channel counts against the messages and basic.nack does not, they are nacked
// first. That the channel ended in order proves what was written before.
func (s *subscription) Close(ctx context.Context, list []*brokers.Delivery) (brokers.Report, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return brokers.Report{}, nil
	}
	s.closed = true
	s.turns++
	s.intake = ignore
	s.returned += len(s.unstarted(list))
	if s.linger != nil {
		s.linger.Stop()
	}
	s.mu.Unlock()
	s.fail(fenced(errClosed)) // unless it is over for another reason
	released := false
	done := s.inTurn(ctx, func() { released = s.end() })
	rep := s.report(s.total(), done && released)
	if done && !released {
		s.mu.Lock()
		rep.WillRepeat = min(s.ledger.unsent(), rep.Unconfirmed)
		rep.Unconfirmed -= rep.WillRepeat
		s.mu.Unlock()
	}
	return rep, nil
}

func (s *subscription) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settled
}

// end ends the channel and tells whether the broker has all back. It runs in turn.
func (s *subscription) end() bool {
	defer s.c.release(s.l)
	if s.nackFirst {
		s.mu.Lock()
		s.intake = giveBack
		s.ledger.giveBack()
		s.mu.Unlock()
		s.cancel()
	}
	settled, err := s.write(true)
	closing := s.ch.Close() // nil also when it is closed already
	<-s.ended
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.cut:
		return !s.l.amqp.IsClosed() // the broker closed the channel, and so has all
	case err != nil || closing != nil:
		return false
	}
	s.proven = max(s.proven, settled)
	return true
}
