//nolint:forbidigo // every test here runs in a bubble of virtual time
package supervisor_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

func TestConsumesAll(t *testing.T) {
	inBubble(t, func(r *rig) {
		var n atomic.Int64
		r.handle = func(context.Context, *supervisor.Message) supervisor.Outcome {
			n.Add(1)
			return supervisor.Ack()
		}
		r.publish("q", "m", 1000)
		r.apply(newSpec("q"))
		r.until("all handled", func() bool { return n.Load() == 1000 })
		r.until("all settled", func() bool { return r.get("q").GetStatus().GetInFlight() == 0 })
		if got := r.get("q").GetStatus().GetCounters().GetAcked(); got != 1000 {
			t.Errorf("acked %d, want 1000", got)
		}
	})
}

func TestPauseStartsNothingAndGivesBack(t *testing.T) {
	inBubble(t, func(r *rig) {
		var started atomic.Int64
		r.handle = func(context.Context, *supervisor.Message) supervisor.Outcome {
			started.Add(1)
			time.Sleep(500 * time.Millisecond)
			return supervisor.Ack()
		}
		r.publish("q", "m", 20000)
		r.apply(newSpec("q", func(s *pb.ConsumerSpec) { s.Concurrency = new(int32(4)) }))
		r.until("some run", func() bool { return started.Load() >= 4 })
		res := r.do(pb.Verb_VERB_PAUSE, "q")
		before := started.Load()
		r.await("q", pb.State_STATE_PAUSED)
		if n := started.Load(); n != before {
			t.Errorf("%d handler calls started after the pause", n-before)
		}
		rc := r.receipt("q", res.GetOperation())
		if rc.GetOutcome() != pb.ReceiptOutcome_RECEIPT_OUTCOME_CLEAN || rc.GetCompleted() != 4 || rc.GetReturned() != 96 {
			t.Errorf("receipt %v", rc)
		}
		r.do(pb.Verb_VERB_RESUME, "q")
		r.until("it goes on", func() bool { return started.Load() > before+8 })
	})
}

// A handler that waits for what the test sends, or for its context.
type gated struct {
	entered chan *supervisor.Message
	release chan supervisor.Outcome
}

func newGated(r *rig) *gated {
	g := &gated{entered: make(chan *supervisor.Message, 1000), release: make(chan supervisor.Outcome)}
	r.handle = func(ctx context.Context, m *supervisor.Message) supervisor.Outcome {
		g.entered <- m
		select {
		case o := <-g.release:
			return o
		case <-ctx.Done():
			return supervisor.Retry(ctx.Err())
		}
	}
	return g
}

// deaf ignores its context until the test lets it go.
func deaf(r *rig) (entered chan *supervisor.Message, release chan struct{}) {
	entered, release = make(chan *supervisor.Message, 1000), make(chan struct{})
	r.handle = func(_ context.Context, m *supervisor.Message) supervisor.Outcome {
		entered <- m
		<-release
		return supervisor.Ack()
	}
	return entered, release
}

func within(t *testing.T, what string, limit time.Duration, f func()) {
	t.Helper()
	began := time.Now()
	f()
	if d := time.Since(began); d > limit {
		t.Errorf("%s took %v, at most %v", what, d, limit)
	}
}

func clean(t *testing.T, rc *pb.Receipt) {
	t.Helper()
	if rc.GetOutcome() != pb.ReceiptOutcome_RECEIPT_OUTCOME_CLEAN || len(rc.GetAbandoned()) > 0 || rc.GetUnconfirmed() > 0 ||
		rc.GetWillRepeat() > 0 || rc.GetOwnershipLost() > 0 {
		t.Errorf("not a clean receipt: %v", rc)
	}
}

func TestStopDuringTheFirstOfThreeStartsNothingMore(t *testing.T) {
	inBubble(t, func(r *rig) {
		g := newGated(r)
		r.publish("q", "m", 3)
		r.apply(newSpec("q"))
		<-g.entered
		res := r.do(pb.Verb_VERB_STOP, "q")
		g.release <- supervisor.Ack()
		r.await("q", pb.State_STATE_STOPPED)
		rc := r.receipt("q", res.GetOperation())
		clean(t, rc)
		if rc.GetCompleted() != 1 || rc.GetReturned() != 2 || len(g.entered) != 0 {
			t.Errorf("receipt %v, %d started after the stop", rc, len(g.entered))
		}
		if rc.GetRelease() != pb.Release_RELEASE_CONFIRMED {
			t.Errorf("release %v", rc.GetRelease())
		}
		wantQueue(t, r, "q", 2, 0)
	})
}

