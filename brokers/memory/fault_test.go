package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
)

// fill makes a queue with messages m0, m1 ...
func fill(t *testing.T, b *memory.Broker, o memory.QueueOptions, n int) {
	t.Helper()
	if err := b.Create("q", o); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := b.Publish("q", memory.Message{ID: fmt.Sprintf("m%d", i)}); err != nil {
			t.Fatal(err)
		}
	}
}

// receive takes n messages at once.
func receive(t *testing.T, s brokers.Subscription, n int) []*brokers.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	batch, err := s.Receive(ctx, brokers.Credit{Messages: n, Bytes: 1 << 20})
	if err != nil || len(batch) != n {
		t.Fatalf("received %d of %d: %v", len(batch), n, err)
	}
	ds := make([]*brokers.Delivery, n)
	for i := range batch {
		ds[i] = &batch[i]
	}
	return ds
}

func settle(t *testing.T, s brokers.Subscription, o brokers.Outcome, ds ...*brokers.Delivery) {
	t.Helper()
	if err := s.Settle(context.Background(), settlements(o, ds...)); err != nil {
		t.Fatal(err)
	}
}

func settlements(o brokers.Outcome, ds ...*brokers.Delivery) []brokers.Settlement {
	st := make([]brokers.Settlement, len(ds))
	for i, d := range ds {
		st[i] = brokers.Settlement{Delivery: d, Outcome: o}
	}
	return st
}

func ids(ds []*brokers.Delivery) []string {
	var out []string
	for _, d := range ds {
		out = append(out, d.ID())
	}
	return out
}

func within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

// An ack that is on its way when the connection is cut is lost, told as
// unconfirmed, and its message comes again.
func TestCutLosesAcks(t *testing.T) {
	for arrived := range 3 {
		synctest.Test(t, func(t *testing.T) {
			b := memory.NewBroker(memory.Options{})
			fill(t, b, memory.QueueOptions{}, 2)
			s := subscribe(t, b, "main", "q")
			b.Delay(memory.OpSettle, time.Second)
			ds := receive(t, s, 2)
			settle(t, s, brokers.Ack, ds[0])
			settle(t, s, brokers.Ack, ds[1])
			if got := b.Acked("q"); len(got) != 0 {
				t.Fatalf("acks arrived early: %v", got)
			}
			b.CutAfter(arrived)
			b.Heal()
			rep, err := s.Close(context.Background(), nil)
			if err != nil || rep.Unconfirmed != 2 || rep.Released {
				t.Errorf("the report is %+v, %v", rep, err)
			}
			if got := b.Acked("q"); !slices.Equal(got, ids(ds)[:arrived]) {
				t.Errorf("acked %v, want the first %d", got, arrived)
			}
			if d := b.Depth("q"); d.Waiting != int64(2-arrived) || d.Unacked != 0 {
				t.Errorf("depth %+v", d)
			}
		})
	}
}

// A slow give-back outlasts the context of its Hold, and arrives all the same.
func TestSlowGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker(memory.Options{})
		fill(t, b, memory.QueueOptions{}, 3)
		s := subscribe(t, b, "main", "q")
		ds := receive(t, s, 3)
		b.Delay(memory.OpHold, 5*time.Second)
		b.Delay(memory.OpSettle, 2*time.Second)
		settle(t, s, brokers.Ack, ds[0])
		ctx, cancel := within(time.Second)
		defer cancel()
		rep, err := s.Hold(ctx, ds[1:])
		want := brokers.Report{Returned: 2, Unconfirmed: 1}
		if !errors.Is(err, context.DeadlineExceeded) || rep != want {
			t.Errorf("hold reports %+v, %v", rep, err)
		}
		if d := b.Depth("q"); d.Unacked != 3 {
			t.Errorf("depth %+v before anything arrived", d)
		}
		began := time.Now()
		rep, err = s.Hold(context.Background(), nil)
		if want = (brokers.Report{Released: true}); err != nil || rep != want {
			t.Errorf("the second hold reports %+v, %v", rep, err)
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("the second hold took %v", took)
		}
		if d := b.Depth("q"); d.Unacked != 0 || d.Waiting != 2 {
			t.Errorf("depth %+v", d)
		}
	})
}

