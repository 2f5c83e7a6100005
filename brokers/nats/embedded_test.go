package nats

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

func embeddedConn(listen string) *supervisorv1.Connection {
	return &supervisorv1.Connection{Name: "inside", Broker: &supervisorv1.Connection_Nats{
		Nats: &supervisorv1.NatsConnection{Embedded: true, Listen: listen},
	}}
}

func embeddedPlan(t *testing.T) brokers.Plan {
	t.Helper()
	plan, faults := Driver{}.Parse(spec(func(_ *supervisorv1.ConsumerSpec, n *supervisorv1.NatsSource) {
		n.FilterSubjects, n.Missing = []string{"orders.new", "orders.dead"}, supervisorv1.Missing_MISSING_CREATE
	}))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return plan
}

// The embedded server keeps messages and positions from one opening to the next,
// listens where it is told, and leaves nothing running.
func TestEmbedded(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	env := brokers.Env{DataDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	addr := freeAddr(t)
	plan := embeddedPlan(t)
	for round := range 2 {
		conn, err := Driver{}.Open(ctx, embeddedConn(addr), env)
		must(t, err)
		sub, err := conn.Subscribe(ctx, plan.Source, nil)
		must(t, err)
		if round == 0 {
			must(t, conn.Publish(ctx, []brokers.Publication{
				{Target: subject("orders.new"), Body: []byte("one")}, {Target: subject("orders.new"), Body: []byte("two")},
			}))
		}
		ds, err := sub.Receive(ctx, brokers.Credit{Messages: 1, Bytes: 1 << 20})
		must(t, err)
		if want := []string{"one", "two"}[round]; string(ds[0].Body) != want || ds[0].Position != int64(round+1) {
			t.Fatalf("round %d: got %s %q", round, ds[0].ID(), ds[0].Body)
		}
		must(t, sub.Settle(ctx, settlements(brokers.Ack, ds)))
		rep, err := sub.Close(ctx, nil)
		must(t, err)
		if !rep.Released {
			t.Errorf("round %d: %+v", round, rep)
		}
		beside, err := nats.Connect("nats://" + addr)
		must(t, err)
		beside.Close()
		must(t, conn.Close(ctx))
	}
}

func TestEmbeddedFaults(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := Driver{}.Open(ctx, embeddedConn(""), brokers.Env{})
	if brokers.ClassOf(err) != brokers.Refused {
		t.Errorf("without a data directory: %v", err)
	}
	ended, end := context.WithCancelCause(ctx)
	end(errors.New("enough"))
	began := time.Now()
	if _, err := (Driver{}).Open(ended, embeddedConn(""), brokers.Env{DataDir: t.TempDir()}); err == nil {
		t.Error("opened in a context that had ended")
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}
