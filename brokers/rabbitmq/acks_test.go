package rabbitmq

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// queueModel is what a broker does with acknowledgements on one channel.
type queueModel struct {
	t *rapid.T
	// unacked holds the tags that are out, in order.
	unacked []uint64
	// got is what became of the others.
	got map[uint64]brokers.Outcome
}

func (m *queueModel) take(o op) {
	if !slices.Contains(m.unacked, o.tag) {
		m.t.Fatalf("unknown delivery tag %d: the broker would close the channel", o.tag)
	}
	if o.multiple && o.outcome == brokers.Retry {
		m.t.Fatal("basic.reject knows no multiple")
	}
	m.unacked = slices.DeleteFunc(m.unacked, func(tag uint64) bool {
		if tag == o.tag || o.multiple && tag < o.tag {
			m.got[tag] = o.outcome
			return true
		}
		return false
	})
}

// Whatever the order in which deliveries are settled and acknowledgements written,
// each gets its own outcome, once, and nothing that is unsettled gets one.
func TestLedgerSettlesWhatWasSettled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			l    ledger
			next uint64
			out  []*entry
			want = map[uint64]brokers.Outcome{}
			m    = &queueModel{t: t, got: map[uint64]brokers.Outcome{}}
		)
		write := func(all bool) {
			for _, o := range l.collect(nil, all) {
				m.take(o)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"deliver": func(t *rapid.T) {
				for range rapid.IntRange(1, 70).Draw(t, "n") {
					next++
					m.unacked = append(m.unacked, next)
					out = append(out, l.add(nil, next))
				}
			},
			"settle": func(t *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(t, "n") {
					if len(out) == 0 {
						return
					}
					i := rapid.IntRange(0, len(out)-1).Draw(t, "which")
					o := rapid.SampledFrom([]brokers.Outcome{brokers.Ack, brokers.Ack, brokers.Ack, brokers.Retry, brokers.Release}).Draw(t, "outcome")
					if !l.settle(out[i], o) || l.settle(out[i], brokers.Ack) {
						t.Fatal("an outcome is taken once")
					}
					want[out[i].tag] = o
					out = slices.Delete(out, i, i+1)
				}
				l.advance()
			},
			"writeReady": func(*rapid.T) { write(false) },
			"writeAll": func(t *rapid.T) {
				write(true)
				if len(m.got) != len(want) {
					t.Fatalf("%d of %d outcomes are written", len(m.got), len(want))
				}
			},
			"": func(t *rapid.T) {
				if l.unsettled != len(out) || l.pending != len(want)-len(m.got) {
					t.Fatalf("counted %d unsettled and %d pending, there are %d and %d", l.unsettled, l.pending, len(out), len(want)-len(m.got))
				}
				for tag, o := range m.got {
					if want[tag] != o {
						t.Fatalf("tag %d was settled %d, the broker was told %d", tag, want[tag], o)
					}
				}
			},
		})
	})
}

// What is settled in order is acknowledged as one, and what is not ready waits.
func TestLedgerCoalesces(t *testing.T) {
	var l ledger
	entries := make([]*entry, 100)
	for i := range entries {
		entries[i] = l.add(nil, uint64(i+1))
	}
	for i, e := range entries {
		if i != 60 {
			l.settle(e, brokers.Ack)
		}
	}
	l.advance()
	if l.ready != 60 {
		t.Errorf("%d are ready, want the 60 below the gap", l.ready)
	}
	if got, want := l.collect(nil, false), []op{{60, brokers.Ack, true}}; !slices.Equal(got, want) {
		t.Errorf("written %v, want %v", got, want)
	}
	l.settle(entries[60], brokers.Ack)
	if got, want := l.collect(nil, true), []op{{100, brokers.Ack, true}}; !slices.Equal(got, want) {
		t.Errorf("written %v, want %v", got, want)
	}
	if l.head != nil || l.tail != nil || l.pending != 0 {
		t.Errorf("something is left: %+v", l)
	}
}
