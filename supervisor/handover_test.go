package supervisor_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

// Of a queue with a single active consumer the next one goes on where the first
// ended, whichever verb ended it, and a verb that is taken back changes nothing.
func TestSingleActiveHandsOverInOrder(t *testing.T) {
	for _, v := range []pb.Verb{pb.Verb_VERB_PAUSE, pb.Verb_VERB_STOP, pb.Verb_VERB_DRAIN, pb.Verb_VERB_KILL} {
		t.Run(v.String(), func(t *testing.T) {
			inBubble(t, func(r *rig) { handOver(t, r, v) })
		})
	}
}

func handOver(t *testing.T, r *rig, v pb.Verb) {
	const n = 60
	var mu sync.Mutex
	var order []string
	r.handle = func(ctx context.Context, m *supervisor.Message) supervisor.Outcome {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return supervisor.Retry(ctx.Err())
		}
		mu.Lock()
		defer mu.Unlock()
		order = append(order, string(m.Body))
		return supervisor.Ack()
	}
	want := r.twoOnOneQueue(n)
	handled := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(order)
	}
	r.until("some are handled", func() bool { return handled() >= 5 })
	if v == pb.Verb_VERB_PAUSE { // and, overtaken, once before
		r.do(v, "first")
		r.do(pb.Verb_VERB_RESUME, "first")
		r.await("first", pb.State_STATE_RUNNING)
		at := handled()
		r.until("the first goes on", func() bool { return handled() >= at+3 })
	}
	res := r.do(v, "first")
	rc := r.receipt("first", res.GetOperation())
	if rc.GetOutcome() != pb.ReceiptOutcome_RECEIPT_OUTCOME_CLEAN {
		t.Errorf("receipt %v", rc)
	}
	r.until("the second ends it", func() bool { return handled() >= n })
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(order, want) {
		t.Errorf("handled in the order %v", order)
	}
}

// twoOnOneQueue lets the consumers first and second share a queue of n messages,
// and returns their bodies.
func (r *rig) twoOnOneQueue(n int) (bodies []string) {
	if err := r.broker.Create("q", memory.QueueOptions{SingleActive: true, LeaveOnHold: true, Prefetch: 10}); err != nil {
		r.t.Fatal(err)
	}
	for i := range n {
		bodies = append(bodies, fmt.Sprintf("%03d", i))
		if err := r.broker.Publish("q", memory.Message{Body: []byte(bodies[i])}); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, name := range []string{"first", "second"} {
		r.apply(newSpec(name, func(s *pb.ConsumerSpec) {
			s.Source = &pb.Source{Connection: "main", Broker: &pb.Source_Memory{Memory: &pb.MemorySource{Queue: "q"}}}
			s.Concurrency = new(int32(1))
		}))
		r.await(name, pb.State_STATE_RUNNING)
	}
	return bodies
}

// A pause that would destroy what waits is refused, with the reason, until the
// consumer has no subscription; every other verb works.
func TestPauseThatWouldDestroyIsRefused(t *testing.T) {
	inBubble(t, func(r *rig) {
		if err := r.broker.Create("c0", memory.QueueOptions{NoPause: "the queue would go"}); err != nil {
			t.Fatal(err)
		}
		r.apply(newSpec("c0"))
		r.await("c0", pb.State_STATE_RUNNING)
		for _, try := range []func() error{
			func() error { _, err := r.try(pb.Verb_VERB_PAUSE, "c0"); return err },
			func() error {
				_, err := r.try(pb.Verb_VERB_DRAIN, "c0", func(c *supervisor.Command) { c.Then = pb.DrainThen_DRAIN_THEN_PAUSED })
				return err
			},
		} {
			err := try()
			if reasonOf(err) != pb.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED || !strings.Contains(err.Error(), "the queue would go") {
				t.Errorf("%v", err)
			}
		}
		r.await("c0", pb.State_STATE_RUNNING)
		r.do(pb.Verb_VERB_STOP, "c0")
		r.await("c0", pb.State_STATE_STOPPED)
		r.do(pb.Verb_VERB_PAUSE, "c0") // a start ends PAUSED, without a subscription
	})
}
