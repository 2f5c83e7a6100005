//nolint:forbidigo // every test here runs in a bubble of virtual time
package supervisor_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

func forSome(d time.Duration) func(*supervisor.Command) {
	return func(c *supervisor.Command) { c.Until = time.Now().Add(d) }
}

func small(n int32) func(*pb.ConsumerSpec) {
	return func(s *pb.ConsumerSpec) { s.MaxInFlight = &pb.MaxInFlight{Messages: new(n)} }
}

// A stop keeps its limits whatever is desired after it meanwhile.
func TestStopEndsInTimeThoughAHoldAndAStartCameAfterIt(t *testing.T) {
	inBubble(t, func(r *rig) {
		entered, release := deaf(r)
		defer close(release)
		r.publish("q", "m", 2)
		r.apply(newSpec("q", shortLimits, slots(2), small(2)))
		<-entered
		<-entered
		res := r.do(pb.Verb_VERB_STOP, "q")
		r.do(pb.Verb_VERB_PAUSE, "q")
		r.do(pb.Verb_VERB_START, "q")
		within(t, "stop", 4*time.Second, func() { r.await("q", pb.State_STATE_PAUSED) })
		rc := r.receipt("q", res.GetOperation())
		if !rc.GetSoftFired() || !rc.GetHardFired() || len(rc.GetAbandoned()) != 2 {
			t.Errorf("receipt %v", rc)
		}
	})
}

func TestHoldsThatEndDuringAnotherVerb(t *testing.T) {
	for _, c := range []struct {
		name string
		verb pb.Verb
		how  func(*supervisor.Command)
		want pb.State
	}{
		{"stop", pb.Verb_VERB_STOP, nil, pb.State_STATE_STOPPED},
		{"drain", pb.Verb_VERB_DRAIN, nil, pb.State_STATE_STOPPED},
		{"restart", pb.Verb_VERB_RESTART, nil, pb.State_STATE_RUNNING},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				g := newGated(r)
				r.publish("q", "m", 1)
				r.apply(newSpec("q"))
				<-g.entered
				r.do(pb.Verb_VERB_PAUSE, "q", forSome(2*time.Second))
				r.do(c.verb, "q")
				time.Sleep(3 * time.Second)
				if n := len(r.get("q").GetDesired().GetHolds()); n != 0 {
					t.Errorf("%d holds are left", n)
				}
				g.release <- supervisor.Ack()
				r.await("q", c.want)
				time.Sleep(time.Minute)
				if st := r.get("q").GetStatus().GetState(); st != c.want {
					t.Errorf("%v in the end, want %v", st, c.want)
				}
			})
		})
	}
}

func TestPauseWithAnEndWhilePausingRunsOn(t *testing.T) {
	inBubble(t, func(r *rig) {
		g := newGated(r)
		r.publish("q", "m", 2)
		r.apply(newSpec("q"))
		<-g.entered
		res := r.do(pb.Verb_VERB_PAUSE, "q", forSome(time.Second))
		r.await("q", pb.State_STATE_RUNNING)
		if rc := r.receipt("q", res.GetOperation()); rc.GetOutcome() != pb.ReceiptOutcome_RECEIPT_OUTCOME_OVERTAKEN {
			t.Errorf("receipt %v", rc)
		}
		g.release <- supervisor.Ack()
		<-g.entered
		g.release <- supervisor.Ack()
		wantQueue(t, r, "q", 0, 0)
	})
}

// A start while the drain for a new spec is under way must not lose the spec.
func TestStartDuringTheDrainForANewSpecKeepsTheSpec(t *testing.T) {
	for _, v := range []pb.Verb{pb.Verb_VERB_START, pb.Verb_VERB_RESUME, pb.Verb_VERB_RESTART} {
		t.Run(v.String(), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				g := newGated(r)
				r.publish("q", "m", 1)
				r.apply(newSpec("q", small(5)))
				<-g.entered
				r.apply(newSpec("q", small(7)))
				r.await("q", pb.State_STATE_DRAINING)
				r.do(v, "q")
				g.release <- supervisor.Ack()
				r.await("q", pb.State_STATE_RUNNING)
				r.publish("q", "more", 20)
				<-g.entered
				r.until("seven are taken", func() bool { return r.get("q").GetStatus().GetInFlight() == 7 })
				res := r.do(pb.Verb_VERB_PAUSE, "q")
				g.release <- supervisor.Ack()
				clean(t, r.receipt("q", res.GetOperation()))
			})
		})
	}
}

