package rabbitmq

import "github.com/seed-111f5b8e/supervisord/brokers"

// state of a delivery.
type state uint8

const (
	unsettled state = iota + 1 // with the driver or the caller
	pending                    // settled, not yet written
	written                    // or of no more interest
)

// entry is one delivery in the ledger; Delivery.Ref points to it.
type entry struct {
	next, prev *entry
	s          *subscription
	tag        uint64
	state      state
	outcome    brokers.Outcome
}

// op is one acknowledgement on the wire. With multiple it settles all up to its
// tag that is not settled yet.
type op struct {
	tag      uint64
	outcome  brokers.Outcome
	multiple bool
}

// ledger lists, in the order of their tags, the deliveries of a channel that have
// not been written back, and finds the fewest acknowledgements for those that are
// settled: one for each run of equal outcomes at the head of the list, below which
// nothing is unsettled, and single ones for what is settled above a gap.
type ledger struct {
	head, tail *entry
	// unsettled and pending count entries.
	unsettled, pending int
	// frontier is the last of the pending entries at the head, ready counts them.
	frontier *entry
	ready    int
	// slab is where the next entries come from: one allocation for many.
	slab []entry
}

const slabSize = 32

// add appends a delivery; tags rise.
func (l *ledger) add(s *subscription, tag uint64) *entry {
	if len(l.slab) == 0 {
		l.slab = make([]entry, slabSize)
	}
	e := &l.slab[0]
	l.slab = l.slab[1:]
	e.s, e.tag, e.state, e.prev = s, tag, unsettled, l.tail
	if l.tail == nil {
		l.head = e
	} else {
		l.tail.next = e
	}
	l.tail = e
	l.unsettled++
	return e
}

// settle takes an outcome, once.
func (l *ledger) settle(e *entry, o brokers.Outcome) bool {
	if e.state != unsettled {
		return false
	}
	e.state, e.outcome = pending, o
	l.unsettled--
	l.pending++
	return true
}

// advance moves the frontier over what has been settled since.
func (l *ledger) advance() {
	next := l.head
	if l.frontier != nil {
		next = l.frontier.next
	}
	for ; next != nil && next.state == pending; next = next.next {
		l.frontier = next
		l.ready++
	}
}

// collect takes out what is ready, and with all also what is settled above a gap,
// and appends how to write it, in this order.
func (l *ledger) collect(ops []op, all bool) []op {
	l.advance()
	for ; l.ready > 0; l.ready-- {
		e := l.head
		// basic.reject knows no multiple.
		if n := len(ops); e.outcome != brokers.Retry && n > 0 && ops[n-1].outcome == e.outcome {
			ops[n-1].tag, ops[n-1].multiple = e.tag, true
		} else {
			ops = append(ops, op{tag: e.tag, outcome: e.outcome})
		}
		l.remove(e)
	}
	l.frontier = nil
	if !all {
		return ops
	}
	for e := l.head; e != nil && l.pending > 0; {
		next := e.next
		if e.state == pending {
			ops = append(ops, op{tag: e.tag, outcome: e.outcome})
			l.remove(e)
		}
		e = next
	}
	return ops
}

// remove takes a pending entry out.
func (l *ledger) remove(e *entry) {
	if e.prev == nil {
		l.head = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.tail = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.next, e.prev, e.state = nil, nil, written
	l.pending--
}

// giveBack settles all that is unsettled as Release.
func (l *ledger) giveBack() {
	for e := l.head; e != nil; e = e.next {
		l.settle(e, brokers.Release)
	}
}

// unsent counts acks that were not written and never will be.
func (l *ledger) unsent() int {
	n := 0
	for e := l.head; e != nil; e = e.next {
		if e.state == pending && e.outcome == brokers.Ack {
			n++
		}
	}
	return n
}
