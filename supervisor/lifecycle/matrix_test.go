package lifecycle_test

import (
	"strings"
	"testing"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/lifecycle"
)

// matrix is the promise to operators, in their words. The documentation shows
// this text; the code is held to it here.
const matrix = `
| verb | STOPPED | STARTING, RUNNING | BACKOFF | PAUSING, PAUSED | DRAINING | STOPPING | FAILED |
|---|---|---|---|---|---|---|---|
| start | acts | no-op | retries now | no-op, holds stand | cancels the drain | starts after it | acts |
| pause | hold is noted: a start ends PAUSED | acts | acts | updates reason, until | hold is noted | hold is noted | hold is noted |
| resume | removes the hold | no-op | removes | acts | removes | removes | removes |
| drain | no-op | acts | acts | acts | no-op, limits updated | no-op | to STOPPED |
| stop | no-op | acts | acts | acts | overtakes | no-op | to STOPPED |
| kill | no-op | acts | acts | acts | overtakes | overtakes | to STOPPED |
| restart | = start | acts | acts | acts, holds stand | overtakes, then starts | then starts | acts |
| delete | acts | refused; ` + "`--force`" + ` kills first | refused | refused | refused | refused | acts |
`

// cell is one promise.
type cell struct {
	verb  pb.Verb
	state pb.State
	words string
}

// cells reads the matrix.
func cells(t *testing.T) []cell {
	t.Helper()
	var out []cell
	var columns [][]pb.State
	for i, line := range strings.Split(strings.TrimSpace(matrix), "\n") {
		fields := strings.Split(strings.Trim(line, "|"), "|")
		for j := range fields {
			fields[j] = strings.TrimSpace(fields[j])
		}
		switch i {
		case 0:
			for _, f := range fields[1:] {
				columns = append(columns, statesNamed(t, f))
			}
		case 1:
		default:
			v, ok := pb.Verb_value["VERB_"+strings.ToUpper(fields[0])]
			if !ok || len(fields) != len(columns)+1 {
				t.Fatalf("row %q: no such verb, or not %d columns", line, len(columns)+1)
			}
			for j, states := range columns {
				for _, s := range states {
					out = append(out, cell{pb.Verb(v), s, fields[j+1]})
				}
			}
		}
	}
	return out
}

func statesNamed(t *testing.T, names string) []pb.State {
	t.Helper()
	var out []pb.State
	for n := range strings.SplitSeq(names, ", ") {
		s, ok := pb.State_value["STATE_"+n]
		if !ok {
			t.Fatalf("no state %q", n)
		}
		out = append(out, pb.State(s))
	}
	return out
}

// meanings say what the words of the matrix are in code.
func meanings() map[string]lifecycle.Decision {
	return map[string]lifecycle.Decision{
		"acts":                               lifecycle.Acts,
		"acts, holds stand":                  lifecycle.Acts,
		"retries now":                        lifecycle.Acts,
		"to STOPPED":                         lifecycle.Acts,
		"= start":                            lifecycle.Acts,
		"no-op":                              lifecycle.NoOp,
		"no-op, holds stand":                 lifecycle.NoOp,
		"no-op, limits updated":              lifecycle.Updates,
		"updates reason, until":              lifecycle.Updates,
		"hold is noted":                      lifecycle.Noted,
		"hold is noted: a start ends PAUSED": lifecycle.Noted,
		"removes":                            lifecycle.Noted,
		"removes the hold":                   lifecycle.Noted,
		"starts after it":                    lifecycle.Noted,
		"then starts":                        lifecycle.Noted,
		"cancels the drain":                  lifecycle.Cancels,
		"overtakes":                          lifecycle.Overtakes,
		"overtakes, then starts":             lifecycle.Overtakes,
		"refused":                            lifecycle.Refusal,
		"refused; `--force` kills first":     lifecycle.Refusal,
	}
}

func TestVerbsDecideAsPromised(t *testing.T) {
	all := cells(t)
	if want := len(lifecycle.Verbs()) * len(lifecycle.Columns()); len(all) != want {
		t.Errorf("the matrix has %d cells, the code has %d", len(all), want)
	}
	for _, c := range all {
		want, ok := meanings()[c.words]
		if !ok {
			t.Errorf("%s in %s: nobody says what %q means", c.verb, c.state, c.words)
			continue
		}
		if got := lifecycle.Decide(c.verb, c.state); got != want {
			t.Errorf("%s in %s: %q is %s, but the code decides %s", c.verb, c.state, c.words, want, got)
		}
	}
}

// TestEveryPublicStateIsInTheMatrix: no state is forgotten, and what is none is
// refused.
func TestEveryPublicStateIsInTheMatrix(t *testing.T) {
	promised, shown := map[pb.State]bool{}, map[pb.State]bool{}
	for _, c := range cells(t) {
		promised[c.state] = true
	}
	for _, s := range lifecycle.States() {
		shown[s.Public()] = true
		if !promised[s.Public()] {
			t.Errorf("%s is shown as %s, for which nothing is promised", s, s.Public())
		}
	}
	for s := range promised {
		if !shown[s] {
			t.Errorf("%s is promised, but no state is shown so", s)
		}
	}
	for n := range pb.State_name {
		if s := pb.State(n); s != pb.State_STATE_UNSPECIFIED && !promised[s] {
			t.Errorf("the API has %s, for which nothing is promised", s)
		}
	}
	for _, v := range lifecycle.Verbs() {
		if d := lifecycle.Decide(v, pb.State_STATE_UNSPECIFIED); d != lifecycle.Refusal {
			t.Errorf("%s in no state: %s, want refused", v, d)
		}
	}
	if d := lifecycle.Decide(pb.Verb_VERB_UNSPECIFIED, pb.State_STATE_RUNNING); d != lifecycle.Refusal {
		t.Errorf("no verb: %s, want refused", d)
	}
}

