//nolint:forbidigo // every test here runs in a bubble of virtual time
package supervisor_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

func many(n int) (names []string, specs []*pb.ConsumerSpec) {
	for i := range n {
		names = append(names, fmt.Sprintf("c%d", i))
		specs = append(specs, newSpec(names[i]))
	}
	return names, specs
}

func TestManyConsumersShareOneDial(t *testing.T) {
	inBubble(t, func(r *rig) {
		names, specs := many(30)
		r.apply(specs...)
		for _, n := range names {
			r.await(n, pb.State_STATE_RUNNING)
		}
		if n := r.driver.dials.Load(); n != 1 {
			t.Errorf("%d dials for the first connection", n)
		}
		r.broker.Lose()
		time.Sleep(time.Minute)
		for _, n := range names {
			r.await(n, pb.State_STATE_RUNNING)
		}
		if n := r.driver.dials.Load(); n != 2 {
			t.Errorf("%d dials, one after the loss is enough", n-1)
		}
		// While nobody answers, all of them together dial no more often than one.
		before := r.driver.dials.Load()
		r.broker.Cut()
		r.broker.Lose()
		time.Sleep(10 * time.Minute)
		if n := r.driver.dials.Load() - before; n > 100 {
			t.Errorf("%d dials in ten minutes", n)
		}
		r.broker.Heal()
	})
}

// Subscriptions take turns on a connection; to wait for one's turn is no failure.
func TestSubscriptionsArePacedWithoutFailures(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.broker.Delay(memory.OpSubscribe, 8*time.Second)
		names, specs := many(40)
		r.apply(specs...)
		began := time.Now()
		for _, n := range names {
			if c := r.await(n, pb.State_STATE_RUNNING); c.GetStatus().GetEpoch() != 1 {
				t.Errorf("%s needed %d attempts", n, c.GetStatus().GetEpoch())
			}
		}
		if d := time.Since(began); d < 20*time.Second {
			t.Errorf("40 subscriptions of 8 s each took %v: they were not paced", d)
		}
	})
}

// Who is paused hears that the broker has gone, and is not told to be connected;
// a resume subscribes again.
func TestPausedHearsOfTheLoss(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.publish("c0", "c0", 5)
		r.apply(newSpec("c0"))
		r.until("all is handled", func() bool { return r.broker.Depth("c0") == (memory.Depth{Members: 1}) })
		r.do(pb.Verb_VERB_PAUSE, "c0")
		c := r.await("c0", pb.State_STATE_PAUSED)
		if up := condition(c, pb.ConditionType_CONDITION_TYPE_CONNECTED); up == nil || !up.GetStatus() {
			t.Fatalf("paused, and Connected is %v", up)
		}
		r.broker.Cut()
		r.until("it is not connected", func() bool {
			up := condition(r.get("c0"), pb.ConditionType_CONDITION_TYPE_CONNECTED)
			return up != nil && !up.GetStatus() && up.GetReason() != ""
		})
		r.await("c0", pb.State_STATE_PAUSED)
		r.publish("c0", "later", 3)
		r.broker.Heal()
		r.do(pb.Verb_VERB_RESUME, "c0")
		r.await("c0", pb.State_STATE_RUNNING)
		r.until("the rest is handled", func() bool { return r.broker.Depth("c0") == (memory.Depth{Members: 1}) })
	})
}
