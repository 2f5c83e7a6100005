//nolint:forbidigo // every test here runs in a bubble of virtual time
package supervisor_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"google.golang.org/protobuf/types/known/durationpb"
)

// shortLimits makes a consumer's limits a second each.
func shortLimits(s *pb.ConsumerSpec) {
	s.Handler.Timeout = durationpb.New(time.Second)
	s.Stop = &pb.Stop{Soft: durationpb.New(time.Second), Hard: durationpb.New(2 * time.Second)}
}

func slots(n int32) func(*pb.ConsumerSpec) {
	return func(s *pb.ConsumerSpec) { s.Concurrency = new(n) }
}

func byKey(s *pb.ConsumerSpec) { s.Ordering = pb.Ordering_ORDERING_KEY }

// handlings counts handler calls by message.
type handlings struct {
	mu sync.Mutex
	n  map[string]int
}

func (h *handlings) add(m *supervisor.Message) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n == nil {
		h.n = map[string]int{}
	}
	h.n[m.ID()]++
	return h.n[m.ID()]
}

func (h *handlings) of(id string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n[id]
}

func TestLateFailureOfAnAbandonedHandlerIsOnlyCounted(t *testing.T) {
	for name, late := range map[string]func() supervisor.Outcome{
		"retry":   func() supervisor.Outcome { return supervisor.Retry(errors.New("too late")) },
		"release": supervisor.Release,
		"panic":   func() supervisor.Outcome { panic("too late") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				entered, release := make(chan struct{}, 10), make(chan struct{})
				r.handle = func(context.Context, *supervisor.Message) supervisor.Outcome {
					entered <- struct{}{}
					<-release
					return late()
				}
				r.publish("q", "m", 1)
				r.apply(newSpec("q", slots(2), byKey))
				<-entered
				if n := len(r.do(pb.Verb_VERB_KILL, "q").GetReceipt().GetAbandoned()); n != 1 {
					t.Errorf("%d abandoned, want 1", n)
				}
				close(release)
				r.until("the slot is free", func() bool { return r.get("q").GetStatus().GetLeakedHandlers() == 0 })
				if k := r.get("q").GetStatus().GetCounters(); k.GetLate() != 1 || k.GetAbandoned() != 1 || k.GetAcked() != 0 {
					t.Errorf("counters %v", k)
				}
			})
		})
	}
}

func TestPauseThatReachesItsHardLimitEndsWithAReceipt(t *testing.T) {
	inBubble(t, func(r *rig) {
		entered, release := deaf(r)
		defer close(release)
		r.publish("q", "m", 3)
		r.apply(newSpec("q", shortLimits, slots(2)))
		<-entered
		<-entered
		res := r.do(pb.Verb_VERB_PAUSE, "q")
		within(t, "pause", 4*time.Second, func() { r.await("q", pb.State_STATE_PAUSED) })
		rc := r.receipt("q", res.GetOperation())
		if rc.GetOutcome() != pb.ReceiptOutcome_RECEIPT_OUTCOME_UNCLEAN || len(rc.GetAbandoned()) != 2 || !rc.GetSoftFired() ||
			!rc.GetHardFired() || rc.GetReturned() != 1 || rc.GetState() != pb.State_STATE_PAUSED {
			t.Errorf("receipt %v", rc)
		}
		wantQueue(t, r, "q", 3, 0)
	})
}

