//nolint:forbidigo // every test here runs in a bubble of virtual time
package supervisor_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

// The cases below are of kinds that users of other systems reported.

func TestPausedStaysPausedWhenTheConnectionDropsAndReturns(t *testing.T) {
	faults := map[string]func(*memory.Broker){
		"cut":  func(b *memory.Broker) { b.Cut() },
		"lost": func(b *memory.Broker) { b.Lose() },
		"frozen": func(b *memory.Broker) {
			b.Freeze()
		},
	}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				var n atomic.Int64
				r.handle = func(context.Context, *supervisor.Message) supervisor.Outcome {
					n.Add(1)
					time.Sleep(time.Millisecond)
					return supervisor.Ack()
				}
				r.publish("q", "m", 1000)
				r.apply(newSpec("q"))
				r.until("some are handled", func() bool { return n.Load() > 10 })
				r.do(pb.Verb_VERB_PAUSE, "q")
				r.await("q", pb.State_STATE_PAUSED)
				before := n.Load()
				for range 3 {
					f(r.broker)
					time.Sleep(30 * time.Second)
					r.broker.Heal()
					r.broker.Thaw()
					time.Sleep(time.Minute)
				}
				if c := r.get("q"); c.GetStatus().GetState() != pb.State_STATE_PAUSED || n.Load() != before {
					t.Errorf("%v, %d handled while paused", c.GetStatus().GetState(), n.Load()-before)
				}
				r.do(pb.Verb_VERB_RESUME, "q")
				wantQueue(t, r, "q", 0, 0)
			})
		})
	}
}

func TestStopWhileFailedStopsEverything(t *testing.T) {
	for _, v := range []pb.Verb{pb.Verb_VERB_STOP, pb.Verb_VERB_DRAIN, pb.Verb_VERB_KILL} {
		t.Run(v.String(), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				g := newGated(r)
				r.publish("q", "m", 5)
				r.apply(newSpec("q", slots(2)))
				<-g.entered
				<-g.entered
				if err := r.broker.Forbid("q", "no right to read"); err != nil {
					t.Fatal(err)
				}
				c := r.await("q", pb.State_STATE_FAILED)
				if reason := c.GetStatus().GetReason(); reason == "" {
					t.Error("FAILED without the broker's words")
				}
				r.do(v, "q")
				for range 2 {
					select {
					case g.release <- supervisor.Ack():
					case <-time.After(time.Second): // a kill has cancelled it
					}
				}
				c = r.await("q", pb.State_STATE_STOPPED)
				if c.GetDesired().GetState() != pb.DesiredState_DESIRED_STATE_STOPPED || c.GetStatus().GetInFlight() != 0 {
					t.Errorf("stopped, but %v", c)
				}
				if err := r.broker.Permit("q"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				if st := r.get("q").GetStatus().GetState(); st != pb.State_STATE_STOPPED {
					t.Errorf("%v an hour later", st)
				}
				wantQueue(t, r, "q", 5, 0)
			})
		})
	}
}

func TestDeleteWhileTheBrokerIsUnreachableReturns(t *testing.T) {
	for name, f := range map[string]func(*memory.Broker){
		"cut": func(b *memory.Broker) { b.Cut() }, "frozen": func(b *memory.Broker) { b.Freeze() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				entered, release := deaf(r)
				defer close(release)
				r.publish("q", "m", 2)
				r.apply(newSpec("q"))
				<-entered
				f(r.broker)
				synctest.Wait()
				within(t, "delete", 3*time.Second, func() {
					r.do(pb.Verb_VERB_DELETE, "q", func(c *supervisor.Command) { c.Force = true })
				})
				_, err := r.s.Get("", "q")
				wantReason(t, "get", err, pb.ErrorReason_ERROR_REASON_NOT_FOUND)
				r.broker.Heal()
				r.broker.Thaw()
				wantQueue(t, r, "q", 2, 0)
			})
		})
	}
}

