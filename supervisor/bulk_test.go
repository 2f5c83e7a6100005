//nolint:forbidigo // every test here runs in a bubble of virtual time
package supervisor_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"google.golang.org/protobuf/proto"
)

func withID(id string) func(*supervisor.Command) {
	return func(c *supervisor.Command) { c.Options.RequestId = id }
}

func TestRepeatedRequestsGetTheFirstReply(t *testing.T) {
	inBubble(t, func(r *rig) {
		g := newGated(r)
		r.publish("q", "m", 1)
		r.apply(newSpec("q"))
		<-g.entered
		results := make([]*pb.VerbResult, 12)
		var w sync.WaitGroup
		for i := range 10 {
			w.Go(func() { results[i] = r.do(pb.Verb_VERB_KILL, "q", withID("one")) })
		}
		w.Wait()
		results[10] = r.do(pb.Verb_VERB_KILL, "q", withID("one"))
		r.close()
		r.open()
		results[11] = r.do(pb.Verb_VERB_KILL, "q", withID("one"))
		for i, res := range results {
			if !proto.Equal(res, results[0]) || res.GetReceipt() == nil {
				t.Errorf("reply %d is %v, the first %v", i, res, results[0])
			}
		}
		_, err := r.try(pb.Verb_VERB_STOP, "q", withID("one"))
		wantReason(t, "another request", err, pb.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED)
	})
}

func TestRepeatedAppliesGetTheFirstReply(t *testing.T) {
	inBubble(t, func(r *rig) {
		req := &pb.ApplyRequest{RequestId: "one", Items: []*pb.ApplyItem{{Spec: newSpec("q")}}}
		var w sync.WaitGroup
		for range 5 {
			w.Go(func() {
				out, err := r.s.Apply(r.ctx, "alice", req)
				if err != nil || out.GetResults()[0].GetChange() != pb.ApplyChange_APPLY_CHANGE_CREATED {
					t.Errorf("%v, %v", out, err)
				}
			})
		}
		w.Wait()
	})
}

// A request that failed as a whole may be tried again with its id.
func TestFailedRequestsAreNotRemembered(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(newSpec("q"))
		r.await("q", pb.State_STATE_RUNNING)
		r.setFault(errFull)
		_, err := r.try(pb.Verb_VERB_DRAIN, "q", withID("one"))
		wantReason(t, "drain", err, pb.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE)
		r.setFault(nil)
		if res := r.do(pb.Verb_VERB_DRAIN, "q", withID("one")); res.GetEffect() != pb.Effect_EFFECT_ACTED {
			t.Errorf("result %v", res)
		}
	})
}

func TestDryRunsChangeNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(newSpec("q"))
		before := r.await("q", pb.State_STATE_RUNNING)
		for v := pb.Verb_VERB_START; v <= pb.Verb_VERB_DELETE; v++ {
			res := r.do(v, "q", func(c *supervisor.Command) {
				c.Options.DryRun, c.Concurrency, c.Force = true, 5, true
				c.Options.RequestId = "dry"
				if v != pb.Verb_VERB_SCALE {
					c.Concurrency = 0
				}
				c.Options.RequestId = fmt.Sprint(v)
			})
			if len(res.GetPredictions()) == 0 {
				t.Errorf("%v predicts nothing", v)
			}
		}
		time.Sleep(time.Minute)
		after := r.get("q")
		if !proto.Equal(before.GetDesired(), after.GetDesired()) || before.GetEtag() != after.GetEtag() ||
			before.GetStatus().GetEpoch() != after.GetStatus().GetEpoch() || after.GetStatus().GetState() != pb.State_STATE_RUNNING {
			t.Errorf("before %v, after %v", before, after)
		}
	})
}

func TestBulkVerbsGoItemByItem(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(newSpec("a"), newSpec("b"), newSpec("c"))
		for _, n := range []string{"a", "b", "c"} {
			r.await(n, pb.State_STATE_RUNNING)
		}
		r.do(pb.Verb_VERB_STOP, "b")
		r.await("b", pb.State_STATE_STOPPED)
		out, err := r.s.Do(r.ctx, supervisor.Command{Verb: pb.Verb_VERB_DELETE, Target: &pb.Target{All: true}})
		if err != nil {
			t.Fatal(err)
		}
		for _, res := range out {
			refused := res.GetError().GetReason() == pb.ErrorReason_ERROR_REASON_INVALID_STATE_TRANSITION
			if refused == (res.GetName() == "b") {
				t.Errorf("%s: %v", res.GetName(), res)
			}
		}
		_, err = r.s.Do(r.ctx, supervisor.Command{Verb: pb.Verb_VERB_KILL, Target: &pb.Target{All: true, ExpectedCount: new(int32(3))}})
		wantReason(t, "a wrong count", err, pb.ErrorReason_ERROR_REASON_COUNT_MISMATCH)
		if st := r.get("a").GetStatus().GetState(); st != pb.State_STATE_RUNNING {
			t.Errorf("%v, though the count was wrong", st)
		}
	})
}

// An apply that was decided on one version must not overwrite another.
func TestApplyWithAStaleEtagIsRefused(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(newSpec("q"))
		old := r.get("q").GetEtag()
		r.do(pb.Verb_VERB_PAUSE, "q")
		_, err := r.s.Apply(r.ctx, "alice", &pb.ApplyRequest{Items: []*pb.ApplyItem{{Spec: newSpec("q", slots(9)), Etag: old}}})
		wantReason(t, "apply", err, pb.ErrorReason_ERROR_REASON_ETAG_MISMATCH)
	})
}

// TestARepeatedPauseForATimeGetsTheFirstReply: the time counts from the first.
func TestARepeatedPauseForATimeGetsTheFirstReply(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(newSpec("q"))
		r.await("q", pb.State_STATE_RUNNING)
		pause := func() *pb.VerbResult {
			return r.do(pb.Verb_VERB_PAUSE, "q", withID("pause-1"), func(c *supervisor.Command) { c.For = 10 * time.Minute })
		}
		first := pause()
		until := r.get("q").GetDesired().GetHolds()[0].GetUntil().AsTime()
		time.Sleep(time.Minute)
		if again := pause(); !proto.Equal(again, first) {
			t.Errorf("the reply is %v, the first was %v", again, first)
		}
		if now := r.get("q").GetDesired().GetHolds()[0].GetUntil().AsTime(); !now.Equal(until) {
			t.Errorf("the hold ends at %v, not at %v any more", now, until)
		}
	})
}
