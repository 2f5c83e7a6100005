package kafka

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// Driver is the Kafka driver. Its zero value is ready to use.
type Driver struct {
	// dial replaces the network in tests; nil: TCP.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	// probe is how often a healthy connection is asked for its topics; 0: probeEvery.
	probe time.Duration
}

var _ brokers.Driver = Driver{}

// Kind is "kafka".
func (Driver) Kind() string { return "kafka" }

// Open signs in and asks for the cluster. It returns within ctx.
func (d Driver) Open(ctx context.Context, c *supervisorv1.Connection, env brokers.Env) (brokers.Conn, error) {
	op := "connect to " + c.GetName()
	cfg := c.GetKafka()
	if cfg == nil {
		return nil, &brokers.Error{
			Class: brokers.Refused, Op: op,
			Err: errors.New("no kafka settings"), Remedy: "give the connection a `kafka` section",
		}
	}
	if d.probe == 0 {
		d.probe = probeEvery
	}
	conn, err := newConn(d, c.GetName(), cfg, env)
	if err != nil {
		return nil, classify(op, err)
	}
	if err := conn.ping(ctx); err != nil {
		conn.abandon()
		return nil, classify(op, err)
	}
	conn.start()
	return conn, nil
}
