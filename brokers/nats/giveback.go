package nats

import (
	"cmp"
	"context"
	"slices"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// Hold withdraws the inbox and gives back. It has two parts: a job that goes on
// in the background whatever ctx does, and the wait for it and for the proofs.
// When the epoch breaks before the job is done, nothing is given back: the error
// says so, and Close does it.
func (s *subscription) Hold(ctx context.Context, unstarted []*brokers.Delivery) (brokers.Report, error) {
	if err := s.turn(ctx); err != nil {
		return brokers.Report{}, err
	}
	s.mu.Lock()
	if s.err != nil {
		defer s.mu.Unlock()
		return brokers.Report{}, s.err
	}
	in := s.in
	s.in = nil
	s.pulls.reset()
	back := s.mine(unstarted)
	returned := len(back) + s.ledger.held.n
	job := s.newJob()
	s.mu.Unlock()
	s.poke() // a Receive that waits forgets its credit

	gave := false // guarded by mu
	s.c.background(func() {
		defer close(job)
		if in != nil {
			s.c.withdraw(in)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if gave = s.err == nil; gave {
			back = slices.DeleteFunc(back, func(e *entry) bool { return e.state != out })
			s.giveBackAll(append(back, s.ledger.held.all()...), returned)
		}
	})
	done := s.await(ctx, job)
	s.mu.Lock()
	last := s.ledger.numbers // what handlers settle from now on is for the next report
	s.mu.Unlock()
	done = done && s.await(ctx, s.silence(last))

	s.mu.Lock()
	defer s.mu.Unlock()
	rep := s.ledger.report(last)
	rep.Released = done && !s.ledger.waits(last)
	if s.err != nil && !gave {
		return rep, s.err
	}
	rep.Returned += returned
	return rep, s.err
}

// Shut withdraws the inbox and hands over what had arrived: given back, it would
// count where the durable has a max_deliver.
func (s *subscription) Shut(ctx context.Context) ([]brokers.Delivery, error) {
	if err := s.turn(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	in := s.in
	if s.err != nil || in == nil {
		defer s.mu.Unlock()
		return nil, s.err
	}
	s.in = nil
	s.pulls.reset()
	job := s.newJob()
	s.mu.Unlock()
	s.poke() // a Receive that waits forgets its credit

	s.c.background(func() {
		defer close(job)
		s.c.withdraw(in)
	})
	done := s.await(ctx, job)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	out := make([]brokers.Delivery, 0, s.ledger.held.n)
	for s.ledger.held.n > 0 {
		e := s.ledger.held.head
		size := e.size(s.src.subjectKey)
		s.ledger.handOut(e)
		out = append(out, s.delivery(e, size))
	}
	if !done {
		return out, context.Cause(ctx)
	}
	return out, nil
}

// newJob makes the next job; mu is held.
func (s *subscription) newJob() chan struct{} {
	s.job = make(chan struct{})
	return s.job
}

// Flow makes a new inbox. A Receive that waits pulls into it at once.
func (s *subscription) Flow(ctx context.Context) error {
	if err := s.turn(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	open, err := s.in != nil, s.err
	s.mu.Unlock()
	if open || err != nil {
		return err
	}
	in, err := call(ctx, s.c, s.src.needs, func(context.Context) (*inbox, error) { return s.openInbox() }, s.c.discard)
	if err != nil {
		return classify(s.op, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		s.c.background(func() { s.c.discard(in) })
		return s.err
	}
	s.in = in
	s.notBefore = 0
	s.poke()
	return nil
}

// mine maps the caller's deliveries to those of this subscription that are
// still with the caller; mu is held.
func (s *subscription) mine(list []*brokers.Delivery) []*entry {
	back := make([]*entry, 0, len(list))
	for _, d := range list {
		if e, ok := d.Ref.(*entry); ok && e.s == s && e.state == out {
			back = append(back, e)
		}
	}
	return back
}

// giveBackAll gives back in the order of the stream, which is the order in which
// the server then delivers again. What is more than the caller was told already
// stands in the next report. mu is held.
func (s *subscription) giveBackAll(back []*entry, told int) {
	slices.SortFunc(back, bySeq)
	s.ledger.strays += max(0, len(back)-told)
	s.giveBack(back, s.session)
}

func bySeq(a, b *entry) int { return cmp.Compare(a.seq, b.seq) }

// giveBack sends naks in a session; mu is held.
func (s *subscription) giveBack(back []*entry, session uint64) {
	if len(back) == 0 {
		return
	}
	s.c.out.add(func(items []item) []item {
		for _, e := range back {
			s.ledger.send(e, 0)
			items = append(items, item{subject: e.reply, word: nak, s: s, number: e.number, session: session})
		}
		return items
	})
}

// turn waits until the background part of an earlier Hold is done.
func (s *subscription) turn(ctx context.Context) error {
	s.mu.Lock()
	job := s.job
	s.mu.Unlock()
	if job == nil {
		return nil
	}
	select {
	case <-job:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// silence is closed when nothing up to a number waits for proof, or no proof will
// come. It has one user at a time.
func (s *subscription) silence(last uint64) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	quiet := make(chan struct{})
	if s.ledger.waits(last) {
		s.quiet, s.last = quiet, last
	} else {
		close(quiet)
	}
	return quiet
}

// await tells whether done was closed before ctx ended or the epoch broke.
func (s *subscription) await(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
	}
	select {
	case <-done:
		return true
	case <-s.broken:
		return false
	case <-ctx.Done():
		return false
	}
}
