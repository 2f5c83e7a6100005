package lifecycle_test

import (
	"slices"
	"testing"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/lifecycle"
	"pgregory.net/rapid"
)

// happened are the events that nobody asks for.
func happened() []lifecycle.Event {
	return slices.DeleteFunc(lifecycle.Events(), func(e lifecycle.Event) bool { return e <= lifecycle.Kill })
}

func TestTableIsWellFormed(t *testing.T) {
	states, events := lifecycle.States(), lifecycle.Events()
	type at struct {
		from lifecycle.State
		on   lifecycle.Event
	}
	seen, used := map[at]bool{}, map[lifecycle.Event]bool{}
	for _, r := range lifecycle.Table() {
		if !slices.Contains(states, r.From) || !slices.Contains(states, r.To) || !slices.Contains(events, r.On) {
			t.Errorf("row %v names what there is not", r)
		}
		if seen[at{r.From, r.On}] {
			t.Errorf("%s on %s stands twice", r.From, r.On)
		}
		seen[at{r.From, r.On}], used[r.On] = true, true
		if r.From == r.To && r.Do == lifecycle.None {
			t.Errorf("%s on %s neither moves nor does anything: leave it out", r.From, r.On)
		}
	}
	for _, e := range events {
		if !used[e] {
			t.Errorf("nothing happens on %s in any state", e)
		}
	}
}

// TestNamesAreDistinct: logs, histories and the documentation tell states,
// events and effects apart by them.
func TestNamesAreDistinct(t *testing.T) {
	names := map[string][]string{}
	for _, s := range lifecycle.States() {
		names["state"] = append(names["state"], s.String())
	}
	for _, e := range lifecycle.Events() {
		names["event"] = append(names["event"], e.String())
	}
	for e := lifecycle.None; e <= lifecycle.Finish; e++ {
		names["effect"] = append(names["effect"], e.String())
	}
	for d := lifecycle.Acts; d <= lifecycle.Overtakes; d++ {
		names["decision"] = append(names["decision"], d.String())
	}
	for kind, list := range names {
		slices.Sort(list)
		if list[0] == "" || len(slices.Compact(slices.Clone(list))) != len(list) {
			t.Errorf("%s: a name is empty or used twice in %q", kind, list)
		}
	}
}

// TestMachineIsTheTable: in every state and on every event.
func TestMachineIsTheTable(t *testing.T) {
	m := lifecycle.NewMachine()
	for _, s := range lifecycle.States() {
		for _, e := range lifecycle.Events() {
			i := slices.IndexFunc(lifecycle.Table(), func(r lifecycle.Row) bool { return r.From == s && r.On == e })
			got, ok := m.Next(s, e)
			if ok != (i >= 0) {
				t.Errorf("%s on %s: the machine moves %t, the table %t", s, e, ok, i >= 0)
			} else if ok && got != lifecycle.Table()[i] {
				t.Errorf("%s on %s: the machine says %v, the table %v", s, e, got, lifecycle.Table()[i])
			}
		}
	}
}

// reach lists the states that can follow from these by the events given, the
// first ones included.
func reach(from []lifecycle.State, on []lifecycle.Event) map[lifecycle.State]bool {
	m, seen := lifecycle.NewMachine(), map[lifecycle.State]bool{}
	for todo := from; len(todo) > 0; {
		s := todo[0]
		todo = todo[1:]
		if seen[s] {
			continue
		}
		seen[s] = true
		for _, e := range on {
			if r, ok := m.Next(s, e); ok {
				todo = append(todo, r.To)
			}
		}
	}
	return seen
}

func TestEveryStateCanBeReached(t *testing.T) {
	seen := reach([]lifecycle.State{lifecycle.Stopped}, lifecycle.Events())
	for _, s := range lifecycle.States() {
		if !seen[s] {
			t.Errorf("%s cannot be reached from stopped", s)
		}
	}
}

// walk fires events in turn, leaving out those that have no row, and tells
// where that ends. Once calls were abandoned nothing is in flight any more, so
// that quiet follows of itself.
func walk(s lifecycle.State, events ...lifecycle.Event) lifecycle.State {
	m := lifecycle.NewMachine()
	for _, e := range events {
		r, ok := m.Next(s, e)
		if !ok {
			continue
		}
		s = r.To
		if quiet, ok := m.Next(s, lifecycle.Quiet); ok && r.Do == lifecycle.Abandon {
			s = quiet.To
		}
	}
	return s
}