func TestPausedStaysPausedAcrossANewConfigurationAndARestart(t *testing.T) {
	for name, change := range map[string]func(*pb.ConsumerSpec){"hot": slots(3), "cold": small(7)} {
		for end, restart := range map[string]func(*rig){
			"clean": func(r *rig) { r.close() }, "killed": func(r *rig) { r.crash() },
		} {
			t.Run(name+" "+end, func(t *testing.T) {
				inBubble(t, func(r *rig) {
					g := newGated(r)
					r.publish("q", "m", 9)
					r.apply(newSpec("q"))
					<-g.entered
					until := time.Now().Add(2 * time.Hour)
					r.do(pb.Verb_VERB_PAUSE, "q", func(c *supervisor.Command) { c.Until, c.Options.Reason = until, "the ERP is down" })
					g.release <- supervisor.Ack()
					r.await("q", pb.State_STATE_PAUSED)
					r.apply(newSpec("q", change))
					time.Sleep(time.Minute)
					restart(r)
					r.open()
					r.apply(newSpec("q", change))
					time.Sleep(time.Hour)
					c := r.get("q")
					h := c.GetDesired().GetHolds()
					if c.GetStatus().GetState() != pb.State_STATE_PAUSED || len(h) != 1 || h[0].GetActor() != "alice" ||
						h[0].GetReason() != "the ERP is down" || !h[0].GetUntil().AsTime().Equal(until) || len(g.entered) > 0 {
						t.Errorf("after it all: %v", c)
					}
					time.Sleep(2 * time.Hour)
					if len(g.entered) == 0 {
						t.Error("the hold's end did not resume it")
					}
				})
			})
		}
	}
}

func TestDrainOfManyEndsUnderOneDeadlineWithoutNewStarts(t *testing.T) {
	inBubble(t, func(r *rig) {
		const n = 20
		var started atomic.Int64
		var drained atomic.Bool
		r.handle = func(ctx context.Context, _ *supervisor.Message) supervisor.Outcome {
			if drained.Load() {
				t.Error("a call started after the drain gave back")
			}
			started.Add(1)
			select {
			case <-time.After(time.Hour):
			case <-ctx.Done():
			}
			return supervisor.Retry(ctx.Err())
		}
		specs := make([]*pb.ConsumerSpec, n)
		for i := range specs {
			name := fmt.Sprintf("c%d", i)
			r.publish(name, name, 50)
			specs[i] = newSpec(name, timeout(2*time.Hour), slots(2), func(s *pb.ConsumerSpec) { s.Labels = map[string]string{"team": "a"} })
		}
		r.apply(specs...)
		r.until("all are busy", func() bool { return started.Load() == 2*n })
		began := time.Now()
		out, err := r.s.Do(r.ctx, supervisor.Command{
			Verb: pb.Verb_VERB_DRAIN, Target: &pb.Target{Selector: "team=a", ExpectedCount: new(int32(n))},
			Soft: 5 * time.Second, Hard: 8 * time.Second,
		})
		if err != nil || len(out) != n {
			t.Fatalf("%d results, %v", len(out), err)
		}
		time.Sleep(5*time.Second + 50*time.Millisecond)
		drained.Store(true)
		for _, res := range out {
			r.await(res.GetName(), pb.State_STATE_STOPPED)
			rc := r.receipt(res.GetName(), res.GetOperation())
			clean(t, rc)
			if rc.GetReturned() != 50 || !rc.GetSoftFired() || rc.GetHardFired() {
				t.Errorf("receipt %v", rc)
			}
		}
		if d := time.Since(began); d > 8*time.Second {
			t.Errorf("the last ended after %v", d)
		}
		if started.Load() != 2*n {
			t.Errorf("%d calls, of %d before the drain", started.Load(), 2*n)
		}
	})
}