// What a broker with positions has acked above a gap repeats unless the gap is
// closed: a clean verb closes it first.
func TestPositionsFinishGapsSoThatNothingRepeats(t *testing.T) {
	for _, v := range []pb.Verb{pb.Verb_VERB_PAUSE, pb.Verb_VERB_STOP, pb.Verb_VERB_RESTART, pb.Verb_VERB_DRAIN} {
		t.Run(v.String(), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.close()
				r.jitter = func() float64 { return 0.9 }
				r.open()
				var h handlings
				r.handle = func(_ context.Context, m *supervisor.Message) supervisor.Outcome {
					if n := h.add(m); string(m.Key) == "slow" && n == 1 {
						return supervisor.Retry(errors.New("once"))
					}
					return supervisor.Ack()
				}
				create(r, "q", memory.QueueOptions{Partitions: 1})
				for _, m := range []memory.Message{{ID: "gap", Key: []byte("slow")}, {ID: "above", Key: []byte("quick")}} {
					if err := r.broker.Publish("q", m); err != nil {
						t.Fatal(err)
					}
				}
				r.apply(newSpec("q", slots(4), func(s *pb.ConsumerSpec) {
					s.Retry = &pb.Retry{Backoff: &pb.Backoff{Initial: durationpb.New(3 * time.Second), Max: durationpb.New(3 * time.Second)}}
				}))
				r.until("one is handled above the gap", func() bool { return h.of("above") == 1 && h.of("gap") == 1 })
				rc := r.receipt("q", r.do(v, "q").GetOperation())
				clean(t, rc)
				if got := r.broker.Committed("q")[0]; got != 2 {
					t.Errorf("committed up to %d, want 2: %v", got, rc)
				}
				r.do(pb.Verb_VERB_RESUME, "q")
				r.do(pb.Verb_VERB_START, "q")
				time.Sleep(time.Minute)
				if h.of("above") != 1 || h.of("gap") != 2 {
					t.Errorf("handled above %d times, the gap %d times", h.of("above"), h.of("gap"))
				}
			})
		})
	}
}

// The tail above all that began is given back, not finished.
func TestPositionsGiveBackTheTail(t *testing.T) {
	inBubble(t, func(r *rig) {
		g := newGated(r)
		create(r, "q", memory.QueueOptions{Partitions: 1})
		r.publish("q", "m", 10)
		r.apply(newSpec("q", slots(2)))
		<-g.entered
		<-g.entered
		res := r.do(pb.Verb_VERB_PAUSE, "q")
		g.release <- supervisor.Ack()
		g.release <- supervisor.Ack()
		rc := r.receipt("q", res.GetOperation())
		clean(t, rc)
		if rc.GetCompleted() != 2 || rc.GetReturned() != 8 || len(g.entered) != 0 {
			t.Errorf("receipt %v, %d more started", rc, len(g.entered))
		}
	})
}

func TestKillStartsNoGaps(t *testing.T) {
	inBubble(t, func(r *rig) {
		var h handlings
		r.handle = func(_ context.Context, m *supervisor.Message) supervisor.Outcome {
			h.add(m)
			if string(m.Key) == "slow" {
				return supervisor.Retry(errors.New("always"))
			}
			return supervisor.Ack()
		}
		create(r, "q", memory.QueueOptions{Partitions: 1})
		for _, m := range []memory.Message{{ID: "gap", Key: []byte("slow")}, {ID: "above", Key: []byte("quick")}} {
			if err := r.broker.Publish("q", m); err != nil {
				t.Fatal(err)
			}
		}
		r.apply(newSpec("q", slots(4), func(s *pb.ConsumerSpec) {
			s.Retry = &pb.Retry{Backoff: &pb.Backoff{Initial: durationpb.New(200 * time.Millisecond), Max: durationpb.New(200 * time.Millisecond)}}
		}))
		r.until("one is handled above the gap", func() bool { return h.of("above") == 1 && h.of("gap") >= 1 })
		synctest.Wait()
		before := h.of("gap")
		res := r.do(pb.Verb_VERB_KILL, "q")
		if h.of("gap") != before {
			t.Error("the kill started a handler call")
		}
		if rc := res.GetReceipt(); rc.GetWillRepeat() != 1 || rc.GetOutcome() != pb.ReceiptOutcome_RECEIPT_OUTCOME_UNCLEAN {
			t.Errorf("the message above the gap repeats, but the receipt is %v", rc)
		}
	})
}

// What was sent to a broker that froze is not proven: no receipt calls that clean.
func TestReceiptsNeverClaimAcksThatNobodySaw(t *testing.T) {
	for _, v := range []pb.Verb{pb.Verb_VERB_PAUSE, pb.Verb_VERB_STOP, pb.Verb_VERB_DRAIN, pb.Verb_VERB_RESTART, pb.Verb_VERB_KILL} {
		t.Run(v.String(), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				g := newGated(r)
				r.publish("q", "m", 2)
				r.apply(newSpec("q", shortLimits))
				<-g.entered
				r.broker.Freeze()
				g.release <- supervisor.Ack()
				<-g.entered
				synctest.Wait()
				res := r.do(v, "q")
				if v != pb.Verb_VERB_KILL {
					g.release <- supervisor.Ack()
				}
				rc := r.receipt("q", res.GetOperation())
				if rc.GetUnconfirmed() == 0 || rc.GetOutcome() != pb.ReceiptOutcome_RECEIPT_OUTCOME_UNCLEAN {
					t.Errorf("receipt %v", rc)
				}
				if rc.GetRelease() != pb.Release_RELEASE_PENDING {
					t.Errorf("release %v on a frozen broker", rc.GetRelease())
				}
				r.broker.Thaw()
			})
		})
	}
}

