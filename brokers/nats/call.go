package nats

import (
	"context"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// request is a call of nats.go that waits for the server's answer.
type request struct {
	// needs tells whether it uses a subject: when the server refuses one, it says
	// so apart from the answer, which then never comes.
	needs func(subject string) bool
	end   context.CancelCauseFunc
}

// call runs f, which uses nats.go, on a goroutine of its own and returns within
// ctx: nats.go may sit in a lock for writeTimeout before it looks at ctx. It
// also returns when the connection goes down or the server refuses a subject that
// f needs; f's context ends then. What f made too late goes to undo.
func call[T any](ctx context.Context, c *conn, needs func(string) bool, f func(context.Context) (T, error), undo func(T)) (T, error) {
	var none T
	link := c.link()
	if link.err != nil {
		return none, link.err
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	forget := c.remember(&request{needs, end})
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

// refused ends what uses a subject that the server refuses by a message of its
// own: requests, which would wait for an answer for ever, and subscriptions.
func (c *conn) refused(subject string, err error) {
	c.log.Error("a subject cannot be used", "subject", subject, "error", err)
	c.mu.Lock()
	subs := c.all()
	for r := range c.requests {
		if r.needs(subject) {
			r.end(err)
		}
	}
	c.mu.Unlock()
	for _, s := range subs {
		if s.needs(subject) {
			s.fail(classify(s.op, err))
		}
	}
}

// needs tells whether a request that manages the source uses a subject of the
// API: $JS.API.STREAM.verb.STREAM or $JS.API.CONSUMER.verb.STREAM.DURABLE.
func (s *source) needs(subject string) bool {
	t := strings.Split(subject, ".")
	if len(t) < 5 || t[0] != "$JS" || t[1] != "API" || t[4] != s.stream {
		return false
	}
	return t[2] == "STREAM" || t[2] == "CONSUMER" && len(t) > 5 && t[5] == s.durable
}

// needs tells whether a subscription uses a subject: to pull, to acknowledge, or
// to be delivered to.
func (s *subscription) needs(subject string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return subject == s.nextSubject || strings.HasPrefix(subject, s.src.ackSubjects()) ||
		s.inbox != "" && strings.HasPrefix(subject, s.inbox)
}
