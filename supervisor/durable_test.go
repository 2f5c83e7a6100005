//nolint:forbidigo // every test here runs in a bubble of virtual time
package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

var errFull = errors.New("no space left on device")

func condition(c *pb.Consumer, t pb.ConditionType) *pb.Condition {
	for _, cond := range c.GetStatus().GetConditions() {
		if cond.GetType() == t {
			return cond
		}
	}
	return nil
}

func wantReason(t *testing.T, what string, err error, want pb.ErrorReason) {
	t.Helper()
	var e *supervisor.Error
	if !errors.As(err, &e) || e.Reason != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func TestPauseStopAndKillActWithoutAStore(t *testing.T) {
	for _, v := range []pb.Verb{pb.Verb_VERB_PAUSE, pb.Verb_VERB_STOP, pb.Verb_VERB_KILL} {
		t.Run(v.String(), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.apply(newSpec("q"))
				r.await("q", pb.State_STATE_RUNNING)
				r.setFault(errFull)
				res := r.do(v, "q")
				if res.GetDurable() {
					t.Error("claims to be durable")
				}
				if again := r.do(v, "q"); again.GetDurable() {
					t.Error("repeated, it claims to be durable")
				}
				r.receipt("q", res.GetOperation())
				if c := condition(r.get("q"), pb.ConditionType_CONDITION_TYPE_NOT_DURABLE); !c.GetStatus() || c.GetReason() == "" {
					t.Errorf("condition %v", c)
				}
				r.setFault(nil)
				r.until("it is durable", func() bool {
					return condition(r.get("q"), pb.ConditionType_CONDITION_TYPE_NOT_DURABLE) == nil
				})
				if again := r.do(v, "q"); !again.GetDurable() {
					t.Error("written, but not called durable")
				}
				want := r.get("q").GetDesired()
				r.crash()
				r.open()
				if got := r.get("q").GetDesired(); got.GetState() != want.GetState() || len(got.GetHolds()) != len(want.GetHolds()) {
					t.Errorf("desired %v before, %v after a crash", want, got)
				}
			})
		})
	}
}

func TestOtherVerbsFailWithoutAStoreAndChangeNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(newSpec("q"))
		r.await("q", pb.State_STATE_RUNNING)
		r.do(pb.Verb_VERB_PAUSE, "q")
		r.await("q", pb.State_STATE_PAUSED)
		r.setFault(errFull)
		for _, v := range []pb.Verb{pb.Verb_VERB_RESUME, pb.Verb_VERB_DRAIN, pb.Verb_VERB_RESTART, pb.Verb_VERB_SCALE} {
			_, err := r.try(v, "q", func(c *supervisor.Command) {
				if v == pb.Verb_VERB_SCALE {
					c.Concurrency = 3
				}
			})
			wantReason(t, v.String(), err, pb.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE)
		}
		if st := r.get("q").GetStatus().GetState(); st != pb.State_STATE_PAUSED {
			t.Errorf("%v after refused verbs", st)
		}
	})
}

func TestKillIsQuickWhenTheStoreHangs(t *testing.T) {
	inBubble(t, func(r *rig) {
		entered, release := deaf(r)
		defer close(release)
		r.publish("q", "m", 3)
		r.apply(newSpec("q"))
		<-entered
		thaw := r.hang()
		defer thaw()
		var others sync.WaitGroup
		for _, v := range []pb.Verb{pb.Verb_VERB_SCALE, pb.Verb_VERB_DRAIN, pb.Verb_VERB_RESTART} {
			others.Go(func() {
				_, err := r.try(v, "q", func(c *supervisor.Command) {
					if v == pb.Verb_VERB_SCALE {
						c.Concurrency = 2
					}
				})
				if err == nil {
					t.Errorf("%v was done, though the store hangs", v)
				}
			})
		}
		synctest.Wait()
		within(t, "kill", 2*time.Second, func() {
			res := r.do(pb.Verb_VERB_KILL, "q")
			if res.GetState() != pb.State_STATE_STOPPED || res.GetDurable() || len(res.GetReceipt().GetAbandoned()) != 1 {
				t.Errorf("result %v", res)
			}
		})
		others.Wait()
	})
}

