//nolint:forbidigo // every test here runs in a bubble of virtual time
package supervisor_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"github.com/seed-111f5b8e/supervisord/supervisor/lifecycle"
)

// bring brings consumer q, with one message in a handler where there can be,
// into a state.
func bring(r *rig, to pb.State) *gated {
	g := newGated(r)
	stopped := func(s *pb.ConsumerSpec) { s.Start = pb.DesiredState_DESIRED_STATE_STOPPED }
	busy := func() {
		r.apply(newSpec("q"))
		<-g.entered
	}
	r.publish("q", "m", 3)
	switch to {
	case pb.State_STATE_STOPPED:
		r.apply(newSpec("q", stopped))
	case pb.State_STATE_STARTING:
		r.broker.Delay(memory.OpSubscribe, 5*time.Second)
		r.apply(newSpec("q"))
	case pb.State_STATE_RUNNING:
		busy()
	case pb.State_STATE_PAUSING:
		busy()
		r.do(pb.Verb_VERB_PAUSE, "q")
	case pb.State_STATE_PAUSED:
		busy()
		r.do(pb.Verb_VERB_PAUSE, "q")
		g.release <- supervisor.Ack()
	case pb.State_STATE_DRAINING:
		busy()
		r.do(pb.Verb_VERB_DRAIN, "q")
	case pb.State_STATE_STOPPING:
		busy()
		r.do(pb.Verb_VERB_STOP, "q")
	case pb.State_STATE_BACKOFF:
		r.broker.Cut()
		r.apply(newSpec("q"))
		r.await("q", to)
		r.broker.Heal()
	case pb.State_STATE_FAILED:
		r.broker.Fail(memory.Failure{Op: memory.OpSubscribe, Times: 1, Class: brokers.Refused})
		r.apply(newSpec("q"))
	}
	synctest.Wait()
	r.await("q", to)
	return g
}

// settle lets handlers return until the consumer is at rest, and says where.
func (g *gated) settle(r *rig) pb.State {
	quit := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case g.release <- supervisor.Ack():
			case <-quit:
				return
			}
		}
	}()
	time.Sleep(2 * time.Minute)
	close(quit)
	<-done
	c, err := r.s.Get("", "q")
	if err != nil {
		return pb.State_STATE_UNSPECIFIED
	}
	return c.GetStatus().GetState()
}

// rest is where a consumer that was in a state comes to rest after a verb; the
// columns are those of [lifecycle.Columns].
func rest() map[pb.Verb][]pb.State {
	const (
		run, stop = pb.State_STATE_RUNNING, pb.State_STATE_STOPPED
		held, bad = pb.State_STATE_PAUSED, pb.State_STATE_FAILED
		gone      = pb.State_STATE_UNSPECIFIED
	)
	return map[pb.Verb][]pb.State{
		//                      STOPPED STARTING RUNNING BACKOFF PAUSING PAUSED DRAINING STOPPING FAILED
		pb.Verb_VERB_START:   {run, run, run, run, held, held, run, run, run},
		pb.Verb_VERB_PAUSE:   {stop, held, held, held, held, held, stop, stop, bad},
		pb.Verb_VERB_RESUME:  {stop, run, run, run, run, run, stop, stop, bad},
		pb.Verb_VERB_DRAIN:   {stop, stop, stop, stop, stop, stop, stop, stop, stop},
		pb.Verb_VERB_STOP:    {stop, stop, stop, stop, stop, stop, stop, stop, stop},
		pb.Verb_VERB_KILL:    {stop, stop, stop, stop, stop, stop, stop, stop, stop},
		pb.Verb_VERB_RESTART: {run, run, run, run, held, held, run, run, run},
		pb.Verb_VERB_DELETE:  {gone, run, run, run, held, held, stop, stop, gone},
	}
}

// effects are those that a decision may have: what is noted is a no-op when it
// was so already, and what changes nothing now may still be kept for later.
func effects(d lifecycle.Decision) []pb.Effect {
	switch d {
	case lifecycle.Acts, lifecycle.Overtakes, lifecycle.Cancels:
		return []pb.Effect{pb.Effect_EFFECT_ACTED}
	}
	return []pb.Effect{pb.Effect_EFFECT_NO_OP, pb.Effect_EFFECT_NOTED}
}

// TestEveryVerbInEveryState carries each verb of the matrix out on a consumer
// that really is in that state, twice, and looks at its effect, its receipt and
// where the consumer comes to rest.
func TestEveryVerbInEveryState(t *testing.T) {
	for _, v := range lifecycle.Verbs() {
		for i, from := range lifecycle.Columns() {
			t.Run(verbIn(v, from), func(t *testing.T) {
				inBubble(t, func(r *rig) { inState(t, r, v, from, rest()[v][i]) })
			})
		}
	}
}

func verbIn(v pb.Verb, s pb.State) string { return v.String()[5:] + " in " + s.String()[6:] }

func inState(t *testing.T, r *rig, v pb.Verb, from, want pb.State) {
	t.Helper()
	g := bring(r, from)
	d := lifecycle.Decide(v, from)
	res, err := r.try(v, "q")
	if d == lifecycle.Refusal {
		var e *supervisor.Error
		if !errors.As(err, &e) || e.Reason != pb.ErrorReason_ERROR_REASON_INVALID_STATE_TRANSITION || e.Metadata["state"] == "" {
			t.Errorf("not refused: %v, %v", res, err)
		}
	} else {
		if err != nil {
			t.Fatal(err)
		}
		checkResult(t, res, d, from)
	}
	if v != pb.Verb_VERB_DELETE && v != pb.Verb_VERB_RESTART {
		if _, err := r.try(v, "q"); err != nil { // again is no error
			t.Errorf("again: %v", err)
		}
	}
	if got := g.settle(r); got != want {
		t.Errorf("comes to rest in %v, want %v", got, want)
	}
	if res.GetOperation() == "" || v == pb.Verb_VERB_DELETE {
		return
	}
	rc := r.receipt("q", res.GetOperation())
	if d == lifecycle.Acts && v != pb.Verb_VERB_KILL {
		clean(t, rc)
	}
	if r.get("q").GetDesired().GetOperation() != nil {
		t.Errorf("the operation is over, but still desired: %v", r.get("q").GetDesired())
	}
}

func checkResult(t *testing.T, res *pb.VerbResult, d lifecycle.Decision, from pb.State) {
	t.Helper()
	if res.GetStateBefore() != from || !res.GetDurable() {
		t.Errorf("result %v", res)
	}
	if !slices.Contains(effects(d), res.GetEffect()) {
		t.Errorf("effect %v, though the matrix says %v", res.GetEffect(), d)
	}
	if res.GetOperation() != "" && d == lifecycle.NoOp {
		t.Errorf("a no-op with a receipt: %v", res)
	}
}