// TestOnlyDeleteIsEverRefused: "make sure that this does not run" must always
// work, and so must everything that an operator may try at night.
func TestOnlyDeleteIsEverRefused(t *testing.T) {
	for _, c := range cells(t) {
		refused := lifecycle.Decide(c.verb, c.state) == lifecycle.Refusal
		if refused && c.verb != pb.Verb_VERB_DELETE {
			t.Errorf("%s is refused in %s", c.verb, c.state)
		}
		legal := false
		for _, v := range lifecycle.Legal(c.state) {
			legal = legal || v == c.verb
		}
		if legal == refused {
			t.Errorf("%s in %s: refused %t, but listed among the legal verbs %t", c.verb, c.state, refused, legal)
		}
	}
}

// TestStrengthOrdersTheVerbs: kill > stop > drain > pause, and what is built on
// one of them is as strong.
func TestStrengthOrdersTheVerbs(t *testing.T) {
	order := [][]pb.Verb{
		{pb.Verb_VERB_START, pb.Verb_VERB_RESUME, pb.Verb_VERB_SCALE},
		{pb.Verb_VERB_PAUSE},
		{pb.Verb_VERB_DRAIN},
		{pb.Verb_VERB_STOP, pb.Verb_VERB_RESTART, pb.Verb_VERB_SHUTDOWN},
		{pb.Verb_VERB_KILL, pb.Verb_VERB_DELETE},
	}
	for want, verbs := range order {
		for _, v := range verbs {
			if got := lifecycle.Strength(v); got != want {
				t.Errorf("%s has strength %d, want %d", v, got, want)
			}
		}
	}
}

// moveOf is the event that a verb fires where it moves the consumer.
func moveOf(v pb.Verb) lifecycle.Event {
	return map[pb.Verb]lifecycle.Event{
		pb.Verb_VERB_START: lifecycle.Start, pb.Verb_VERB_PAUSE: lifecycle.Park, pb.Verb_VERB_RESUME: lifecycle.Start,
		pb.Verb_VERB_DRAIN: lifecycle.Drain, pb.Verb_VERB_STOP: lifecycle.Stop, pb.Verb_VERB_KILL: lifecycle.Kill,
		pb.Verb_VERB_RESTART: lifecycle.Stop, pb.Verb_VERB_DELETE: lifecycle.Stop,
	}[v]
}

// TestTableCarriesOutWhatIsDecided: where a verb acts there is a row for it in
// every state that is shown so, and where it must not move there is none.
func TestTableCarriesOutWhatIsDecided(t *testing.T) {
	m := lifecycle.NewMachine()
	for _, s := range lifecycle.States() {
		for _, v := range lifecycle.Verbs() {
			e := moveOf(v)
			switch {
			case s == lifecycle.Stopped && v == pb.Verb_VERB_RESTART:
				e = lifecycle.Start // "= start"
			case s == lifecycle.Stopped && v == pb.Verb_VERB_DELETE:
				continue // at rest already
			}
			_, moves := m.Next(s, e)
			switch d := lifecycle.Decide(v, s.Public()); d {
			case lifecycle.Acts, lifecycle.Cancels, lifecycle.Overtakes:
				if !moves {
					t.Errorf("%s %s in %s, but the table has no row for %s there", v, d, s, e)
				}
			case lifecycle.NoOp, lifecycle.Updates:
				// Start has a row in PAUSING and PAUSED: that is resume's.
				if moves && v != pb.Verb_VERB_START {
					t.Errorf("%s in %s is %s, but the table moves on %s", v, s, d, e)
				}
			}
		}
	}
}

// TestHeldConsumersNeverOpen: with a hold standing the event is Park, never
// Start, and no row on Park opens the intake.
func TestHeldConsumersNeverOpen(t *testing.T) {
	for _, r := range lifecycle.Table() {
		if r.On != lifecycle.Park {
			continue
		}
		if r.Do == lifecycle.Open || r.To.Public() != pb.State_STATE_PAUSING && r.To.Public() != pb.State_STATE_PAUSED {
			t.Errorf("%s on park moves to %s and does %s", r.From, r.To, r.Do)
		}
	}
	m := lifecycle.NewMachine()
	for _, s := range []lifecycle.State{lifecycle.Stopped, lifecycle.Failed} {
		if r, ok := m.Next(s, lifecycle.Park); !ok || r.To != lifecycle.Paused {
			t.Errorf("a start in %s under a hold does not end PAUSED", s)
		}
	}
}

// TestDeleteActsAtRestOnly: delete acts in the two states where nothing runs.
func TestDeleteActsAtRestOnly(t *testing.T) {
	for _, s := range lifecycle.Columns() {
		rest := s == pb.State_STATE_STOPPED || s == pb.State_STATE_FAILED
		if acts := lifecycle.Decide(pb.Verb_VERB_DELETE, s) == lifecycle.Acts; acts != rest {
			t.Errorf("delete in %s: acts %t, want %t", s, acts, rest)
		}
	}
}
