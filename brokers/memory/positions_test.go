package memory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// member observes a subscription of a queue with partitions.
type member struct {
	mu       sync.Mutex
	assigned []bool
	revoke   func(context.Context, []*brokers.Origin)
}

func (m *member) Revoke(ctx context.Context, origins []*brokers.Origin) {
	if m.revoke != nil {
		m.revoke(ctx, origins)
	}
}

func (m *member) Condition(c supervisorv1.ConditionType, on bool, _ string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c == supervisorv1.ConditionType_CONDITION_TYPE_ASSIGNED {
		m.assigned = append(m.assigned, on)
	}
}

func (m *member) last() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.assigned) > 0 && m.assigned[len(m.assigned)-1]
}

func join(t *testing.T, b *memory.Broker, m *member) brokers.Subscription {
	t.Helper()
	p, _ := (&memory.Driver{Broker: b}).Parse(specOf("main", "q"))
	s, err := open(t, b, "main").Subscribe(context.Background(), p.Source, m)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A position moves over what is acked without a gap, and no further.
func TestCommitted(t *testing.T) {
	b := memory.NewBroker(memory.Options{})
	fill(t, b, memory.QueueOptions{Partitions: 1}, 6)
	s := subscribe(t, b, "main", "q")
	ds := receive(t, s, 6)
	for _, step := range []struct{ ack, committed int64 }{{3, 0}, {1, 0}, {0, 2}, {5, 2}, {2, 4}} {
		settle(t, s, brokers.Ack, ds[step.ack])
		if got := b.Committed("q"); got[0] != step.committed {
			t.Errorf("after acking %d the position is %d, want %d", step.ack, got[0], step.committed)
		}
	}
	if d := b.Depth("q"); d.Unacked != 1 || d.Waiting != 0 {
		t.Errorf("depth %+v", d)
	}
	rep, err := s.Close(context.Background(), ds[4:5])
	if want := (brokers.Report{Returned: 1, WillRepeat: 1, Released: true}); err != nil || rep != want {
		t.Errorf("close reports %+v, %v", rep, err)
	}
	again := receive(t, subscribe(t, b, "main", "q"), 2)
	if got := ids(again); !slices.Equal(got, []string{"m4", "m5"}) {
		t.Errorf("after the position %v", got)
	}
}

// A member that does not let go in time loses its partitions all the same, and a
// commit that was on its way arrives first.
func TestRevokeTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker(memory.Options{})
		fill(t, b, memory.QueueOptions{Partitions: 2, RevokeTimeout: 3 * time.Second}, 0)
		for i := range 10 {
			if err := b.Publish("q", memory.Message{ID: fmt.Sprintf("m%d", i)}); err != nil {
				t.Fatal(err)
			}
		}
		var asked time.Duration
		stubborn := &member{revoke: func(ctx context.Context, _ []*brokers.Origin) {
			began := time.Now()
			<-ctx.Done()
			asked = time.Since(began)
		}}
		s := join(t, b, stubborn)
		ds := receive(t, s, 10)
		b.Delay(memory.OpSettle, time.Second)
		moving := slices.DeleteFunc(slices.Clone(ds), func(d *brokers.Delivery) bool { return d.Origin.Name != "q/1" })
		next := &member{}
		s2 := join(t, b, next)
		settle(t, s, brokers.Ack, moving[0])
		again := receive(t, s2, 4)
		if asked != 3*time.Second {
			t.Errorf("Revoke was cut off after %v", asked)
		}
		if got := ids(again); !slices.Equal(got, ids(moving[1:])) {
			t.Errorf("the next member got %v, want %v", got, ids(moving[1:]))
		}
		if again[0].Origin.Index != 0 || again[0].Origin == moving[0].Origin {
			t.Errorf("the origin of the next member is %+v", again[0].Origin)
		}
		settle(t, s, brokers.Ack, moving[1:]...)
		rep, err := s.Close(context.Background(), nil)
		if err != nil || rep.OwnershipLost != 4 {
			t.Errorf("close reports %+v, %v", rep, err)
		}
		if !next.last() {
			t.Error("the next member was not told that it has partitions")
		}
		if _, err := s2.Close(context.Background(), nil); err != nil {
			t.Error(err)
		}
	})
}

