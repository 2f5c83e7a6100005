package memory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
)

// Waiting consumers share what comes, each within its credit, in turn.
func TestWaitersShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker(memory.Options{})
		fill(t, b, memory.QueueOptions{}, 0)
		const n = 3
		got := make(chan int, n)
		for k := range n {
			s := subscribe(t, b, "main", "q")
			go func() {
				for range 2 {
					batch, err := s.Receive(context.Background(), brokers.Credit{Messages: 2, Bytes: 1})
					if err != nil || len(batch) != 2 {
						t.Errorf("consumer %d received %d: %v", k, len(batch), err)
					}
					got <- k
				}
			}()
			synctest.Wait()
		}
		for range 2 {
			if err := b.Publish("q", make([]memory.Message, 2*n)...); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			served := make(map[int]bool)
			for range n {
				served[<-got] = true
			}
			if len(served) != n {
				t.Errorf("served: %v, want each of %d once", served, n)
			}
		}
	})
}

// A single active consumer is followed by the next when it leaves, or is held
// where holding means leaving; coming back it is the last in line.
func TestSingleActive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker(memory.Options{})
		fill(t, b, memory.QueueOptions{SingleActive: true, LeaveOnHold: true}, 6)
		first, second := subscribe(t, b, "main", "q"), subscribe(t, b, "main", "q")
		idle := func(s brokers.Subscription) {
			t.Helper()
			ctx, cancel := within(time.Second)
			defer cancel()
			if batch, err := s.Receive(ctx, brokers.Credit{Messages: 1, Bytes: 1}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("received %d: %v", len(batch), err)
			}
		}
		ds := receive(t, first, 2)
		idle(second)
		if _, err := first.Hold(context.Background(), ds[1:]); err != nil {
			t.Fatal(err)
		}
		if got := ids(receive(t, second, 1)); got[0] != "m1" {
			t.Errorf("the next consumer got %v", got)
		}
		if err := first.Flow(context.Background()); err != nil {
			t.Fatal(err)
		}
		idle(first)
		settle(t, first, brokers.Ack, ds[0])
		if _, err := second.Close(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		if got := ids(receive(t, first, 5)); !slices.Equal(got, []string{"m1", "m2", "m3", "m4", "m5"}) {
			t.Errorf("after the hand-over: %v", got)
		}
	})
}

// At the delivery limit a message is moved to the dead letters, or lost without a
// queue for them; give-backs count only where the queue says so.
func TestDeliveryLimit(t *testing.T) {
	for _, test := range []struct {
		counts bool
		dead   string
		want   memory.EventKind
	}{{true, "dead", memory.DeadLettered}, {true, "", memory.Dropped}, {false, "dead", memory.Returned}} {
		b := memory.NewBroker(memory.Options{})
		if err := b.Create("dead", memory.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
		fill(t, b, memory.QueueOptions{DeliveryLimit: 3, GiveBackCounts: test.counts, DeadLetter: test.dead}, 1)
		s := subscribe(t, b, "main", "q")
		for range 3 {
			settle(t, s, brokers.Release, receive(t, s, 1)...)
		}
		events := b.History("q")
		if last := events[len(events)-1]; last.Kind != test.want || last.ID != "m0" {
			t.Errorf("%+v: the last event is %v %s", test, last.Kind, last.ID)
		}
		if dead := len(b.Waiting("dead")); (dead == 1) != (test.want == memory.DeadLettered) {
			t.Errorf("%+v: %d dead letters", test, dead)
		}
		if n := b.Deliveries("q")["m0"]; n != 3 {
			t.Errorf("%d deliveries", n)
		}
	}
}

// History names messages without an id as deliveries do, and tells epochs.
func TestHistory(t *testing.T) {
	for name, o := range map[string]memory.QueueOptions{"acks": {}, "positions": {Partitions: 2}} {
		b := memory.NewBroker(memory.Options{})
		if err := b.Create("q", o); err != nil {
			t.Fatal(err)
		}
		if err := b.Publish("q", make([]memory.Message, 4)...); err != nil {
			t.Fatal(err)
		}
		s := subscribe(t, b, "main", "q")
		ds := receive(t, s, 4)
		if got := len(b.Waiting("q")); got != 0 {
			t.Errorf("%s: %d wait", name, got)
		}
		settle(t, s, brokers.Ack, ds[0])
		if _, err := s.Close(context.Background(), ds[1:]); err != nil {
			t.Fatal(err)
		}
		if got := len(b.Waiting("q")); got != 3 {
			t.Errorf("%s: %d wait", name, got)
		}
		if got := b.Acked("q"); !slices.Equal(got, ids(ds[:1])) {
			t.Errorf("%s: acked %v, want %v", name, got, ids(ds[:1]))
		}
		var got []string
		for _, e := range b.History("q") {
			if e.Kind != memory.Published {
				got = append(got, e.Kind.String())
			}
		}
		want := []string{
			"subscribed", "delivered", "delivered", "delivered", "delivered", "acked", "returned", "returned", "returned", "ended",
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: history %v", name, got)
		}
	}
}

// An endless queue keeps to the credit, counts positions, spreads over its
// partitions, and never writes to what was given back.
func TestEndless(t *testing.T) {
	b := memory.NewBroker(memory.Options{})
	o := memory.QueueOptions{Partitions: 3, Endless: []memory.Message{{ID: "a", Body: []byte("xx")}, {ID: "b", Body: []byte("yyyy")}}}
	if err := b.Create("q", o); err != nil {
		t.Fatal(err)
	}
	s := subscribe(t, b, "main", "q")
	if c := s.Capabilities(); !c.Positions || !c.Partitions || c.Lag {
		t.Errorf("capabilities %+v", c)
	}
	next := make(map[*brokers.Origin]int64)
	var kept []*brokers.Delivery
	for range 2000 {
		batch, err := s.Receive(context.Background(), brokers.Credit{Messages: 100, Bytes: 11})
		if err != nil || len(batch) > 4 {
			t.Fatalf("received %d: %v", len(batch), err)
		}
		var ds []*brokers.Delivery
		for i := range batch {
			d := &batch[i]
			if d.Position != next[d.Origin] || d.Attempt != 0 || (d.Name == "a") != (d.Size == 2) {
				t.Fatalf("delivery %+v, want position %d", d, next[d.Origin])
			}
			next[d.Origin]++
			d.Attempt = 1
			ds = append(ds, d)
		}
		if len(kept) < 50 {
			kept, ds = append(kept, ds[0]), ds[1:]
		}
		settle(t, s, brokers.Ack, ds...)
	}
	if len(next) != 3 {
		t.Errorf("%d origins", len(next))
	}
	if d := b.Depth("q"); d.Unacked != int64(len(kept)) || d.Waiting != 0 {
		t.Errorf("depth %+v", d)
	}
	seen := make(map[string]bool)
	for _, d := range kept {
		seen[fmt.Sprint(d.Origin.Index, d.Position)] = true
	}
	if len(seen) != len(kept) {
		t.Errorf("%d of %d unsettled deliveries are distinct", len(seen), len(kept))
	}
	rep, err := s.Close(context.Background(), kept)
	if err != nil || rep.Returned != len(kept) || !rep.Released {
		t.Errorf("close reports %+v, %v", rep, err)
	}
	if err := b.Misuse(); err != nil {
		t.Error(err)
	}
}