// A receipt that waits for a store that hangs holds up no verb either.
func TestVerbsDoNotWaitForReceiptsThatCannotBeWritten(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(newSpec("a"), newSpec("b"))
		r.await("a", pb.State_STATE_RUNNING)
		r.await("b", pb.State_STATE_RUNNING)
		thaw := r.hang()
		r.do(pb.Verb_VERB_STOP, "a")
		r.do(pb.Verb_VERB_PAUSE, "b")
		time.Sleep(time.Second)
		for _, name := range []string{"a", "b"} {
			within(t, "stop", time.Second, func() { r.do(pb.Verb_VERB_STOP, name) })
			within(t, "kill", 2*time.Second, func() { r.do(pb.Verb_VERB_KILL, name) })
		}
		thaw()
		r.until("both are durable", func() bool {
			return condition(r.get("a"), pb.ConditionType_CONDITION_TYPE_NOT_DURABLE) == nil &&
				condition(r.get("b"), pb.ConditionType_CONDITION_TYPE_NOT_DURABLE) == nil
		})
	})
}

// A verb that was refused because the store was too slow must not take effect
// when the store gets to it: neither now nor after a restart.
func TestRefusedBySlownessIsNotDoneLater(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(newSpec("q"))
		r.do(pb.Verb_VERB_PAUSE, "q")
		r.await("q", pb.State_STATE_PAUSED)
		time.Sleep(time.Minute)
		thaw := r.hang()
		_, err := r.try(pb.Verb_VERB_RESUME, "q")
		wantReason(t, "resume", err, pb.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE)
		_, err = r.tryApply(newSpec("ghost"))
		wantReason(t, "apply", err, pb.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE)
		_, err = r.tryApply(newSpec("q", slots(7)))
		wantReason(t, "apply", err, pb.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE)
		_, err = r.try(pb.Verb_VERB_DELETE, "q", func(c *supervisor.Command) { c.Force = true })
		wantReason(t, "delete", err, pb.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE)
		thaw()
		time.Sleep(time.Minute)
		r.crash()
		r.open()
		if _, err := r.s.Get("", "ghost"); err == nil {
			t.Error("a consumer whose creation was refused is there after a restart")
		}
		c := r.get("q")
		if len(c.GetDesired().GetHolds()) != 1 || c.GetSpec().GetConcurrency() == 7 {
			t.Errorf("after a restart: %v", c)
		}
	})
}

// Receipts and applies take the turn of many consumers at once.
func TestReceiptsAndAppliesDoNotWaitForEachOther(t *testing.T) {
	inBubble(t, func(r *rig) {
		const n = 40
		specs := func(slots int32) (out []*pb.ConsumerSpec) {
			for i := range n {
				out = append(out, newSpec(fmt.Sprintf("c%d", i), func(s *pb.ConsumerSpec) { s.Concurrency = new(slots) }))
			}
			return out
		}
		r.apply(specs(1)...)
		var w sync.WaitGroup
		w.Go(func() {
			for i := range 30 {
				if _, err := r.tryApply(specs(int32(2 + i%2))...); err != nil {
					t.Errorf("apply: %v", err)
				}
			}
		})
		w.Go(func() {
			for range 30 {
				for _, v := range []pb.Verb{pb.Verb_VERB_PAUSE, pb.Verb_VERB_RESUME} {
					cmd := supervisor.Command{Verb: v, Target: &pb.Target{All: true}}
					if _, err := r.s.Do(r.ctx, cmd); err != nil {
						t.Errorf("%v: %v", v, err)
					}
				}
			}
		})
		w.Wait()
		for i := range n {
			r.await(fmt.Sprintf("c%d", i), pb.State_STATE_RUNNING)
		}
	})
}

func TestShutdownDoesNotWaitForAnApplyThatCannotBeWritten(t *testing.T) {
	inBubble(t, func(r *rig) {
		g := newGated(r)
		r.publish("q", "m", 3)
		r.apply(newSpec("q"))
		<-g.entered
		thaw := r.hang()
		done := make(chan error, 1)
		go func() {
			_, err := r.tryApply(newSpec("p"))
			done <- err
		}()
		synctest.Wait()
		s := r.s
		within(t, "shutdown", 27*time.Second, func() {
			if _, err := s.Shutdown(r.ctx); err != nil && !errors.Is(err, context.Canceled) {
				t.Logf("shutdown: %v", err)
			}
		})
		if err := <-done; err == nil {
			t.Error("applied, though the store hangs")
		}
		thaw()
	})
}
