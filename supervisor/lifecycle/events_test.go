package lifecycle_test

import (
	"slices"
	"testing"

	"github.com/seed-111f5b8e/supervisord/supervisor/lifecycle"
)

// meaning is what an event must lead to in some states.
type meaning struct {
	on lifecycle.Event
	in []lifecycle.State
	to lifecycle.State // 0: the state stays, or another test says where it ends
	do lifecycle.Effect
}

// eventMeanings tell the machine by its events: each means one thing, wherever
// it can come.
func eventMeanings() []meaning {
	type states = []lifecycle.State
	var (
		opening  = states{lifecycle.Starting, lifecycle.Running}
		parking  = states{lifecycle.Pausing, lifecycle.Paused}
		stopping = states{lifecycle.Finishing, lifecycle.Aborting}
		ending   = append(states{lifecycle.Draining}, stopping...)
		atRest   = states{lifecycle.Stopped, lifecycle.Failed}
		trying   = append(states{lifecycle.Backoff}, opening...)
	)
	return []meaning{
		// What operators want is done, and what they forbid is closed first.
		{lifecycle.Start, append(append(states{lifecycle.Draining, lifecycle.Backoff}, parking...), atRest...), lifecycle.Starting, lifecycle.Open},
		{lifecycle.Park, trying, lifecycle.Pausing, lifecycle.Hold},
		{lifecycle.Park, atRest, lifecycle.Paused, lifecycle.None},
		{lifecycle.Drain, append(slices.Clone(trying), parking...), lifecycle.Draining, lifecycle.Shut},
		{lifecycle.Consume, opening, lifecycle.Draining, lifecycle.None},
		{lifecycle.Stop, append(append(states{lifecycle.Draining, lifecycle.Failed}, trying...), parking...), lifecycle.Finishing, lifecycle.Hold},
		{lifecycle.Drain, states{lifecycle.Failed}, lifecycle.Finishing, lifecycle.Hold},
		{lifecycle.Kill, append(append(append(states{lifecycle.Failed}, trying...), parking...), ending...), lifecycle.Aborting, lifecycle.Cancel},
		{lifecycle.Kill, states{lifecycle.Closing}, lifecycle.Closing, lifecycle.Hurry},

		// A lost subscription is let go in every state that may have one; only
		// a consumer that is to run tries again, or gives up.
		{lifecycle.Broke, opening, lifecycle.Backoff, lifecycle.Delay},
		{lifecycle.Refused, opening, lifecycle.Failed, lifecycle.Detach},
		{lifecycle.Exhausted, trying, lifecycle.Failed, lifecycle.Detach},
		{lifecycle.Broke, append(slices.Clone(parking), ending...), 0, lifecycle.Detach},
		{lifecycle.Refused, append(slices.Clone(parking), ending...), 0, lifecycle.Detach},
		{lifecycle.Ready, states{lifecycle.Starting}, lifecycle.Running, lifecycle.None},
		{lifecycle.Due, states{lifecycle.Backoff}, lifecycle.Starting, lifecycle.Open},

		// The work ends by itself, or its limits end it.
		{lifecycle.Marked, states{lifecycle.Draining}, 0, lifecycle.Shut},
		{lifecycle.Idle, ending, lifecycle.Closing, lifecycle.Close},
		{lifecycle.Quiet, states{lifecycle.Pausing, lifecycle.Draining}, lifecycle.Paused, lifecycle.Finish},
		{lifecycle.Soft, states{lifecycle.Draining, lifecycle.Finishing}, lifecycle.Aborting, lifecycle.Cancel},
		{lifecycle.SoftQuiet, states{lifecycle.Draining}, lifecycle.Pausing, lifecycle.Cancel},
		{lifecycle.SoftQuiet, states{lifecycle.Pausing}, 0, lifecycle.Hold},
		{lifecycle.Hard, states{lifecycle.Pausing}, 0, lifecycle.Abandon},
		{lifecycle.Hard, states{lifecycle.Aborting}, lifecycle.Closing, lifecycle.Reap},
		{lifecycle.Released, states{lifecycle.Closing}, lifecycle.Stopped, lifecycle.Finish},
	}
}

func TestEventsMeanTheSameEverywhere(t *testing.T) {
	m := lifecycle.NewMachine()
	for _, want := range eventMeanings() {
		for _, s := range want.in {
			r, ok := m.Next(s, want.on)
			switch {
			case !ok:
				t.Errorf("%s is not heard in %s", want.on, s)
			case r.Do != want.do:
				t.Errorf("%s on %s does %s, want %s", s, want.on, r.Do, want.do)
			case want.to != 0 && r.To != want.to:
				t.Errorf("%s on %s goes to %s, want %s", s, want.on, r.To, want.to)
			}
		}
	}
}