// The broker takes away what a frozen link cannot keep alive and gives it to
// another; what the first one says of it later has no effect.
func TestAckTimeoutOfAFrozenLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker(memory.Options{})
		fill(t, b, memory.QueueOptions{AckTimeout: 10 * time.Second}, 2)
		s, other := subscribe(t, b, "a", "q"), subscribe(t, b, "b", "q")
		ds := receive(t, s, 2)
		ctx, cancel := within(time.Minute)
		defer cancel()
		if _, err := other.Receive(ctx, brokers.Credit{Messages: 2, Bytes: 1}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a live link lost its messages: %v", err)
		}
		b.Freeze("a")
		began := time.Now()
		again := receive(t, other, 2)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("taken away after %v", took)
		}
		settle(t, s, brokers.Ack, ds...)
		b.Thaw("a")
		rep, err := s.Hold(context.Background(), nil)
		if err != nil || rep.OwnershipLost != 2 {
			t.Errorf("hold reports %+v, %v", rep, err)
		}
		if got := b.Acked("q"); len(got) != 0 {
			t.Errorf("late acks counted: %v", got)
		}
		settle(t, other, brokers.Ack, again...)
		if again[0].Redelivered != 1 || len(b.Acked("q")) != 2 {
			t.Errorf("redelivered %d, acked %v", again[0].Redelivered, b.Acked("q"))
		}
	})
}

// A failure that comes after the deed looks the same to the caller.
func TestFailures(t *testing.T) {
	ctx := context.Background()
	dead := []brokers.Publication{{Target: memory.Target("q"), Body: []byte("x")}}
	for _, done := range []bool{false, true} {
		b := memory.NewBroker(memory.Options{})
		fill(t, b, memory.QueueOptions{}, 0)
		c := open(t, b, "main")
		b.Fail(memory.Failure{Op: memory.OpPublish, Times: 2, Class: brokers.Transient, Done: done})
		for range 2 {
			if err := c.Publish(ctx, dead); brokers.ClassOf(err) != brokers.Transient {
				t.Errorf("publish: %v", err)
			}
		}
		if err := c.Publish(ctx, dead); err != nil {
			t.Errorf("the third publish fails too: %v", err)
		}
		want := int64(1)
		if done {
			want = 3
		}
		if d := b.Depth("q"); d.Waiting != want {
			t.Errorf("done %v: %d stored, want %d", done, d.Waiting, want)
		}
		s := subscribe(t, b, "main", "q")
		ds := receive(t, s, int(want))
		b.Fail(memory.Failure{Op: memory.OpSettle, Times: 1, Class: brokers.Transient, Done: done})
		if err := s.Settle(ctx, settlements(brokers.Ack, ds...)); brokers.ClassOf(err) != brokers.Transient {
			t.Errorf("settle: %v", err)
		}
		if acked := len(b.Acked("q")); acked != len(ds) && done || acked != 0 && !done {
			t.Errorf("done %v: %d of %d acked", done, acked, len(ds))
		}
		if err := s.Settle(ctx, nil); brokers.ClassOf(err) != brokers.Fenced {
			t.Errorf("settle after a failure: %v", err)
		}
	}
}

// A settlement whose answer alone is lost arrives, with all that was sent before,
// however slow the link is.
func TestLostAnswerOnSlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker(memory.Options{})
		fill(t, b, memory.QueueOptions{}, 2)
		s := subscribe(t, b, "main", "q")
		ds := receive(t, s, 2)
		b.Delay(memory.OpSettle, time.Hour)
		settle(t, s, brokers.Ack, ds[0])
		b.Fail(memory.Failure{Op: memory.OpSettle, Times: 1, Class: brokers.Unreachable, Done: true})
		if err := s.Settle(context.Background(), settlements(brokers.Ack, ds[1])); brokers.ClassOf(err) != brokers.Unreachable {
			t.Errorf("settle: %v", err)
		}
		if got := b.Acked("q"); !slices.Equal(got, ids(ds)) {
			t.Errorf("acked %v", got)
		}
		if rep, err := s.Close(context.Background(), nil); err != nil || rep.Unconfirmed != 1 {
			t.Errorf("close reports %+v, %v", rep, err)
		}
	})
}

