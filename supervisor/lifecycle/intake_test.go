package lifecycle_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/seed-111f5b8e/supervisord/supervisor/lifecycle"
)

// plant is what the effects have done to the outside: whether the consumer has
// a subscription, and whether messages still come in over it.
type plant struct {
	state      lifecycle.State
	subscribed bool
	taking     bool // messages arrive
	starting   bool // handler calls may start
	goal       goal
	backlog    bool // a drain consumes to its mark
}

type goal uint8

const (
	run goal = iota
	pause
	stop
)

// after applies a row as the effects' comments say.
func (p plant) after(r lifecycle.Row) plant {
	p.state = r.To
	switch r.On {
	case lifecycle.Start, lifecycle.Due:
		p.goal = run
	case lifecycle.Park:
		p.goal = pause
	case lifecycle.Stop, lifecycle.Kill:
		p.goal = stop
	}
	p.backlog = r.On == lifecycle.Consume && p.taking || p.backlog && p.taking && r.On != lifecycle.Marked
	switch r.Do {
	case lifecycle.Open:
		p.subscribed, p.taking, p.starting = true, true, true
	case lifecycle.Hold, lifecycle.Cancel:
		p.taking, p.starting = false, false
	case lifecycle.Shut:
		p.taking = false
	case lifecycle.Close, lifecycle.Reap, lifecycle.Detach, lifecycle.Delay:
		p.subscribed, p.taking, p.starting = false, false, false
	}
	return p
}

// possible says whether an event can come at all: the ends of work and the
// limits come only once the intake is closed, and for the goal they belong to.
func (p plant) possible(e lifecycle.Event) bool {
	switch e {
	case lifecycle.Idle, lifecycle.Soft:
		return !p.taking && !p.backlog && p.goal != pause
	case lifecycle.Quiet, lifecycle.SoftQuiet:
		return !p.taking && !p.backlog && p.goal == pause
	case lifecycle.Hard:
		return !p.taking && !p.backlog
	case lifecycle.Marked:
		return p.backlog
	}
	return true
}

// wrong tells what must not be in this state.
func (p plant) wrong() string {
	takes := []lifecycle.State{lifecycle.Starting, lifecycle.Running}
	starts := append(slices.Clone(takes), lifecycle.Draining)
	var out []string
	switch p.state {
	case lifecycle.Stopped, lifecycle.Failed, lifecycle.Backoff, lifecycle.Closing:
		if p.subscribed {
			out = append(out, "it has a subscription")
		}
	case lifecycle.Starting, lifecycle.Running:
		if !p.subscribed || !p.taking || !p.starting {
			out = append(out, "it does not take")
		}
	}
	if p.taking && !slices.Contains(takes, p.state) && (p.state != lifecycle.Draining || !p.backlog) {
		out = append(out, "messages arrive")
	}
	if p.starting && !slices.Contains(starts, p.state) && p.state != lifecycle.Paused {
		out = append(out, "handler calls may start")
	}
	return strings.Join(out, " and ")
}

// TestEffectsKeepWhatTheStatePromises goes through every combination of state
// and outside that any order of events leads to. A consumer that is shown
// PAUSED, STOPPING or STOPPED takes nothing; one that is STOPPED, FAILED or in
// BACKOFF keeps no subscription; one that is RUNNING has its intake open.
func TestEffectsKeepWhatTheStatePromises(t *testing.T) {
	m := lifecycle.NewMachine()
	first := plant{state: lifecycle.Stopped, goal: stop}
	path := map[plant]string{first: "stopped"}
	visited := map[lifecycle.State]bool{}
	for todo := []plant{first}; len(todo) > 0; {
		p := todo[0]
		todo = todo[1:]
		visited[p.state] = true
		if w := p.wrong(); w != "" {
			t.Errorf("%s, although %s: %s", p.state, w, path[p])
		}
		for _, e := range lifecycle.Events() {
			r, ok := m.Next(p.state, e)
			if !ok || !p.possible(e) {
				continue
			}
			for _, next := range choices(p.after(r), e) {
				if _, ok := path[next]; !ok {
					path[next] = path[p] + " -" + e.String() + "-> " + next.state.String()
					todo = append(todo, next)
				}
			}
		}
	}
	for _, s := range lifecycle.States() {
		if !visited[s] {
			t.Errorf("never came to %s: the walk proves nothing about it", s)
		}
	}
}

// choices are the goals that a drain may have.
func choices(p plant, e lifecycle.Event) []plant {
	if e != lifecycle.Drain && e != lifecycle.Consume || p.state != lifecycle.Draining {
		return []plant{p}
	}
	parks, stops := p, p
	parks.goal, stops.goal = pause, stop
	return []plant{parks, stops}
}