// TestVerbsEndByTimeAlone: after each verb that ends work its limits suffice to
// end it, when no handler returns and no broker answers.
func TestVerbsEndByTimeAlone(t *testing.T) {
	toStop := []lifecycle.Event{lifecycle.Marked, lifecycle.Soft, lifecycle.Hard, lifecycle.Released}
	toPause := []lifecycle.Event{lifecycle.Marked, lifecycle.SoftQuiet, lifecycle.Hard}
	for _, c := range []struct {
		name string
		verb lifecycle.Event
		time []lifecycle.Event
		end  lifecycle.State
	}{
		{"kill", lifecycle.Kill, []lifecycle.Event{lifecycle.Hard, lifecycle.Released}, lifecycle.Stopped},
		{"stop", lifecycle.Stop, toStop, lifecycle.Stopped},
		{"drain", lifecycle.Drain, toStop, lifecycle.Stopped},
		{"drain of the backlog", lifecycle.Consume, toStop, lifecycle.Stopped},
		{"drain, then paused", lifecycle.Drain, toPause, lifecycle.Paused},
		{"pause", lifecycle.Park, toPause, lifecycle.Paused},
	} {
		m, moved := lifecycle.NewMachine(), 0
		for _, s := range lifecycle.States() {
			r, ok := m.Next(s, c.verb)
			if !ok || s == lifecycle.Failed && c.end == lifecycle.Paused && r.To == lifecycle.Finishing {
				continue // a drain out of FAILED stops first, and then parks
			}
			moved++
			if got := walk(r.To, c.time...); got != c.end {
				t.Errorf("%s in %s ends in %s when nothing but time passes, want %s", c.name, s, got, c.end)
			}
		}
		if moved == 0 {
			t.Errorf("%s moves nothing", c.name)
		}
	}
}

// TestKillReachesClosing: at most one limit lies between a kill and the closing
// of the subscription, in every state but STOPPED.
func TestKillReachesClosing(t *testing.T) {
	for _, s := range lifecycle.States() {
		if s == lifecycle.Stopped {
			continue
		}
		if got := walk(s, lifecycle.Kill, lifecycle.Hard); got != lifecycle.Closing {
			t.Errorf("kill and its limit in %s end in %s, want closing", s, got)
		}
	}
}

// TestNothingEscapesAStop: once a consumer is on its way to STOPPED no event
// that merely happens, and no weaker verb, takes it elsewhere.
func TestNothingEscapesAStop(t *testing.T) {
	weaker := append(happened(), lifecycle.Start, lifecycle.Park, lifecycle.Drain, lifecycle.Consume, lifecycle.Stop)
	weaker = slices.DeleteFunc(weaker, func(e lifecycle.Event) bool { return e == lifecycle.Released })
	for s := range reach([]lifecycle.State{lifecycle.Finishing}, append(weaker, lifecycle.Kill)) {
		if s.Public() != pb.State_STATE_STOPPING {
			t.Errorf("a stop can end up in %s", s)
		}
	}
	for s := range reach([]lifecycle.State{lifecycle.Closing}, weaker) {
		if s != lifecycle.Closing {
			t.Errorf("closing can go back to %s", s)
		}
	}
	for _, r := range lifecycle.Table() {
		if r.To == lifecycle.Stopped && (r.From != lifecycle.Closing || r.On != lifecycle.Released) {
			t.Errorf("%s on %s is STOPPED without a release", r.From, r.On)
		}
	}
}

// TestWhatHappensNeverStarts: only operators, and the end of a backoff that
// they let stand, open an intake; so a paused consumer stays paused whatever
// the broker does.
func TestWhatHappensNeverStarts(t *testing.T) {
	for _, r := range lifecycle.Table() {
		if r.Do == lifecycle.Open && r.On != lifecycle.Start && (r.On != lifecycle.Due || r.From != lifecycle.Backoff) {
			t.Errorf("%s on %s opens", r.From, r.On)
		}
	}
	for s := range reach([]lifecycle.State{lifecycle.Pausing}, happened()) {
		if s != lifecycle.Pausing && s != lifecycle.Paused {
			t.Errorf("without a verb a pause can end up in %s", s)
		}
	}
	for s := range reach([]lifecycle.State{lifecycle.Failed}, happened()) {
		if s != lifecycle.Failed {
			t.Errorf("without a verb FAILED can end up in %s", s)
		}
	}
}

// TestOnlyTableMoves drives the machine with random events: it moves by a row
// or stays, what it says is a fact of the table, and wherever it has come a
// kill and its two limits end it.
func TestOnlyTableMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, s := lifecycle.NewMachine(), lifecycle.Stopped
		for _, e := range rapid.SliceOfN(rapid.SampledFrom(lifecycle.Events()), 1, 60).Draw(t, "events") {
			r, ok := m.Next(s, e)
			switch known := slices.Contains(lifecycle.Table(), r); {
			case ok != known:
				t.Fatalf("%s on %s: moves %t, but the row %v is in the table %t", s, e, ok, r, known)
			case ok && (r.From != s || r.On != e):
				t.Fatalf("%s on %s answers with another's row %v", s, e, r)
			case ok:
				s = r.To
			}
		}
		if end := walk(s, lifecycle.Kill, lifecycle.Hard, lifecycle.Released); end != lifecycle.Stopped {
			t.Fatalf("a kill in %s ends in %s", s, end)
		}
	})
}