// Each call fails once with the class injected, and those of a subscription end it.
func TestFailureEndsSubscription(t *testing.T) {
	ctx := context.Background()
	one := brokers.Credit{Messages: 1, Bytes: 1}
	calls := map[memory.Op]func(brokers.Subscription) error{
		memory.OpReceive: func(s brokers.Subscription) error { _, err := s.Receive(ctx, one); return err },
		memory.OpSettle:  func(s brokers.Subscription) error { return s.Settle(ctx, nil) },
		memory.OpHold:    func(s brokers.Subscription) error { _, err := s.Hold(ctx, nil); return err },
		memory.OpFlow:    func(s brokers.Subscription) error { return s.Flow(ctx) },
		memory.OpClose:   func(s brokers.Subscription) error { _, err := s.Close(ctx, nil); return err },
		memory.OpLag:     func(s brokers.Subscription) error { _, err := s.Lag(ctx); return err },
	}
	for op, call := range calls {
		b := memory.NewBroker(memory.Options{})
		fill(t, b, memory.QueueOptions{}, 2)
		s := subscribe(t, b, "main", "q")
		receive(t, s, 1)
		b.Fail(memory.Failure{Op: op, Times: 1, Class: brokers.Lost})
		if err := call(s); brokers.ClassOf(err) != brokers.Lost {
			t.Errorf("%v: %v", op, err)
		}
		_, err := s.Receive(ctx, one)
		if lives := err == nil; lives != (op == memory.OpLag) {
			t.Errorf("after a failed %v Receive returns %v", op, err)
		}
		if d := b.Depth("q"); op != memory.OpLag && d.Waiting != 2 {
			t.Errorf("after a failed %v: %+v", op, d)
		}
	}
}

// Misuse tells what a caller may not do.
func TestMisuse(t *testing.T) {
	b := memory.NewBroker(memory.Options{})
	fill(t, b, memory.QueueOptions{}, 2)
	s, other := subscribe(t, b, "main", "q"), subscribe(t, b, "main", "q")
	ds := receive(t, s, 2)
	if err := b.Misuse(); err != nil {
		t.Fatal(err)
	}
	settle(t, s, brokers.Ack, ds[0])
	settle(t, s, brokers.Ack, ds[0])
	settle(t, other, brokers.Ack, ds[1])
	if got := b.Acked("q"); len(got) != 1 {
		t.Errorf("acked %v", got)
	}
	if err := b.Misuse(); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("want two misuses, got: %v", err)
	}
}

// Chaos ends healed, and everything is still there.
func TestTroubleHeals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		b := memory.NewBroker(memory.Options{})
		fill(t, b, memory.QueueOptions{}, 10)
		ctx, cancel := within(10 * time.Minute)
		defer cancel()
		happened := b.Trouble(ctx, rand.New(rand.NewPCG(seed, 0)), memory.Chaos{Latency: time.Second, Queues: []string{"q"}})
		for _, kind := range []string{"cut", "blink", "freeze", "lose", "fail", "slow", "redeliver"} {
			if happened[kind] == 0 {
				t.Errorf("%s never happened: %v", kind, happened)
			}
		}
		if happened["rebalance"] != 0 {
			t.Errorf("a queue without partitions was rebalanced: %v", happened)
		}
		began := time.Now()
		s := subscribe(t, b, "main", "q")
		settle(t, s, brokers.Ack, receive(t, s, 10)...)
		if _, err := s.Close(context.Background(), nil); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 0 || len(b.Acked("q")) != 10 {
			t.Errorf("after the trouble: %v for %v", took, b.Acked("q"))
		}
	})
}
