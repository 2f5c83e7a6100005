package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/seed-111f5b8e/supervisord/test/node/rabbitmq"
)

// rabbitmqFixture has a classic queue for every other consumer, and a quorum
// queue for the rest, on the node that all of this package's tests share.
type rabbitmqFixture struct {
	node   *rabbitmq.Node
	prefix string
	out    outlet
	// arguments of all queues; with them all are quorum queues.
	arguments amqp.Table
}

// daemonUser is the daemon's alone, so that its connections can be closed.
const daemonUser = "daemon"

func (f *rabbitmqFixture) open(t *testing.T, names []string) {
	t.Helper()
	f.node = shared.rabbitmq(t)
	f.prefix = strings.ReplaceAll(t.Name(), "/", ".") + "."
	f.out.url = f.node.DialURL()
	t.Cleanup(f.out.close)
	for _, name := range names {
		_, err := onChannel(t.Context(), &f.out, func(ch *amqp.Channel) (amqp.Queue, error) {
			args := f.arguments
			if args == nil {
				args = amqp.Table{"x-queue-type": f.kind(name)}
			}
			return ch.QueueDeclare(f.prefix+name, true, false, false, false, args)
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := f.node.DeleteQueue(context.WithoutCancel(t.Context()), "/", f.prefix+name); err != nil {
				t.Error(err)
			}
		})
	}
	if err := f.node.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (*rabbitmqFixture) consumers() int { return 20 }

func (f *rabbitmqFixture) kind(name string) string {
	if f.arguments == nil && (name[len(name)-1]-'0')%2 == 0 {
		return "classic"
	}
	return "quorum"
}

func (f *rabbitmqFixture) connection() string {
	return fmt.Sprintf("rabbitmq: {urls: [%q], auth: {user: %s, password: %q}}", f.node.URL(), daemonUser, "env:"+passwordEnv)
}

func (f *rabbitmqFixture) source(name string) string {
	return fmt.Sprintf("source: {connection: main, rabbitmq: {queue: %q, type: %s}}", f.prefix+name, map[string]string{
		"classic": "CLASSIC", "quorum": "QUORUM",
	}[f.kind(name)])
}

func (f *rabbitmqFixture) publish(ctx context.Context, name, _, id string) error {
	c, err := onChannel(ctx, &f.out, func(ch *amqp.Channel) (*amqp.DeferredConfirmation, error) {
		return ch.PublishWithDeferredConfirmWithContext(ctx, "", f.prefix+name, true, false,
			amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: id, Body: []byte(id)})
	})
	if err != nil {
		return err
	}
	if ok, err := c.WaitContext(ctx); err != nil || !ok {
		return fmt.Errorf("not confirmed: %w", err)
	}
	return nil
}

// left counts what waits. What a stopped consumer had and did not acknowledge
// waits too.
func (f *rabbitmqFixture) left(ctx context.Context, name string) (int, error) {
	q, err := onChannel(ctx, &f.out, func(ch *amqp.Channel) (amqp.Queue, error) {
		return ch.QueueDeclarePassive(f.prefix+name, true, false, false, false, nil)
	})
	return q.Messages, err
}

func (f *rabbitmqFixture) messages() string { return "c00-" }

func (f *rabbitmqFixture) kill() { f.node.Kill() }

func (f *rabbitmqFixture) restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return f.node.Restart(ctx)
}

func (f *rabbitmqFixture) freeze() { f.node.Freeze() }
func (f *rabbitmqFixture) thaw()   { f.node.Thaw() }

func (f *rabbitmqFixture) closeConnections(ctx context.Context) error {
	return f.node.CloseConnectionsOf(ctx, daemonUser)
}

// outlet is the publisher's channel, opened again when it has ended.
type outlet struct {
	url string

	mu   sync.Mutex
	conn *amqp.Connection
	ch   *amqp.Channel
}

// onChannel uses the channel within ctx: calls of the client do not heed it.
func onChannel[T any](ctx context.Context, o *outlet, use func(*amqp.Channel) (T, error)) (T, error) {
	type result struct {
		t   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		ch, err := o.open()
		if err != nil {
			done <- result{err: err}
			return
		}
		t, err := use(ch)
		done <- result{t, err}
	}()
	select {
	case r := <-done:
		return r.t, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

func (o *outlet) open() (*amqp.Channel, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ch != nil && !o.ch.IsClosed() {
		return o.ch, nil
	}
	if o.conn != nil {
		_ = o.conn.CloseDeadline(time.Now().Add(time.Second)) // it is broken
	}
	var err error
	dial := amqp.DefaultDial(time.Second)
	if o.conn, err = amqp.DialConfig(o.url, amqp.Config{Dial: dial, Heartbeat: 5 * time.Second}); err != nil {
		return nil, err
	}
	if o.ch, err = o.conn.Channel(); err != nil {
		return nil, err
	}
	return o.ch, o.ch.Confirm(false)
}

func (o *outlet) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.conn != nil {
		_ = o.conn.CloseDeadline(time.Now().Add(time.Second)) // nothing is lost with it
	}
}
