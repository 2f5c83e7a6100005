package kafka

import (
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"
)

// model is a partition as it is meant to be: a log with holes, and what became
// of each record, one by one.
type model struct {
	t       *tracker
	log     []int64              // offsets of records, rising
	state   map[int64]placeState // of those that were delivered
	fetched int64                // where the client fetches next
}

// TestTrackerAgainstModel drives a tracker through fetches, acks, give-backs,
// rewinds and records that vanish from the log in between.
func TestTrackerAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{t: newTracker(nil, "t", 0, 0, "m"), state: map[int64]placeState{}}
		at := int64(rapid.IntRange(0, 5).Draw(rt, "first"))
		for range rapid.IntRange(1, 60).Draw(rt, "records") {
			m.log = append(m.log, at)
			at += int64(rapid.SampledFrom([]int{1, 1, 1, 1, 2, 7, 100}).Draw(rt, "step"))
		}
		rt.Repeat(map[string]func(*rapid.T){
			"fetch":  m.fetch,
			"ack":    func(rt *rapid.T) { m.settle(rt, "acked", m.t.ack, done) },
			"free":   func(rt *rapid.T) { m.settle(rt, "freed", m.t.free, freed) },
			"rewind": func(*rapid.T) { m.rewind() },
			"vanish": m.vanish,
			"":       m.check,
		})
		m.finish(rt)
	})
}

// fetch brings the next records, which a tracker that waits for a rewind drops.
func (m *model) fetch(rt *rapid.T) {
	if m.t.rewind != unknown {
		return
	}
	n := rapid.IntRange(1, 20).Draw(rt, "fetched")
	for _, o := range m.log {
		if o < m.fetched || n == 0 {
			continue
		}
		n--
		m.bring(rt, o)
	}
}

func (m *model) bring(rt *rapid.T, o int64) {
	was, known := m.state[o]
	got := m.t.admit(&kgo.Record{Offset: o})
	want := skip
	if !known || was == freed {
		want = deliver
		m.state[o] = out
	}
	if got != want {
		rt.Fatalf("offset %d, known %v as %v: verdict %v, want %v", o, known, was, got, want)
	}
	// What was freed below and did not come is gone.
	for below, s := range m.state {
		if below >= m.fetched && below < o && s == freed {
			m.state[below] = vanished
		}
	}
	m.fetched = o + 1
}

func (m *model) settle(rt *rapid.T, what string, book func(int64) bool, to placeState) {
	var outs []int64
	for o, s := range m.state {
		if s == out {
			outs = append(outs, o)
		}
	}
	if len(outs) == 0 {
		return
	}
	slices.Sort(outs)
	o := rapid.SampledFrom(outs).Draw(rt, what)
	if !book(o) {
		rt.Fatalf("%d is out, but could not be %s", o, what)
	}
	m.state[o] = to
	if book(o) {
		rt.Fatalf("%d was %s twice", o, what)
	}
}

func (m *model) rewind() {
	if m.t.rewind != unknown {
		m.fetched = m.t.rewound()
	}
}

// vanish takes a record that was freed out of the log.
func (m *model) vanish(rt *rapid.T) {
	i := slices.IndexFunc(m.log, func(o int64) bool { s, ok := m.state[o]; return ok && s == freed })
	if i < 0 || !rapid.Bool().Draw(rt, "compact") {
		return
	}
	m.log = slices.Delete(m.log, i, i+1)
}

// check compares what may be committed, and the counts.
func (m *model) check(rt *rapid.T) {
	want, count := int64(unknown), map[placeState]int{}
	offsets := slices.Sorted(maps.Keys(m.state))
	if len(offsets) > 0 {
		want = offsets[0]
	}
	gap := false
	for _, o := range offsets {
		switch s := m.state[o]; {
		case s == out || s == freed:
			gap = true
			count[s]++
		case !gap:
			want = o + 1
		default:
			count[s]++
		}
	}
	t := m.t
	if t.position != want && len(offsets) > 0 {
		rt.Fatalf("the position is %d, want %d; %v", t.position, want, m.state)
	}
	if t.freed != count[freed] || t.done != count[done] || t.places.n != count[out]+count[freed]+count[done]+count[vanished] {
		rt.Fatalf("%d freed, %d done of %d places; want %v", t.freed, t.done, t.places.n, count)
	}
}

// finish handles all that is left: nothing may be stuck.
func (m *model) finish(rt *rapid.T) {
	for range 2 * (len(m.log) + 1) {
		m.rewind()
		for _, o := range m.log {
			if o >= m.fetched {
				m.bring(rt, o)
			}
		}
		for o, s := range m.state {
			if s == out {
				m.t.ack(o)
				m.state[o] = done
			}
		}
	}
	// A record that vanished at the very end is missed when the next one comes.
	m.bring(rt, m.t.next+1000)
	m.t.ack(m.t.next - 1)
	if m.t.places.n != 0 || m.t.position != m.t.next {
		rt.Fatalf("%d places are left, the position is %d of %d", m.t.places.n, m.t.position, m.t.next)
	}
}

func TestTrackerCountsUnprovenOnce(t *testing.T) {
	tr := newTracker(nil, "t", 0, 0, "m")
	for o := range int64(5) {
		tr.admit(&kgo.Record{Offset: o})
		tr.ack(o)
	}
	for i, want := range []int{3, 0} {
		if got := tr.unproven(3); got != want {
			t.Errorf("report %d: %d acks up to the third are unproven, want %d", i, got, want)
		}
	}
	tr.proven = 4
	if got := tr.unproven(5); got != 1 {
		t.Errorf("%d are unproven beyond the fourth, want 1", got)
	}
}

func TestPositionsNoteTheirTopic(t *testing.T) {
	id := [16]byte{1, 2, 3}
	if got, ok := noted(noteOf(id)); !ok || got != id {
		t.Errorf("%v, %v from the note of %v", got, ok, id)
	}
	for _, other := range []string{"", "member-7", notePrefix + "not base64!", notePrefix + "AAAA"} {
		if id, ok := noted(&other); ok {
			t.Errorf("%q was read as %v", other, id)
		}
	}
	if _, ok := noted(nil); ok {
		t.Error("no metadata was read as a note")
	}
}
