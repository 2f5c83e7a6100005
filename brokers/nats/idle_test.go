package nats

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// What an idle subscription costs, client included: its pull is open at the
// server. The bounds are half of what a consumer may cost, and leave the rest to
// the core.
func TestIdleCost(t *testing.T) {
	const (
		subscriptions = 300
		mostKiB       = 14
		mostRoutines  = 1
	)
	r := newRig(t)
	must(t, r.client(func(_ *nats.Conn, js jetstream.JetStream) error { return makeStream(t.Context(), js, "I", "i") }))
	subs := make([]brokers.Subscription, 0, subscriptions+1)
	add := func(i int) {
		plan := r.plan(func(_ *supervisorv1.ConsumerSpec, n *supervisorv1.NatsSource) {
			n.Stream, n.Durable, n.FilterSubjects = "I", fmt.Sprintf("c%d", i), nil
		})
		sub, err := r.conn.Subscribe(r.within(patience), plan.Source, nil)
		must(t, err)
		_, _ = sub.Receive(r.within(time.Millisecond), brokers.Credit{Messages: 100, Bytes: 64 << 20})
		subs = append(subs, sub)
	}
	add(0) // what all share
	bytes, routines := footprint()
	for i := range subscriptions {
		add(i + 1)
	}
	after, now := footprint()
	kib, each := float64(after-bytes)/subscriptions/1024, float64(now-routines)/subscriptions
	t.Logf("%.1f KiB and %.2f goroutines per idle subscription", kib, each)
	if kib > mostKiB || each > mostRoutines+0.05 {
		t.Errorf("want at most %d KiB and %d goroutine", mostKiB, mostRoutines)
	}
	for _, sub := range subs {
		if _, err := sub.Hold(r.within(patience), nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, held := footprint(); float64(held-routines)/subscriptions > 0.05 {
		t.Errorf("%d goroutines while all are held, %d before", held, routines)
	}
	for _, sub := range subs {
		_, err := sub.Close(r.within(patience), nil)
		must(t, err)
	}
}

// footprint is what is live after a collection.
func footprint() (bytes int64, goroutines int) {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse), runtime.NumGoroutine()
}