// A source that is deleted is a visible failure, never silence.
func TestADeletedSourceIsShown(t *testing.T) {
	inBubble(t, func(r *rig) {
		create(r, "q", memory.QueueOptions{})
		r.apply(newSpec("q", func(s *pb.ConsumerSpec) { s.Source.GetMemory().Missing = pb.Missing_MISSING_FAIL }))
		r.await("q", pb.State_STATE_RUNNING)
		if err := r.broker.Delete("q"); err != nil {
			t.Fatal(err)
		}
		c := r.await("q", pb.State_STATE_FAILED)
		if on := condition(c, pb.ConditionType_CONDITION_TYPE_CONNECTED); on.GetStatus() || on.GetReason() == "" {
			t.Errorf("condition %v", on)
		}
	})
}

func TestAMissingSourceIsWaitedForWithoutAnEnd(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(newSpec("q", func(s *pb.ConsumerSpec) { s.Source.GetMemory().Missing = pb.Missing_MISSING_WAIT }))
		r.await("q", pb.State_STATE_BACKOFF)
		time.Sleep(time.Hour) // waiting uses up no budget
		create(r, "q", memory.QueueOptions{})
		r.await("q", pb.State_STATE_RUNNING)
	})
}

func TestTheRestartBudgetEndsInFailed(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.broker.Fail(memory.Failure{Op: memory.OpSubscribe, Times: 1000, Class: brokers.Transient})
		r.apply(newSpec("q", func(s *pb.ConsumerSpec) { s.Restart = &pb.Restart{Attempts: new(int32(5))} }))
		c := r.await("q", pb.State_STATE_FAILED)
		if c.GetStatus().GetReason() == "" {
			t.Error("FAILED without a reason")
		}
		n := c.GetStatus().GetEpoch()
		if n != 5 {
			t.Errorf("gave up after %d attempts, want 5", n)
		}
		r.broker.FailNoMore()
		r.do(pb.Verb_VERB_START, "q")
		r.await("q", pb.State_STATE_RUNNING)
	})
}

// A start in BACKOFF tries now, not when the connection's own pause is over.
func TestStartInBackoffDialsAtOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.broker.Cut()
		r.apply(newSpec("q"))
		time.Sleep(time.Hour)
		r.await("q", pb.State_STATE_BACKOFF)
		r.broker.Heal()
		r.do(pb.Verb_VERB_START, "q")
		synctest.Wait()
		if st := r.get("q").GetStatus().GetState(); st != pb.State_STATE_RUNNING {
			t.Errorf("%v right after the start", st)
		}
	})
}

// A spec that a new daemon's configuration does not allow any more is FAILED,
// with the reason, and takes verbs and a new spec like any other.
func TestASpecThatNoLongerFits(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(newSpec("q"), newSpec("p"))
		r.do(pb.Verb_VERB_PAUSE, "p")
		r.await("p", pb.State_STATE_PAUSED)
		r.close()
		own := r.handles
		r.handles = map[string]supervisor.Handler{"other": supervisor.HandlerFunc(acks)}
		r.open()
		r.await("q", pb.State_STATE_FAILED)
		for _, v := range []pb.Verb{
			pb.Verb_VERB_START, pb.Verb_VERB_PAUSE, pb.Verb_VERB_RESUME, pb.Verb_VERB_RESTART, pb.Verb_VERB_SCALE, pb.Verb_VERB_DRAIN,
			pb.Verb_VERB_STOP, pb.Verb_VERB_KILL,
		} {
			r.do(v, "q")
			r.do(v, "p")
			time.Sleep(time.Minute)
		}
		r.handles = own
		r.do(pb.Verb_VERB_START, "q")
		r.await("q", pb.State_STATE_FAILED)
		other := func(s *pb.ConsumerSpec) { s.Handler.Kind = &pb.Handler_Go{Go: &pb.GoHandler{Name: "other"}} }
		r.apply(newSpec("q", other))
		r.await("q", pb.State_STATE_RUNNING)
	})
}
