package nats

import (
	"math"

	"github.com/nats-io/nats.go"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// state of a delivery.
type state uint8

const (
	held    state = iota + 1 // arrived, not yet returned by Receive
	out                      // with the caller
	sent                     // acknowledged or given back, no proof yet
	settled                  // proven, or of no more interest
	taken                    // the server delivered it again meanwhile
)

// entry is one delivery in the ledger; Delivery.Ref points to it.
type entry struct {
	next, prev *entry
	s          *subscription
	// reply is the subject that acknowledges it.
	reply string
	// seq is the message's sequence in the stream.
	seq uint64
	// told is when the server last heard that it is being worked on (or sent
	// it), in nanoseconds since conn.base.
	told int64
	// number is its place among those sent, from 1.
	number uint64
	// weight is its size as the server counts it against a pull's max_bytes.
	weight int64
	state  state
	// outcome is what was sent; 0 for a give-back.
	outcome brokers.Outcome
	// reported: counted as unconfirmed once.
	reported bool
	// msg is what Receive makes a delivery of; nil afterwards.
	msg *nats.Msg
	// published and redelivered as the server said.
	published   int64
	redelivered int32
}

// list is a doubly linked list of entries; an entry is in one at most.
type list struct {
	head, tail *entry
	n          int
}

func (l *list) push(e *entry) {
	e.prev, e.next = l.tail, nil
	if l.tail == nil {
		l.head = e
	} else {
		l.tail.next = e
	}
	l.tail = e
	l.n++
}

func (l *list) all() []*entry {
	entries := make([]*entry, 0, l.n)
	for e := l.head; e != nil; e = e.next {
		entries = append(entries, e)
	}
	return entries
}

func (l *list) remove(e *entry) {
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
	e.next, e.prev = nil, nil
	l.n--
}

// ledger knows every delivery of a subscription that the server does not know
// to be over.
type ledger struct {
	held, out, sent list
	// heldBytes is the weight of held.
	heldBytes int64
	// numbers counts what was sent.
	numbers uint64
	// lost counts settlements that came too late, since the last report.
	lost int
	// unproven and repeat count settlements, since then, that are no longer in
	// sent: without a proof, and known to have no effect.
	unproven, repeat int
	// strays counts what was given back without being asked, since then.
	strays int
	// slab is where the next entries come from: one allocation for many.
	slab []entry
	// keys is where the next keys come from.
	keys []byte
}

const slabSize = 16

func (l *ledger) entry() *entry {
	if len(l.slab) == 0 {
		l.slab = make([]entry, slabSize)
	}
	e := &l.slab[0]
	l.slab = l.slab[1:]
	return e
}

func (l *ledger) hold(e *entry) {
	e.state = held
	l.held.push(e)
	l.heldBytes += e.weight
}

func (l *ledger) unhold(e *entry) {
	l.held.remove(e)
	l.heldBytes -= e.weight
}

// send moves an entry of held or out to sent.
func (l *ledger) send(e *entry, o brokers.Outcome) {
	if e.state == held {
		l.unhold(e)
	} else {
		l.out.remove(e)
	}
	e.state, e.outcome, e.msg = sent, o, nil
	l.number(e)
}

// number makes an entry the last of those sent.
func (l *ledger) number(e *entry) {
	l.numbers++
	e.number = l.numbers
	l.sent.push(e)
}

// forget ends an entry, taken out of sent, whose arrival will never be proven.
func (l *ledger) forget(e *entry) {
	e.state = settled
	if e.outcome != 0 && !e.reported {
		l.unproven++
	}
}

// repeats ends acks that the server is known to have ignored.
func (l *ledger) repeats() {
	for e := l.sent.head; e != nil; e = l.sent.head {
		l.sent.remove(e)
		e.state = settled
		if e.outcome == brokers.Ack {
			l.repeat++
		}
	}
}

// prove ends what was sent up to number n.
func (l *ledger) prove(n uint64) {
	for e := l.sent.head; e != nil && e.number <= n; e = l.sent.head {
		l.sent.remove(e)
		e.state = settled
	}
}

// supersede looks for an earlier delivery of the message that e brings again
// and takes it out: the server no longer waits for that one. The scan is for
// redeliveries only.
func (l *ledger) supersede(e *entry) {
	for old := l.held.head; old != nil; old = old.next {
		if old.seq == e.seq {
			l.unhold(old)
			old.state = taken
			return
		}
	}
	for old := l.out.head; old != nil; old = old.next {
		if old.seq == e.seq {
			l.out.remove(old)
			old.state = taken
			return
		}
	}
}

// everything is above all numbers.
const everything = math.MaxUint64

// waits tells whether anything sent up to a number has no proof yet.
func (l *ledger) waits(last uint64) bool { return l.sent.head != nil && l.sent.head.number <= last }

// report tells what happened since the last one, up to a number. Unconfirmed
// counts each settlement once.
func (l *ledger) report(last uint64) brokers.Report {
	r := brokers.Report{Returned: l.strays, OwnershipLost: l.lost, Unconfirmed: l.unproven, WillRepeat: l.repeat}
	l.strays, l.lost, l.unproven, l.repeat = 0, 0, 0, 0
	for e := l.sent.head; e != nil && e.number <= last; e = e.next {
		if e.outcome != 0 && !e.reported {
			e.reported = true
			r.Unconfirmed++
		}
	}
	return r
}

// handOut moves an entry from held to out.
func (l *ledger) handOut(e *entry) {
	l.unhold(e)
	e.state = out
	l.out.push(e)
}

// key copies a subject for Delivery.Key, many into one allocation.
func (l *ledger) key(subject string) []byte {
	if cap(l.keys)-len(l.keys) < len(subject) {
		l.keys = make([]byte, 0, max(keySlab, len(subject)))
	}
	at := len(l.keys)
	l.keys = append(l.keys, subject...)
	return l.keys[at:len(l.keys):len(l.keys)]
}

const keySlab = 1024

// size is what counts towards the credit: body, headers and key.
func (e *entry) size(withKey bool) int64 {
	size := int64(e.msg.Size() - len(e.msg.Subject) - len(e.msg.Reply))
	if withKey {
		size += int64(len(e.msg.Subject))
	}
	return size
}