// The same when the connection is cut in the middle of a verb.
func TestReceiptsCountWhatALostConnectionLost(t *testing.T) {
	for _, v := range []pb.Verb{pb.Verb_VERB_PAUSE, pb.Verb_VERB_STOP, pb.Verb_VERB_DRAIN} {
		t.Run(v.String(), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				g := newGated(r)
				r.publish("q", "m", 2)
				r.apply(newSpec("q", slots(2)))
				<-g.entered
				<-g.entered
				r.broker.Delay(memory.OpSettle, time.Minute)
				g.release <- supervisor.Ack()
				synctest.Wait()
				res := r.do(v, "q")
				r.broker.Cut()
				synctest.Wait()
				g.release <- supervisor.Ack()
				rc := r.receipt("q", res.GetOperation())
				if rc.GetUnconfirmed() != 1 || rc.GetWillRepeat() != 1 || rc.GetOutcome() != pb.ReceiptOutcome_RECEIPT_OUTCOME_UNCLEAN {
					t.Errorf("receipt %v", rc)
				}
				r.broker.Heal()
			})
		})
	}
}

// A receipt tells of its own verb, not of a handler that an earlier one named.
func TestAbandonedOnesAreNamedOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		entered, release := deaf(r)
		r.publish("q", "m", 1)
		r.apply(newSpec("q", slots(2)))
		<-entered
		r.do(pb.Verb_VERB_KILL, "q")
		r.do(pb.Verb_VERB_START, "q")
		<-entered
		res := r.do(pb.Verb_VERB_PAUSE, "q")
		close(release)
		rc := r.receipt("q", res.GetOperation())
		clean(t, rc)
		if rc.GetCompleted() != 1 {
			t.Errorf("receipt %v", rc)
		}
	})
}

func TestReceiptsOfInterruptedVerbs(t *testing.T) {
	inBubble(t, func(r *rig) {
		g := newGated(r)
		r.publish("q", "m", 1)
		r.apply(newSpec("q"))
		<-g.entered
		res := r.do(pb.Verb_VERB_DRAIN, "q")
		r.crash()
		r.open()
		rc := r.receipt("q", res.GetOperation())
		if rc.GetOutcome() != pb.ReceiptOutcome_RECEIPT_OUTCOME_INTERRUPTED || rc.GetActor() != "alice" {
			t.Errorf("receipt %v", rc)
		}
		c := r.await("q", pb.State_STATE_STOPPED)
		if c.GetDesired().GetOperation() != nil || c.GetStatus().GetLastReceipt() != rc.GetId() {
			t.Errorf("after the restart: %v", c)
		}
	})
}

// Settling a batch and losing the subscription at the same moment must not tell
// the driver of one delivery twice; [memory.Broker.Misuse] would.
func TestNothingIsSettledTwiceWhenTheSubscriptionEnds(t *testing.T) {
	for range 20 {
		inBubble(t, func(r *rig) {
			r.handle = func(context.Context, *supervisor.Message) supervisor.Outcome { return supervisor.Ack() }
			r.publish("q", "m", 5000)
			r.apply(newSpec("q", slots(8)))
			for range 5 {
				r.until("it runs", func() bool { return r.get("q").GetStatus().GetState() == pb.State_STATE_RUNNING })
				r.broker.Fail(memory.Failure{Op: memory.OpReceive, Times: 1, Class: brokers.Transient})
				r.publish("q", "more", 10)
				r.do(pb.Verb_VERB_KILL, "q")
				r.do(pb.Verb_VERB_START, "q")
			}
		})
	}
}

// create makes a queue with options.
func create(r *rig, name string, o memory.QueueOptions) {
	r.t.Helper()
	if err := r.broker.Create(name, o); err != nil {
		r.t.Fatal(err)
	}
}
