package rabbitmq

import (
	"context"
	"time"
)

// backgroundLimit bounds what goes on after a caller's context has ended, where
// nothing closer bounds it.
const backgroundLimit = 30 * time.Second

// call runs f, which uses amqp091-go, on a goroutine of its own and returns within
// ctx: the library's calls end with their connection at the latest, and that takes
// one and a half heartbeats when the broker is frozen. What f made too late goes to
// undo, on that goroutine. f should give up early once its context has ended.
func call[T any](ctx context.Context, c *conn, f func(context.Context) (T, error), undo func(T)) (T, error) {
	var none T
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type result struct {
		v   T
		err error
	}
	done := make(chan result)
	c.background(func() {
		v, err := f(ctx)
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
	}
}