func TestDrainDuringTheDrainForANewSpecHasItsOwnReceipt(t *testing.T) {
	inBubble(t, func(r *rig) {
		g := newGated(r)
		r.publish("q", "m", 2)
		r.apply(newSpec("q"))
		<-g.entered
		r.apply(newSpec("q", small(7)))
		r.await("q", pb.State_STATE_DRAINING)
		res := r.do(pb.Verb_VERB_DRAIN, "q")
		g.release <- supervisor.Ack()
		<-g.entered
		g.release <- supervisor.Ack()
		rc := r.receipt("q", res.GetOperation())
		clean(t, rc)
		if rc.GetVerb() != pb.Verb_VERB_DRAIN || rc.GetCompleted() != 2 {
			t.Errorf("receipt %v", rc)
		}
		time.Sleep(time.Minute)
		if st := r.get("q").GetStatus().GetState(); st != pb.State_STATE_STOPPED {
			t.Errorf("%v after the drain", st)
		}
		r.do(pb.Verb_VERB_START, "q")
		r.publish("q", "more", 20)
		<-g.entered
		r.until("seven are taken", func() bool { return r.get("q").GetStatus().GetInFlight() == 7 })
	})
}

// A pause while it holds, stops and closes what an endless retry blocks.
func TestBacklogDrainEndsWhenItsSubscriptionIsLost(t *testing.T) {
	inBubble(t, func(r *rig) {
		g := newGated(r)
		r.publish("q", "m", 5)
		r.apply(newSpec("q"))
		<-g.entered
		res := r.do(pb.Verb_VERB_DRAIN, "q", func(c *supervisor.Command) {
			c.Mode, c.BacklogTimeout = pb.DrainMode_DRAIN_MODE_BACKLOG, time.Hour
		})
		r.broker.Cut()
		synctest.Wait()
		g.release <- supervisor.Ack()
		within(t, "drain", 10*time.Second, func() { r.await("q", pb.State_STATE_STOPPED) })
		if rc := r.receipt("q", res.GetOperation()); !rc.GetBacklogTimedOut() || rc.GetWillRepeat() != 1 {
			t.Errorf("receipt %v", rc)
		}
		r.broker.Heal()
	})
}

func TestBacklogDrainConsumesToItsMarkAndNoFurther(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.handle = func(_ context.Context, _ *supervisor.Message) supervisor.Outcome {
			time.Sleep(10 * time.Millisecond)
			return supervisor.Ack()
		}
		r.publish("q", "m", 500)
		r.apply(newSpec("q"))
		r.until("it runs", func() bool { return r.get("q").GetStatus().GetCounters().GetAcked() > 10 })
		res := r.do(pb.Verb_VERB_DRAIN, "q", func(c *supervisor.Command) {
			c.Mode, c.BacklogTimeout = pb.DrainMode_DRAIN_MODE_BACKLOG, time.Hour
		})
		for range 40 { // a steady producer must not keep it from ending
			r.publish("q", "late", 20)
			time.Sleep(200 * time.Millisecond)
		}
		rc := r.receipt("q", res.GetOperation())
		clean(t, rc)
		if rc.GetBacklogTimedOut() || rc.GetCompleted() < 400 {
			t.Errorf("receipt %v", rc)
		}
		if d := r.broker.Depth("q"); d.Waiting == 0 {
			t.Error("it consumed what came after the call")
		}
	})
}

func TestKillReachesThroughCallsThatWaitForEachOther(t *testing.T) {
	inBubble(t, func(r *rig) {
		entered, release := deaf(r)
		defer close(release)
		r.publish("q", "m", 3)
		r.apply(newSpec("q", shortLimits))
		<-entered
		r.broker.Delay(memory.OpHold, time.Hour)
		r.do(pb.Verb_VERB_STOP, "q")
		time.Sleep(1500 * time.Millisecond) // the soft limit has asked again
		within(t, "kill", 2*time.Second, func() {
			if st := r.do(pb.Verb_VERB_KILL, "q").GetState(); st != pb.State_STATE_STOPPED {
				t.Errorf("%v after the kill", st)
			}
		})
	})
}