// Rebalance asks even the only member, which gets its partitions again; Redeliver
// asks nobody.
func TestRebalanceAndRedeliver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker(memory.Options{})
		fill(t, b, memory.QueueOptions{Partitions: 3}, 9)
		asked := 0
		m := &member{revoke: func(_ context.Context, origins []*brokers.Origin) { asked += len(origins) }}
		s := join(t, b, m)
		first := receive(t, s, 9)
		if err := b.Rebalance("q"); err != nil {
			t.Fatal(err)
		}
		second := receive(t, s, 9)
		if asked != 3 {
			t.Errorf("asked for %d partitions, want 3", asked)
		}
		if err := b.Redeliver("q"); err != nil {
			t.Fatal(err)
		}
		third := receive(t, s, 9)
		if asked != 3 {
			t.Errorf("Redeliver asked for %d partitions", asked-3)
		}
		settle(t, s, brokers.Ack, first...)
		settle(t, s, brokers.Ack, second...)
		settle(t, s, brokers.Ack, third...)
		rep, err := s.Close(context.Background(), nil)
		if err != nil || rep.OwnershipLost != 18 {
			t.Errorf("close reports %+v, %v", rep, err)
		}
		if got := b.Committed("q"); !slices.Equal(got, []int64{3, 3, 3}) {
			t.Errorf("committed %v", got)
		}
	})
}

// What the driver has taken of a partition that is asked for goes back before
// Revoke, and is not received any more.
func TestRevokeTakesTheBuffer(t *testing.T) {
	for range 1000 {
		buffered := false
		synctest.Test(t, func(t *testing.T) { buffered = revokeBuffered(t) })
		if buffered {
			return
		}
	}
	t.Error("no Receive ever ended in the moment in which something came")
}

// revokeBuffered tells whether it could leave something in the driver's buffer.
func revokeBuffered(t *testing.T) bool {
	b := memory.NewBroker(memory.Options{})
	fill(t, b, memory.QueueOptions{Partitions: 2}, 0)
	var during memory.Depth
	s := join(t, b, &member{revoke: func(context.Context, []*brokers.Origin) { during = b.Depth("q") }})
	ctx, cancel := context.WithCancelCause(context.Background())
	received := make(chan error)
	go func() {
		_, err := s.Receive(ctx, brokers.Credit{Messages: 4, Bytes: 1})
		received <- err
	}()
	synctest.Wait()
	cancel(nil) // and in the same moment:
	if err := b.Publish("q", make([]memory.Message, 4)...); err != nil {
		t.Fatal(err)
	}
	if err := <-received; err == nil || b.Depth("q").Unacked == 0 {
		return false
	}
	if err := b.Rebalance("q"); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	if want := (memory.Depth{Waiting: 4, Members: 1}); during != want {
		t.Errorf("during Revoke the depth is %+v", during)
	}
	receive(t, s, 4)
	if err := b.Misuse(); err != nil {
		t.Error(err)
	}
	return true
}

// Close during a Revoke ends it and leaves no goroutine.
func TestCloseDuringRevoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker(memory.Options{})
		fill(t, b, memory.QueueOptions{Partitions: 1, RevokeTimeout: time.Hour}, 1)
		ended := false
		s := join(t, b, &member{revoke: func(ctx context.Context, _ []*brokers.Origin) {
			<-ctx.Done()
			ended = true
		}})
		ds := receive(t, s, 1)
		if err := b.Rebalance("q"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		began := time.Now()
		rep, err := s.Close(context.Background(), ds)
		if err != nil || rep.Returned != 1 || !rep.Released || !ended || time.Since(began) != 0 {
			t.Errorf("close reports %+v, %v after %v; Revoke ended: %v", rep, err, time.Since(began), ended)
		}
		if d := b.Depth("q"); d.Waiting != 1 || d.Unacked != 0 || d.Members != 0 {
			t.Errorf("depth %+v", d)
		}
	})
}

// Close ends a Revoke at once, even when the broker does not answer.
func TestCloseDuringRevokeOfAFrozenLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker(memory.Options{})
		fill(t, b, memory.QueueOptions{Partitions: 1, RevokeTimeout: time.Hour}, 1)
		began, took := time.Now(), time.Hour
		s := join(t, b, &member{revoke: func(ctx context.Context, _ []*brokers.Origin) {
			<-ctx.Done()
			took = time.Since(began)
		}})
		if err := b.Rebalance("q"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.Freeze()
		ctx, cancel := within(time.Second)
		defer cancel()
		if rep, err := s.Close(ctx, nil); !errors.Is(err, context.DeadlineExceeded) || rep.Released {
			t.Errorf("close reports %+v, %v", rep, err)
		}
		synctest.Wait()
		if took != 0 {
			t.Errorf("Revoke ended %v after Close began", took)
		}
		b.Thaw()
		if d := b.Depth("q"); d.Waiting != 1 || d.Members != 0 {
			t.Errorf("after the thaw the depth is %+v", d)
		}
	})
}
