package nats

import (
	"context"
	"slices"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// Close ends the epoch. Nothing of it can be settled any more, so all that is
// with the caller is given back, whether listed or not: the server keeps nothing
// for it. Returned counts what is listed and what the driver held.
//
// While the connection is down it waits for it to come back, for no longer than
// the server waits for the deliveries anyway: acks without proof are then sent
// again, and what is unsettled is given back.
func (s *subscription) Close(ctx context.Context, unsettled []*brokers.Delivery) (brokers.Report, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return brokers.Report{}, nil
	}
	s.closed = true
	before, in := s.job, s.in
	s.in = nil
	s.pulls.reset()
	returned := len(s.mine(unsettled)) + s.ledger.held.n
	job := s.newJob()
	s.mu.Unlock()
	s.fail(fenced(errClosed)) // unless it is over for another reason

	var released bool
	s.c.background(func() {
		defer close(job)
		if before != nil {
			<-before
		}
		released = s.finish(in, returned)
		s.c.remove(s)
	})
	done := false
	select {
	case <-job:
		done = released
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rep := s.ledger.report(everything)
	rep.Returned += returned
	rep.Released = done
	return rep, nil
}

// finish brings all to the server that Close owes it, and tells whether the
// server confirmed it.
func (s *subscription) finish(in *inbox, returned int) bool {
	limit := time.NewTimer(max(s.ackWait, backgroundLimit))
	defer limit.Stop()
	now := s.c.link()
	if in != nil {
		if now.err == nil && now.session == s.session {
			s.c.withdraw(in)
		} else {
			s.c.discard(in)
		}
	}
	if s.gone() {
		return true // the durable is, and with it all that could be told to it
	}
	released := true
	stalled := time.NewTicker(checkLimit)
	defer stalled.Stop()
	for first := true; ; first = false {
		select {
		case <-now.up:
		case <-s.c.over:
			return false
		case <-limit.C:
			return false
		}
		now = s.c.link()
		s.mu.Lock()
		late := now.session != s.session
		if late {
			released = s.again(now.session) && released
		}
		if first {
			s.giveBackAll(s.inTime(), returned)
		}
		if late {
			s.lastWord()
		}
		s.mu.Unlock()
		if ended, proven := s.awaitProof(now, stalled.C, limit.C); ended {
			return released && proven
		}
		now = s.c.link()
	}
}

// awaitProof waits for all proofs, or until none can come any more: it has not
// ended when the connection went down. A durable that is deleted at that moment
// answers nothing at all, so a long wait asks for it.
func (s *subscription) awaitProof(now link, stalled, limit <-chan time.Time) (ended, proven bool) {
	quiet := s.silence(everything)
	for {
		select {
		case <-quiet:
			return true, s.proven()
		case <-now.down:
			return false, false
		case <-stalled:
			if brokers.ClassOf(s.exists()) == brokers.Missing {
				return true, false
			}
		case <-s.c.over:
			return true, false
		case <-limit:
			return true, false
		}
	}
}

// proven tells whether nothing waits for proof.
func (s *subscription) proven() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.ledger.waits(everything)
}

// gone tells whether the durable was found missing.
func (s *subscription) gone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return brokers.ClassOf(s.err) == brokers.Missing
}

// again sends in a later session the acks that have no proof: the server takes
// an ack twice. A give-back it would not take for the same one, for the message
// may be with another by now; those the server ends by itself after ack_wait, and
// they make again false.
//
// A server that was killed may have forgotten its last deliveries. To an ack of
// one it then has not delivered it answers nothing: the message comes again. So
// here each ack asks for an answer, in the order of the stream, so that an answer
// proves the ones before; and a last word, which is always answered, ends the
// wait for the others. mu is held.
func (s *subscription) again(session uint64) (all bool) {
	s.session, all = session, true
	var acks []*entry
	for e := s.ledger.sent.head; e != nil; e = s.ledger.sent.head {
		s.ledger.sent.remove(e)
		if e.outcome == brokers.Ack {
			acks = append(acks, e)
			continue
		}
		all = all && e.outcome != 0
		s.ledger.forget(e)
	}
	slices.SortFunc(acks, bySeq)
	s.c.out.add(func(items []item) []item {
		for _, e := range acks {
			s.ledger.number(e)
			items = append(items, item{subject: e.reply, word: ack, s: s, number: e.number, each: true, session: session})
		}
		return items
	})
	return all
}

// lastWord asks the server for an answer behind all that Close has sent so far;
// mu is held. What is told about is not waited for any more, so that this changes
// nothing.
func (s *subscription) lastWord() {
	e := s.ledger.sent.tail
	if e == nil {
		return
	}
	s.c.out.add(func(items []item) []item {
		return append(items, item{subject: e.reply, word: progress, s: s, number: lastWord, each: true, session: s.session})
	})
}

// lastWord is no number of the ledger.
const lastWord = 0

// answered is told when the last word was: what now has no proof gets none, but
// for acks that wait for a majority.
func (s *subscription) answered() {
	time.AfterFunc(restTime, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ledger.repeats()
		s.hush()
	})
}

// inTime lists what is held or with the caller and the server still waits for:
// what it has given up waiting for may be with another, and to give that back
// would take it away there. mu is held.
func (s *subscription) inTime() []*entry {
	oldest := s.c.now() - int64(s.ackWait)
	back := append(s.ledger.out.all(), s.ledger.held.all()...)
	return slices.DeleteFunc(back, func(e *entry) bool { return e.told < oldest })
}
