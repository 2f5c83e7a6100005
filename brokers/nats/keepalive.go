package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// checkLimit bounds the question whether the durable is still there.
const checkLimit = 5 * time.Second

// beat is how often tick runs. A delivery is extended when it is older than a
// third of ack_wait, so at the latest at half of it.
func (s *subscription) beat() time.Duration { return min(s.ackWait/6, s.src.heartbeat()) }

// tick extends what is held or handed out, and looks whether the server still
// speaks. It runs on the timer's goroutine.
func (s *subscription) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	now := s.c.now()
	if s.ledger.held.n+s.ledger.out.n > 0 {
		s.extend(now)
	}
	if s.in != nil && s.pulls.overdue(s.src, s.heard, now) {
		s.suspect()
	}
	s.timer.Reset(s.beat())
}

func (s *subscription) extend(now int64) {
	old := now - int64(s.ackWait/3)
	s.c.out.add(func(items []item) []item {
		for _, l := range [...]*list{&s.ledger.held, &s.ledger.out} {
			for e := l.head; e != nil; e = e.next {
				if e.told <= old {
					e.told = now
					items = append(items, item{subject: e.reply, word: progress, session: s.session})
				}
			}
		}
		return items
	})
}

// unheard is told when nobody listened to an acknowledgement: it will not be
// proven.
func (s *subscription) unheard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspect()
	s.hush()
}

// suspect asks the server whether the durable is there, once at a time; mu is
// held.
func (s *subscription) suspect() {
	if s.checking || s.err != nil {
		return
	}
	s.checking = true
	s.c.background(func() {
		if err := s.check(); err != nil {
			s.fail(err)
		}
		s.mu.Lock()
		s.checking = false
		s.mu.Unlock()
		s.poke()
	})
}

// check asks for the durable. When it is there after a long silence, the open
// pulls are lost: a new inbox takes over, so that they cannot bring more than
// the credit should the server remember them.
func (s *subscription) check() error {
	if err := s.exists(); err != nil {
		return err
	}
	s.mu.Lock()
	old := s.in
	silent := old != nil && s.pulls.overdue(s.src, s.heard, s.c.now())
	s.mu.Unlock()
	if !silent {
		return nil
	}
	in, err := s.openInbox()
	if err != nil {
		return classify(s.op, err)
	}
	s.mu.Lock()
	if s.in != old || s.err != nil { // held or over meanwhile
		s.mu.Unlock()
		s.c.discard(in)
		return nil
	}
	s.in = in
	s.pulls.reset()
	before := s.job
	job := s.newJob() // a Hold or Close waits for what the old one still brings
	s.mu.Unlock()
	defer close(job)
	if before != nil {
		<-before
	}
	s.c.withdraw(old)
	return nil
}

// exists asks the server for the durable.
func (s *subscription) exists() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), checkLimit, errGaveUp)
	defer cancel()
	_, err := call(ctx, s.c, s.src.needs, func(ctx context.Context) (jetstream.Consumer, error) {
		return s.c.js.Consumer(ctx, s.src.stream, s.src.durable)
	}, nil)
	return s.src.vanished(s.op, err)
}

// classify is the driver's, with what the spec says about a missing source.
func (s *source) classify(op string, err error) error {
	err = classify(op, err)
	var e *brokers.Error
	if errors.As(err, &e) && e.Class == brokers.Missing {
		e.Wait = s.missing != supervisorv1.Missing_MISSING_FAIL
	}
	return err
}

// vanished is classify for a durable that was there: with it went the position,
// and a new one would begin at deliver_policy. Whether it may is for an operator
// to say, so this is not waited for. A stream that vanished is.
func (s *source) vanished(op string, err error) error {
	err = s.classify(op, err)
	var e *brokers.Error
	if errors.As(err, &e) && e.Class == brokers.Missing && !errors.Is(err, jetstream.ErrStreamNotFound) {
		e.Wait, e.Remedy = false, "somebody deleted the durable; start the consumer to begin anew at deliver_policy"
	}
	return err
}

// deleted asks whether the stream went with the durable.
func (s *subscription) deleted() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), checkLimit, errGaveUp)
	defer cancel()
	_, err := call(ctx, s.c, s.src.needs, func(ctx context.Context) (jetstream.Stream, error) {
		return s.c.js.Stream(ctx, s.src.stream)
	}, nil)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		err = jetstream.ErrConsumerDeleted
	}
	return s.src.vanished(s.op, err)
}

func (s *subscription) statusError(v verdict, text string) error {
	if v == deleted {
		return s.deleted()
	}
	return &brokers.Error{Class: brokers.Refused, Op: s.op, Err: fmt.Errorf("the server refuses to deliver: %s", text),
		Remedy: "see the durable's max_request_* limits and what source.nats asks for"}
}