func TestDrainHandlesWhatWasTaken(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.handle = func(context.Context, *supervisor.Message) supervisor.Outcome {
			time.Sleep(500 * time.Millisecond)
			return supervisor.Ack()
		}
		r.publish("q", "m", 20)
		r.apply(newSpec("q", func(s *pb.ConsumerSpec) { s.MaxInFlight = &pb.MaxInFlight{Messages: new(int32(20))} }))
		r.until("all taken", func() bool { return r.get("q").GetStatus().GetInFlight() == 20 })
		res := r.do(pb.Verb_VERB_DRAIN, "q")
		r.await("q", pb.State_STATE_STOPPED)
		rc := r.receipt("q", res.GetOperation())
		clean(t, rc)
		if rc.GetCompleted() != 20 || rc.GetReturned() != 0 {
			t.Errorf("receipt %v", rc)
		}
		wantQueue(t, r, "q", 0, 0)
	})
}

func TestDrainGivesBackAtSoftAndAbandonsAtHard(t *testing.T) {
	inBubble(t, func(r *rig) {
		entered, release := deaf(r)
		r.publish("q", "m", 5)
		r.apply(newSpec("q"))
		<-entered
		res := r.do(pb.Verb_VERB_DRAIN, "q", func(c *supervisor.Command) { c.Soft, c.Hard = 2*time.Second, 4*time.Second })
		within(t, "drain", 6*time.Second, func() { r.await("q", pb.State_STATE_STOPPED) })
		rc := r.receipt("q", res.GetOperation())
		if !rc.GetSoftFired() || !rc.GetHardFired() || len(rc.GetAbandoned()) != 1 || rc.GetAbandoned()[0].GetId() != "m-0" || rc.GetReturned() != 4 ||
			rc.GetOutcome() != pb.ReceiptOutcome_RECEIPT_OUTCOME_UNCLEAN {
			t.Errorf("receipt %v", rc)
		}
		if n := r.get("q").GetStatus().GetLeakedHandlers(); n != 1 {
			t.Errorf("%d leaked handlers, want 1", n)
		}
		wantQueue(t, r, "q", 5, 0)
		close(release)
		r.until("the slot is free again", func() bool { return r.get("q").GetStatus().GetLeakedHandlers() == 0 })
		if n := r.get("q").GetStatus().GetCounters().GetLate(); n != 1 {
			t.Errorf("%d late results, want 1", n)
		}
		wantQueue(t, r, "q", 5, 0)
	})
}

func TestKillWithAStuckHandlerIsQuick(t *testing.T) {
	inBubble(t, func(r *rig) {
		entered, release := deaf(r)
		defer close(release)
		r.publish("q", "m", 3)
		r.apply(newSpec("q"))
		<-entered
		var res *pb.VerbResult
		within(t, "kill", 2*time.Second, func() { res = r.do(pb.Verb_VERB_KILL, "q") })
		if res.GetState() != pb.State_STATE_STOPPED || len(res.GetReceipt().GetAbandoned()) != 1 {
			t.Errorf("result %v", res)
		}
		wantQueue(t, r, "q", 3, 0)
		// All slots are leaked: a start says so instead of idling.
		r.do(pb.Verb_VERB_START, "q")
		c := r.await("q", pb.State_STATE_FAILED)
		if c.GetStatus().GetReason() == "" {
			t.Error("FAILED without a reason")
		}
	})
}

func TestKillOnAFrozenBroker(t *testing.T) {
	inBubble(t, func(r *rig) {
		g := newGated(r)
		r.publish("q", "m", 3)
		r.apply(newSpec("q"))
		<-g.entered
		r.broker.Freeze()
		var res *pb.VerbResult
		within(t, "kill", 2*time.Second, func() { res = r.do(pb.Verb_VERB_KILL, "q") })
		if res.GetState() != pb.State_STATE_STOPPED || res.GetReceipt().GetRelease() != pb.Release_RELEASE_PENDING {
			t.Errorf("result %v", res)
		}
		r.broker.Thaw()
		time.Sleep(30 * time.Second)
		wantQueue(t, r, "q", 3, 0)
	})
}

func TestPauseOnAFrozenBrokerEnds(t *testing.T) {
	inBubble(t, func(r *rig) {
		g := newGated(r)
		r.publish("q", "m", 3)
		r.apply(newSpec("q"))
		<-g.entered
		r.broker.Freeze()
		r.do(pb.Verb_VERB_PAUSE, "q")
		g.release <- supervisor.Ack()
		within(t, "pause", 20*time.Second, func() { r.await("q", pb.State_STATE_PAUSED) })
		r.broker.Thaw()
		r.do(pb.Verb_VERB_RESUME, "q")
		seen := map[string]bool{}
		for range 2 {
			m := <-g.entered
			seen[m.ID()] = true
			g.release <- supervisor.Ack()
		}
		if !seen["m-1"] || !seen["m-2"] {
			t.Errorf("handled %v after the resume", seen)
		}
	})
}

