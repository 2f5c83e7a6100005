package nats

import (
	"context"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// request is a call of nats.go that waits for the server's answer.
type request struct {
	// about is in the server's words when it refuses what the request needs: it
	// tells that apart from the answer, which then never comes.
	about string
	end   context.CancelCauseFunc
}

// call runs f, which uses nats.go, on a goroutine of its own and returns within
// ctx: nats.go may sit in a lock for writeTimeout before it looks at ctx. It
// also returns when the connection goes down or the server refuses a subject
// with about in it; f's context ends then. What f made too late goes to undo.
func call[T any](ctx context.Context, c *conn, about string, f func(context.Context) (T, error), undo func(T)) (T, error) {
	var none T
	link := c.link()
	if link.err != nil {
		return none, link.err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	forget := c.remember(&request{about, end})
	defer forget()
	type result struct {
		v   T
		err error
	}
	done := make(chan result)
	c.background(func() {
		limited, cancel := context.WithTimeoutCause(ctx, backgroundLimit, errGaveUp)
		defer cancel()
		v, err := f(limited)
		if err != nil && limited.Err() != nil {
			err = context.Cause(limited)
		}
		select {
		case done <- result{v, err}:
		case <-ctx.Done():
			if err == nil && undo != nil {
				undo(v)
			}
		}
	})
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-link.down:
		return none, c.downError()
	}
}

// downError is why the connection is down, or was a moment ago.
func (c *conn) downError() error {
	if err := c.Err(); err != nil {
		return err
	}
	return &brokers.Error{Class: brokers.Unreachable, Op: c.op(), Err: nats.ErrDisconnected}
}

func (c *conn) remember(r *request) (forget func()) {
	c.mu.Lock()
	c.requests[r] = true
	c.mu.Unlock()
	return func() {
		c.mu.Lock()
		delete(c.requests, r)
		c.mu.Unlock()
	}
}

// denied ends what the server refuses by a message of its own: requests, which
// would wait for an answer for ever, and subscriptions.
func (c *conn) denied(err error) {
	text := err.Error()
	c.mu.Lock()
	subs := c.all()
	for r := range c.requests {
		if strings.Contains(text, r.about) {
			r.end(err)
		}
	}
	c.mu.Unlock()
	c.log.Error("server refuses a subject", "error", err)
	for _, s := range subs {
		if strings.Contains(text, s.nextSubject) || strings.Contains(text, s.src.ackSubjects()) {
			s.fail(classify(s.op, err))
		}
	}
}
