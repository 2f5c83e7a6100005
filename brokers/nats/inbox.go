package nats

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
)

// fate is what happens to a delivery that an inbox brings.
type fate uint8

const (
	keep   fate = iota // it is held for Receive, or for the give-back under way
	refuse             // it is given back at once
)

// inbox is a subject that answers to pulls come to, with the goroutine that
// reads it. A held subscription has none.
type inbox struct {
	subject string
	sub     *nats.Subscription
	// ch has room for all that may be asked for, so that nats.go, which drops
	// what does not fit, always finds some.
	ch chan *nats.Msg
	// stop, sent into ch, ends the reader; done is closed then.
	stop *nats.Msg
	done chan struct{}
	// fate is guarded by the subscription's mu.
	fate fate
}

// What may be under way at a time: messages, and beside them statuses, of which
// there are one per pull and heartbeat.
const (
	mostUnderWay = 1024
	statusRoom   = 32
)

func (s *source) mostUnderWay() int { return min(s.messages, mostUnderWay) }

// openInbox subscribes and starts the reader. It uses nats.go: see call.
func (s *subscription) openInbox() (*inbox, error) {
	nc := s.c.nc
	in := &inbox{
		subject: nc.NewInbox() + ".",
		ch:      make(chan *nats.Msg, s.src.mostUnderWay()+statusRoom),
		stop:    new(nats.Msg),
		done:    make(chan struct{}),
	}
	s.mu.Lock()
	s.inbox = in.subject
	s.mu.Unlock()
	sub, err := nc.ChanSubscribe(in.subject+"*", in.ch)
	if err != nil {
		return nil, err
	}
	in.sub = sub
	go s.read(in)
	return in, nil
}

// read moves what arrives into the ledger, as much as is there under one lock.
func (s *subscription) read(in *inbox) {
	defer close(in.done)
	for m := range in.ch {
		s.mu.Lock()
		now := s.c.now()
		for n := len(in.ch); ; n-- {
			if m == in.stop {
				s.mu.Unlock()
				return
			}
			s.arrive(in, m, now)
			if n == 0 {
				break
			}
			m = <-in.ch
		}
		s.mu.Unlock()
	}
}

// end stops the reader after all that came before.
func (in *inbox) end() {
	in.ch <- in.stop
	<-in.done
}

// withdraw takes the interest back and returns when nothing more can come: the
// server handles a connection's lines in order, so its answer to a ping proves
// that it knows, and what it sent before has been read. It ends the inbox in any
// case, within backgroundLimit.
func (c *conn) withdraw(in *inbox) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), withdrawLimit, errGaveUp)
	defer cancel()
	// Drain tells the server, but goes on to listen until its own ping returned.
	if in.sub.Drain() == nil {
		_ = c.nc.FlushWithContext(ctx)
	}
	c.discard(in)
}

// withdrawLimit bounds the wait for a server that does not answer.
const withdrawLimit = 10 * time.Second

// discard ends an inbox without waiting for the server.
func (c *conn) discard(in *inbox) {
	_ = in.sub.Unsubscribe() // fails when it is gone already
	in.end()
}
