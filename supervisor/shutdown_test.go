//nolint:forbidigo // every test here runs in a bubble of virtual time
package supervisor_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

func TestShutdownCalledTwice(t *testing.T) {
	inBubble(t, func(r *rig) {
		g := newGated(r)
		r.publish("q", "m", 2)
		r.apply(newSpec("q"))
		<-g.entered
		s := r.s
		var w sync.WaitGroup
		for range 3 {
			w.Go(func() {
				receipts, err := s.Shutdown(r.ctx)
				if err != nil || len(receipts) != 1 || receipts[0].GetCompleted() != 1 {
					t.Errorf("%v, %v", receipts, err)
				}
			})
		}
		synctest.Wait()
		g.release <- supervisor.Ack()
		w.Wait()
	})
}

func TestVerbsThatMeetAShutdown(t *testing.T) {
	for _, v := range []pb.Verb{pb.Verb_VERB_KILL, pb.Verb_VERB_PAUSE, pb.Verb_VERB_START, pb.Verb_VERB_DRAIN} {
		t.Run(v.String(), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				names := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
				for _, n := range names {
					r.apply(newSpec(n))
				}
				s := r.s
				var w sync.WaitGroup
				for _, n := range names {
					w.Go(func() {
						_, err := s.Do(r.ctx, supervisor.Command{Verb: v, Target: &pb.Target{Names: []string{n}}})
						if err != nil {
							wantReason(t, v.String(), err, pb.ErrorReason_ERROR_REASON_SHUTTING_DOWN)
						}
					})
				}
				w.Go(func() { _, _ = s.Shutdown(r.ctx) }) // its outcome is not of interest here
				w.Wait()
			})
		})
	}
}

// The shutdown's limits hold for what another verb has already begun, and what
// was given up then is the shutdown's too.
func TestShutdownCutsTheLimitsOfVerbsUnderWay(t *testing.T) {
	for _, v := range []pb.Verb{pb.Verb_VERB_DRAIN, pb.Verb_VERB_STOP, pb.Verb_VERB_PAUSE, pb.Verb_VERB_RESTART} {
		t.Run(v.String(), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				entered, release := deaf(r)
				defer close(release)
				r.publish("q", "m", 1)
				r.apply(newSpec("q"))
				<-entered
				r.do(v, "q", func(c *supervisor.Command) {
					if v != pb.Verb_VERB_PAUSE {
						c.Soft, c.Hard = time.Hour, 2*time.Hour
					}
				})
				s := r.s
				within(t, "shutdown", 27*time.Second, func() {
					receipts, err := s.Shutdown(r.ctx)
					if !errors.Is(err, supervisor.ErrHardLimit) {
						t.Errorf("error %v, though work was given up", err)
					}
					if len(receipts) != 1 || len(receipts[0].GetAbandoned()) != 1 {
						t.Errorf("receipts %v", receipts)
					}
				})
			})
		})
	}
}

func TestShutdownWhoseContextEndsKills(t *testing.T) {
	inBubble(t, func(r *rig) {
		entered, release := deaf(r)
		defer close(release)
		r.publish("q", "m", 1)
		r.apply(newSpec("q"))
		<-entered
		ctx, cancel := context.WithCancelCause(r.ctx)
		s := r.s
		time.AfterFunc(time.Second, func() { cancel(errors.New("a second signal")) })
		within(t, "shutdown", 4*time.Second, func() {
			if _, err := s.Shutdown(ctx); !errors.Is(err, supervisor.ErrHardLimit) {
				t.Errorf("error %v", err)
			}
		})
	})
}

// What is being opened while the process ends is closed again: the broker's
// own check at the end of each test would tell.
func TestShutdownLeavesNothingOpen(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Millisecond, time.Second, time.Minute} {
		inBubble(t, func(r *rig) {
			r.broker.Delay(memory.OpSubscribe, delay)
			for _, n := range []string{"a", "b", "c"} {
				r.apply(newSpec(n))
			}
			time.Sleep(delay)
			within(t, "shutdown", 5*time.Second, func() { r.close() })
			for _, n := range []string{"a", "b", "c"} {
				if d := r.broker.Depth(n); d.Members != 0 {
					t.Errorf("%s has %d members left", n, d.Members)
				}
			}
		})
	}
}

func TestShutdownKeepsWhatIsDesired(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(newSpec("a"), newSpec("b"), newSpec("c"))
		r.do(pb.Verb_VERB_PAUSE, "b")
		r.do(pb.Verb_VERB_STOP, "c")
		r.await("c", pb.State_STATE_STOPPED)
		r.close()
		r.open()
		r.await("a", pb.State_STATE_RUNNING)
		r.await("b", pb.State_STATE_PAUSED)
		r.await("c", pb.State_STATE_STOPPED)
	})
}
