package nats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// patience bounds what must happen; it is long because the machine may be busy.
const patience = 30 * time.Second

// rig is a harness with one stream, S, and one connection of the driver.
type rig struct {
	*testing.T
	*harness

	conn brokers.Conn
	log  *logs

	mu      sync.Mutex
	secrets map[string]string
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

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newRig(t *testing.T) *rig {
	t.Helper()
	h := newHarness(t, true)
	r := &rig{T: t, harness: h, log: &logs{}, secrets: h.Secrets()}
	must(t, h.client(func(_ *nats.Conn, js jetstream.JetStream) error {
		return makeStream(t.Context(), js, "S", "s.>")
	}))
	conn, err := r.open(h.Connection(true))
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
		DataDir: r.TempDir(),
		Log:     slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Secret: func(ref string) (string, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if v, ok := r.secrets[ref]; ok {
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

// plan parses a spec of stream S.
func (r *rig) plan(change func(*supervisorv1.ConsumerSpec, *supervisorv1.NatsSource)) brokers.Plan {
	r.Helper()
	plan, faults := Driver{}.Parse(spec(func(s *supervisorv1.ConsumerSpec, n *supervisorv1.NatsSource) {
		n.Stream, n.Durable, n.FilterSubjects = "S", "worker", []string{"s.in"}
		n.AckWait = durationpb.New(5 * time.Second)
		if change != nil {
			change(s, n)
		}
	}))
	if len(faults) > 0 {
		r.Fatal(faults)
	}
	return plan
}

func (r *rig) subscribe(change func(*supervisorv1.ConsumerSpec, *supervisorv1.NatsSource)) brokers.Subscription {
	r.Helper()
	sub, err := r.conn.Subscribe(r.within(patience), r.plan(change).Source, nil)
	must(r, err)
	return sub
}

// publish stores bodies one to n, of at least this size.
func (r *rig) publish(n, size int) {
	r.Helper()
	must(r, r.client(func(_ *nats.Conn, js jetstream.JetStream) error {
		for i := range n {
			body := fmt.Appendf(make([]byte, 0, size+8), "%d", i+1)
			if _, err := js.PublishAsync("s.in", append(body, make([]byte, size)...), jetstream.WithStallWait(patience)); err != nil {
				return err
			}
		}
		<-js.PublishAsyncComplete()
		return nil
	}))
}

// receive collects n deliveries.
func (r *rig) receive(sub brokers.Subscription, n int) []brokers.Delivery {
	r.Helper()
	var got []brokers.Delivery
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

func refs(ds []brokers.Delivery) []*brokers.Delivery {
	list := make([]*brokers.Delivery, len(ds))
	for i := range ds {
		list[i] = &ds[i]
	}
	return list
}

// info asks the server about the durable.
func (r *rig) info() *jetstream.ConsumerInfo {
	r.Helper()
	var info *jetstream.ConsumerInfo
	must(r, r.client(func(_ *nats.Conn, js jetstream.JetStream) error {
		c, err := js.Consumer(r.within(patience), "S", "worker")
		if err == nil {
			info = c.CachedInfo()
		}
		return err
	}))
	return info
}

// clean demands that the server waits for nothing and remembers no pull.
func (r *rig) clean() {
	r.Helper()
	if i := r.info(); i.NumAckPending != 0 || i.NumWaiting != 0 || i.NumPending != 0 {
		r.Errorf("%d unacknowledged, %d pulls, %d undelivered at the server, want none", i.NumAckPending, i.NumWaiting, i.NumPending)
	}
}

// class demands an error of a class.
func (r *rig) class(what string, err error, want brokers.Class) {
	r.Helper()
	if got := brokers.ClassOf(err); got != want {
		r.Fatalf("%s: class %v, want %v: %v", what, got, want, err)
	}
}

// breaks waits until the connection's loss has ended a subscription.
func (r *rig) breaks(sub brokers.Subscription) {
	r.Helper()
	for {
		_, err := sub.Receive(r.within(patience), brokers.Credit{Messages: 1, Bytes: 1})
		if err != nil {
			r.class("Receive", err, brokers.Unreachable)
			return
		}
	}
}

// up waits until the connection is up.
func (r *rig) up() {
	r.Helper()
	poll(r, patience, "the connection is back", func() bool { return r.conn.Err() == nil })
}

func (r *rig) down() {
	r.Helper()
	poll(r, patience, "the connection is down", func() bool { return r.conn.Err() != nil })
}
