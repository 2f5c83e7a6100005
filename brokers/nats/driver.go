package nats

import (
	"context"
	"errors"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// Driver is the JetStream driver. Its zero value is ready to use.
type Driver struct{}

var _ brokers.Driver = Driver{}

// Kind is "nats".
func (Driver) Kind() string { return "nats" }

// Open connects, and with `embedded` starts the server first. It returns within
// ctx; what is still under way then is undone in the background.
func (Driver) Open(ctx context.Context, c *supervisorv1.Connection, env brokers.Env) (brokers.Conn, error) {
	op := "connect to " + c.GetName()
	cfg := c.GetNats()
	if cfg == nil {
		return nil, &brokers.Error{Class: brokers.Refused, Op: op,
			Err: errors.New("no nats settings"), Remedy: "give the connection a `nats` section"}
	}
	type result struct {
		conn *conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		nc, err := open(ctx, c.GetName(), cfg, env)
		done <- result{nc, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, classify(op, r.err)
		}
		return r.conn, nil
	case <-ctx.Done():
		go func() {
			if r := <-done; r.err == nil {
				closeCtx, cancel := context.WithTimeoutCause(context.Background(), backgroundLimit, errGaveUp)
				defer cancel()
				_ = r.conn.Close(closeCtx)
			}
		}()
		return nil, &brokers.Error{Class: brokers.Unreachable, Op: op, Err: context.Cause(ctx),
			Remedy: "is a server listening there?"}
	}
}
