package rabbitmq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/brokertest"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// rig is one test's queue, made with its arguments, and a connection of the driver
// through a proxy of its own.
type rig struct {
	*testing.T
	*harness

	conn  brokers.Conn
	queue string
	log   *logs
}

// logs is what the driver logged.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func newRig(t *testing.T, s *server, name string, args amqp.Table) *rig {
	t.Helper()
	r := &rig{T: t, harness: newHarness(t, s, name), queue: name, log: &logs{}}
	must(t, r.client(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(name, true, false, false, false, args)
		return err
	}))
	conn, err := r.open(r.Connection(true))
	must(t, err)
	r.conn = conn
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		must(t, conn.Close(ctx))
	})
	return r
}

func (r *rig) open(c *supervisorv1.Connection) (brokers.Conn, error) {
	return Driver{}.Open(r.within(patience), c, brokers.Env{
		Log: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Secret: func(ref string) (string, error) {
			if v, ok := r.Secrets()[ref]; ok {
				return v, nil
			}
			return "", errors.New("no such secret")
		},
	})
}

// within is a context for one step.
func (r *rig) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), d)
	r.Cleanup(cancel)
	return ctx
}

// spec names the queue as it is.
func (r *rig) spec(change func(*specT, *sourceT)) *specT {
	return spec(func(s *specT, in *sourceT) {
		in.Queue = r.queue
		if change != nil {
			change(s, in)
		}
	})
}

func (r *rig) plan(change func(*specT, *sourceT)) brokers.Plan {
	r.Helper()
	plan, faults := Driver{}.Parse(r.spec(change))
	if len(faults) > 0 {
		r.Fatal(faults)
	}
	return plan
}

func (r *rig) subscribe(change func(*specT, *sourceT)) brokers.Subscription {
	r.Helper()
	sub, err := r.conn.Subscribe(r.within(patience), r.plan(change).Source, nil)
	must(r, err)
	return sub
}

func prefetch(n int32) func(*specT, *sourceT) {
	return func(_ *specT, in *sourceT) { in.Prefetch = &n }
}

// publish adds bodies 1 to n.
func (r *rig) publish(n int) {
	r.Helper()
	ms := make([]brokertest.Message, n)
	for i := range ms {
		ms[i].Body = fmt.Append(nil, i+1)
	}
	must(r, r.Publish(r.within(patience), r.spec(nil), ms))
}

// receive collects n deliveries.
func (r *rig) receive(sub brokers.Subscription, n int) []brokers.Delivery {
	r.Helper()
	got := make([]brokers.Delivery, 0, n)
	for len(got) < n {
		ds, err := sub.Receive(r.within(patience), brokers.Credit{Messages: n - len(got), Bytes: 64 << 20})
		must(r, err)
		got = append(got, ds...)
	}
	return got
}

func (r *rig) settle(sub brokers.Subscription, o brokers.Outcome, ds []brokers.Delivery) {
	r.Helper()
	must(r, sub.Settle(r.within(patience), settlements(o, ds)))
}

func settlements(o brokers.Outcome, ds []brokers.Delivery) []brokers.Settlement {
	list := make([]brokers.Settlement, len(ds))
	for i := range ds {
		list[i] = brokers.Settlement{Delivery: &ds[i], Outcome: o}
	}
	return list
}

func pointers(ds []brokers.Delivery) []*brokers.Delivery {
	out := make([]*brokers.Delivery, len(ds))
	for i := range ds {
		out[i] = &ds[i]
	}
	return out
}

// close closes within a few seconds, and demands that the broker confirmed.
func (r *rig) close(sub brokers.Subscription, ds []brokers.Delivery) brokers.Report {
	r.Helper()
	rep, err := sub.Close(r.within(patience), pointers(ds))
	must(r, err)
	if !rep.Released || rep.Unconfirmed != 0 {
		r.Errorf("the broker did not confirm: %+v", rep)
	}
	return rep
}

// broke waits for the end of a subscription and demands its class.
func (r *rig) broke(sub brokers.Subscription, want brokers.Class) error {
	r.Helper()
	for {
		_, err := sub.Receive(r.within(patience), brokers.Credit{Messages: 1000, Bytes: 1 << 30})
		if err == nil {
			continue
		}
		if got := brokers.ClassOf(err); got != want {
			r.Errorf("class %v, want %v: %v", got, want, err)
		}
		return err
	}
}

// remains demands that so many messages are not acked.
func (r *rig) remains(queue string, want int64) {
	r.Helper()
	got, err := r.count(r.within(patience), queue)
	must(r, err)
	if got != want {
		r.Errorf("%d messages remain in %s, want %d", got, queue, want)
	}
}