func TestPauseOutlivesALostConnection(t *testing.T) {
	inBubble(t, func(r *rig) {
		g := newGated(r)
		r.publish("q", "m", 3)
		r.apply(newSpec("q"))
		<-g.entered
		r.do(pb.Verb_VERB_PAUSE, "q")
		g.release <- supervisor.Ack()
		r.await("q", pb.State_STATE_PAUSED)
		r.broker.Cut()
		time.Sleep(time.Second)
		r.broker.Heal()
		time.Sleep(time.Minute)
		if st := r.get("q").GetStatus().GetState(); st != pb.State_STATE_PAUSED {
			t.Errorf("%v after the connection came back", st)
		}
		if len(g.entered) > 0 {
			t.Error("a handler was called while paused")
		}
	})
}

func TestLostConnectionBacksOffAndComesBack(t *testing.T) {
	inBubble(t, func(r *rig) {
		var n atomic.Int64
		r.handle = func(context.Context, *supervisor.Message) supervisor.Outcome { n.Add(1); return supervisor.Ack() }
		r.publish("q", "m", 10)
		r.apply(newSpec("q"))
		r.until("handled", func() bool { return n.Load() == 10 })
		r.broker.Cut()
		r.await("q", pb.State_STATE_BACKOFF)
		time.Sleep(time.Hour)
		if st := r.get("q").GetStatus(); st.GetState() == pb.State_STATE_FAILED {
			t.Errorf("gave up on a broker that cannot be reached: %v", st)
		}
		r.broker.Heal()
		r.publish("q", "more", 10)
		r.until("handled after the reconnect", func() bool { return n.Load() == 20 })
		r.await("q", pb.State_STATE_RUNNING)
	})
}

func TestHoldsEndByThemselvesAlsoAfterARestart(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(newSpec("q"))
		r.await("q", pb.State_STATE_RUNNING)
		for _, h := range []string{"operator", "schedule"} {
			r.do(pb.Verb_VERB_PAUSE, "q", func(c *supervisor.Command) {
				c.Hold = h
				if h == "schedule" {
					c.Until = time.Now().Add(10 * time.Minute)
				}
			})
		}
		res := r.do(pb.Verb_VERB_RESUME, "q")
		if res.GetState() != pb.State_STATE_PAUSED || res.GetNote() == "" {
			t.Errorf("a second hold stands, but: %v", res)
		}
		r.close()
		r.open()
		time.Sleep(9 * time.Minute)
		if st := r.get("q").GetStatus().GetState(); st != pb.State_STATE_PAUSED {
			t.Errorf("%v before the hold's end", st)
		}
		time.Sleep(2 * time.Minute)
		r.await("q", pb.State_STATE_RUNNING)
		if holds := r.get("q").GetDesired().GetHolds(); len(holds) != 0 {
			t.Errorf("left: %v", holds)
		}
	})
}

func TestReapplyNeverResumes(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(newSpec("q"))
		r.do(pb.Verb_VERB_PAUSE, "q")
		r.await("q", pb.State_STATE_PAUSED)
		r.apply(newSpec("q", func(s *pb.ConsumerSpec) { s.Concurrency = new(int32(3)) }))
		r.apply(newSpec("q", func(s *pb.ConsumerSpec) {
			s.Concurrency = new(int32(3))
			s.MaxInFlight = &pb.MaxInFlight{Messages: new(int32(7))}
		}))
		time.Sleep(time.Minute)
		if st := r.get("q").GetStatus().GetState(); st != pb.State_STATE_PAUSED {
			t.Errorf("%v after applying again", st)
		}
		r.close()
		r.open()
		r.await("q", pb.State_STATE_PAUSED)
		r.do(pb.Verb_VERB_RESUME, "q")
		r.await("q", pb.State_STATE_RUNNING)
	})
}

func TestColdApplyRestartsOnlyThatConsumer(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(newSpec("a"), newSpec("b"))
		r.await("a", pb.State_STATE_RUNNING)
		r.await("b", pb.State_STATE_RUNNING)
		epochA, epochB := r.get("a").GetStatus().GetEpoch(), r.get("b").GetStatus().GetEpoch()
		out := r.apply(newSpec("a", func(s *pb.ConsumerSpec) { s.MaxInFlight = &pb.MaxInFlight{Messages: new(int32(7))} }), newSpec("b"))
		if out.GetResults()[1].GetChange() != pb.ApplyChange_APPLY_CHANGE_UNCHANGED {
			t.Errorf("b: %v", out.GetResults()[1].GetChange())
		}
		r.until("a has a new epoch", func() bool { return r.get("a").GetStatus().GetEpoch() > epochA })
		r.await("a", pb.State_STATE_RUNNING)
		if e := r.get("b").GetStatus().GetEpoch(); e != epochB {
			t.Error("b was restarted too")
		}
	})
}

// wantQueue checks what the broker has, once it has settled down.
func wantQueue(t *testing.T, r *rig, queue string, waiting, unacked int64) {
	t.Helper()
	var d memory.Depth
	for range 1000 {
		if d = r.broker.Depth(queue); d.Waiting == waiting && d.Unacked == unacked {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%s: %+v, want %d waiting and %d unacked", queue, d, waiting, unacked)
}
