package rabbitmq

import (
	"context"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// Hold cancels the consumption, gives back what has not started, and has the
// broker confirm all of it. The channel stays, for what runs to be settled on. What
// cannot be done within ctx goes on in the background; what arrives meanwhile is
// given back.
func (s *subscription) Hold(ctx context.Context, unstarted []*brokers.Delivery) (brokers.Report, error) {
	s.mu.Lock()
	if s.err != nil {
		defer s.mu.Unlock()
		return brokers.Report{}, s.err
	}
	s.intake = giveBack
	s.turns++
	back := s.unstarted(unstarted)
	s.returned += len(back)
	upTo := s.settled
	s.mu.Unlock()
	confirmed := false
	done := s.inTurn(ctx, func() {
		// Given back before the broker knows, they would come here again.
		if s.cancel() {
			s.release(back)
			confirmed = s.confirm()
		}
	})
	return s.report(upTo, done && confirmed), nil
}

// Shut cancels the consumption and hands over what has arrived until the broker's
// answer: given back, it would count against the messages.
func (s *subscription) Shut(ctx context.Context) ([]brokers.Delivery, error) {
	s.mu.Lock()
	if s.err != nil || s.intake != open {
		defer s.mu.Unlock()
		return nil, s.err
	}
	s.intake = rest
	s.turns++
	s.mu.Unlock()
	done := s.inTurn(ctx, func() { _ = s.cancel() }) // what ends the channel ends the epoch
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	out := s.held
	s.held, s.heldBytes, s.intake = nil, 0, giveBack
	if !done {
		return out, context.Cause(ctx)
	}
	return out, nil
}

// unstarted finds what of the caller's list is unsettled and, with it, all that the
// driver holds; mu is held.
func (s *subscription) unstarted(list []*brokers.Delivery) []*entry {
	back := make([]*entry, 0, len(list)+len(s.held))
	for _, d := range list {
		if e, ok := d.Ref.(*entry); ok && e.s == s && e.state == unsettled {
			back = append(back, e)
		}
	}
	for i := range s.held {
		if e, ok := s.held[i].Ref.(*entry); ok {
			back = append(back, e)
		}
	}
	s.held, s.heldBytes = nil, 0
	return back
}

// release gives back.
func (s *subscription) release(back []*entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range back {
		s.ledger.settle(e, brokers.Release)
	}
}

// inTurn runs f in the background after what was begun before, and tells whether
// it was done before ctx ended. Calls on the channel are made so: replies to two
// at a time get mixed up.
func (s *subscription) inTurn(ctx context.Context, f func()) bool {
	s.mu.Lock()
	before, job := s.job, make(chan struct{})
	s.job = job
	s.mu.Unlock()
	s.c.background(func() {
		defer close(job)
		if before != nil {
			<-before
		}
		f()
	})
	select {
	case <-job:
		return true
	case <-ctx.Done():
	}
	select {
	case <-job:
		return true
	default:
		return false
	}
}

// cancel ends the consumption and returns when all that had been sent is booked:
// the broker answers behind it. It runs in turn.
func (s *subscription) cancel() bool {
	if s.tag == "" {
		return true
	}
	if s.ch.Cancel(s.tag, false) != nil {
		return false
	}
	<-s.drained
	s.tag = ""
	return true
}

// confirm writes all that is settled and has the broker answer behind it: a channel
// works its methods off in order, and a tag that it does not know ends it. The
// question itself, for the prefetch, changes nothing. It runs in turn.
func (s *subscription) confirm() bool {
	settled, err := s.write(true)
	if err != nil || s.ch.Qos(s.src.prefetch, 0, false) != nil {
		return false
	}
	s.prove(settled)
	return true
}

func (s *subscription) prove(settled int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proven = max(s.proven, settled)
}

// report tells what happened since the last one; of what was settled, the first
// upTo. Each settlement is told as unconfirmed once.
func (s *subscription) report(upTo int, released bool) brokers.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := brokers.Report{Returned: s.returned, Released: released, Unconfirmed: max(0, upTo-max(s.proven, s.reported))}
	s.returned = 0
	s.reported = max(s.reported, upTo)
	return r
}

// Flow consumes again on the channel, under a new tag. The prefetch counts for each
// consumption: with what still runs of the last one, the broker has sent at most
// that and a prefetch.
func (s *subscription) Flow(ctx context.Context) error {
	s.mu.Lock()
	isOpen, err, turn := s.intake == open, s.err, s.turns
	s.mu.Unlock()
	if isOpen || err != nil {
		return err
	}
	done := s.inTurn(ctx, func() { err = s.resume(turn) })
	if !done {
		return context.Cause(ctx)
	}
	return err
}

// resume runs in turn. It opens the intake unless a later Hold or Close wants it
// shut.
func (s *subscription) resume(turn int) error {
	if s.tag != "" {
		s.reopen(turn)
		return nil
	}
	deliveries, err := s.consume()
	if err != nil {
		if s.l.amqp.IsClosed() {
			err = s.l.lost(errorOf(err))
		}
		err = s.src.classify(s.op, err)
		s.fail(err)
		return err
	}
	s.reopen(turn)
	s.next <- consumption{deliveries, s.drained}
	return nil
}

func (s *subscription) reopen(turn int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && s.turns == turn {
		s.intake = open
	}
}

// cancelled finds out why the broker cancelled the consumption.
func (s *subscription) cancelled() {
	ctx, stop := context.WithTimeoutCause(context.Background(), backgroundLimit, errGaveUp)
	defer stop()
	_, err := ask(ctx, s.l, func(ch *amqp.Channel) (amqp.Queue, error) { return inspect(ch, s.src.queue) })
	if err != nil {
		s.fail(s.src.classify(s.op, err))
		return
	}
	s.fail(&brokers.Error{
		Class: brokers.Transient, Op: s.op, Err: errCancelled,
		Remedy: "the queue is there: it moved to another node, was made again, or a message was held for longer than its consumer timeout",
	})
}
