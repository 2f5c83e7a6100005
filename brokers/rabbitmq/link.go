package rabbitmq

import (
	"context"
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// link is one TCP connection for consumers. Nothing is published on it, so that
// the broker never stops reading it.
type link struct {
	c       *conn
	amqp    *amqp.Connection
	version version
	out     outbox
	// asking has room for the one channel on which the broker is asked about
	// queues; nil stands for one to be opened.
	asking chan *amqp.Channel
	// down is closed when the connection is over.
	down chan struct{}
	// used counts subscriptions that have or are about to get a channel here;
	// conn.mu guards it.
	used int
}

// dialLink makes a link; the caller counts it in.
func (c *conn) dialLink(ctx context.Context) (*link, error) {
	raw, err := call(ctx, c, func(ctx context.Context) (*amqp.Connection, error) {
		return c.dialer.dial(ctx, "consumers")
	}, closeNow)
	if err != nil {
		return nil, unreachable(c.op(), err)
	}
	l := &link{
		c: c, amqp: raw, version: versionOf(raw.Properties),
		asking: make(chan *amqp.Channel, 1), down: make(chan struct{}),
	}
	l.asking <- nil
	l.out.wake = make(chan struct{}, 1)
	closes := raw.NotifyClose(make(chan *amqp.Error, 1))
	go l.watch(closes)
	go l.out.run(l.down)
	return l, nil
}

// watch waits for the end of the connection. A connection that we closed ends
// without an error.
func (l *link) watch(closes <-chan *amqp.Error) {
	err := <-closes
	close(l.down)
	l.c.drop(l, l.lost(err))
}

// lost is why what was on the link is over. The class says nothing of the reason:
// what one of many did wrong must not end the others. Dialling again tells more.
func (l *link) lost(err *amqp.Error) error {
	out := &brokers.Error{Class: brokers.Unreachable, Op: "use the connection " + l.c.dialer.name, Err: errConnDone, Remedy: redials}
	if err != nil {
		out.Err = words{err}
	}
	return out
}

// ask runs f on the link's own channel, one at a time, and returns within ctx. What
// the broker does not like closes that channel, and no other.
func ask[T any](ctx context.Context, l *link, f func(*amqp.Channel) (T, error)) (T, error) {
	var none T
	var ch *amqp.Channel
	select {
	case ch = <-l.asking:
	case <-l.down:
		return none, l.lost(nil)
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	return call(ctx, l.c, func(context.Context) (T, error) {
		defer func() { l.asking <- ch }()
		if ch == nil || ch.IsClosed() {
			fresh, err := l.amqp.Channel()
			if err != nil {
				return none, err
			}
			ch = fresh
		}
		return f(ch)
	}, nil)
}

// unreachable makes an error of the contract of a context's.
func unreachable(op string, err error) error {
	if _, ok := errors.AsType[*brokers.Error](err); ok {
		return err
	}
	return &brokers.Error{Class: brokers.Unreachable, Op: op, Err: err, Remedy: "is RabbitMQ listening there?"}
}

// errorOf is the library's error in err, or nil.
func errorOf(err error) *amqp.Error {
	said, _ := errors.AsType[*amqp.Error](err)
	return said
}
