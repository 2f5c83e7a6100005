package rabbitmq

import (
	"context"
	"errors"
	"log/slog"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// Driver is the RabbitMQ driver. Its zero value is ready to use.
type Driver struct{}

var _ brokers.Driver = Driver{}

// Kind is "rabbitmq".
func (Driver) Kind() string { return "rabbitmq" }

// Open connects. It returns within ctx.
func (Driver) Open(ctx context.Context, c *supervisorv1.Connection, env brokers.Env) (brokers.Conn, error) {
	cfg := c.GetRabbitmq()
	if cfg == nil {
		return nil, &brokers.Error{
			Class: brokers.Refused, Op: "connect to " + c.GetName(),
			Err: errors.New("no rabbitmq settings"), Remedy: "give the connection a `rabbitmq` section",
		}
	}
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	conn := newConn(c.GetName(), cfg, env)
	l, err := conn.dialLink(ctx)
	if err != nil {
		return nil, err
	}
	conn.links = append(conn.links, l)
	return conn, nil
}
