package memory

import (
	"github.com/seed-111f5b8e/supervisord/brokers"
)

// positions keeps one position per partition. What a subscription acks above a
// gap is known to it only, until the gap is closed.
type positions struct {
	q     *queue
	parts []*partition
	turn  int64
	// shift rotates the partitions over the subscriptions.
	shift int
}

// partition is a log and how far it was acked.
type partition struct {
	index     int
	log       []*message
	committed int64
	lot       *lot // nil: with nobody
}

// lot is a partition in the hands of a subscription.
type lot struct {
	part   *partition
	sub    *subscription
	origin *brokers.Origin
	// next is the lowest offset that may not have been delivered.
	next int64
	// places holds what became of the offsets from part.committed on.
	places []place
	// out and done count places.
	out, done int
	// revoking: it was asked for, and nothing of it is delivered. again: it is to
	// be asked for although its subscription keeps it.
	revoking, again bool
}

// place is where an offset stands.
type place uint8

const (
	free place = iota
	out
	done
)

func newPositions(q *queue) *positions {
	p := &positions{q: q, parts: make([]*partition, q.o.Partitions)}
	for i := range p.parts {
		p.parts[i] = &partition{index: i}
	}
	return p
}

func (p *positions) capabilities() brokers.Capabilities {
	return brokers.Capabilities{
		Pause:      "stops taking and keeps its partitions: what waits there waits until resume",
		Membership: true, Positions: true, Partitions: len(p.parts) > 1,
		MessagesHard: p.q.o.Prefetch == 0, BytesHard: p.q.o.Prefetch == 0, Lag: true,
	}
}

func (p *positions) add(m *message) {
	m.partition = m.Message.partition(p.turn, len(p.parts))
	p.turn++
	part := p.parts[m.partition]
	m.seq = int64(len(part.log))
	part.log = append(part.log, m)
	p.q.note(Published, nil, m)
}

func (p *positions) take(s *subscription, limit brokers.Credit) []brokers.Delivery {
	var ds []brokers.Delivery
	for range s.lots {
		s.turn = (s.turn + 1) % len(s.lots)
		if l := s.lots[s.turn]; !l.revoking {
			ds = l.take(ds, &limit)
		}
	}
	return ds
}

// take appends what of l is free, and takes it off the limit.
func (l *lot) take(ds []brokers.Delivery, limit *brokers.Credit) []brokers.Delivery {
	for ; l.next < int64(len(l.part.log)) && limit.Messages > 0; l.next++ {
		i := int(l.next - l.part.committed)
		for len(l.places) <= i {
			l.places = append(l.places, free)
		}
		if l.places[i] != free {
			continue
		}
		m := l.part.log[l.next]
		if m.size > limit.Bytes && len(ds) > 0 {
			limit.Messages = 0
			break
		}
		limit.Messages--
		limit.Bytes -= m.size
		h := &held{msg: m, sub: l.sub, lot: l}
		ds = append(ds, brokers.Delivery{})
		m.delivery(&ds[len(ds)-1], l.origin, l.sub.q.name, h)
		l.places[i] = out
		l.out++
		l.sub.has.add(h)
		l.sub.q.note(Delivered, l.sub, m)
	}
	return ds
}

func (p *positions) settle(s *subscription, st []brokers.Settlement) {
	back := false
	for i := range st {
		h := s.mine(st[i].Delivery)
		if h == nil {
			s.ownershipLost++
			continue
		}
		switch st[i].Outcome {
		case brokers.Ack:
			h.lot.ack(h)
			p.q.note(Acked, s, h.msg)
		case brokers.Retry:
			h.lot.free(h)
			p.q.note(Retried, s, h.msg)
			back = true
		case brokers.Release:
			h.lot.free(h)
			p.q.note(Returned, s, h.msg)
			back = true
		}
	}
	if back {
		p.q.dispatch()
	}
}

func (p *positions) giveBack(s *subscription, ds []*brokers.Delivery) {
	for _, d := range ds {
		if h := s.mine(d); h != nil {
			h.lot.free(h)
			p.q.note(Returned, s, h.msg)
		}
	}
}

// ack is done with h, and commits what has no gap below it.
func (l *lot) ack(h *held) {
	l.sub.has.remove(h)
	l.places[h.msg.seq-l.part.committed] = done
	l.out--
	l.done++
	for len(l.places) > 0 && l.places[0] == done {
		l.places = l.places[1:]
		l.done--
		l.part.committed++
	}
	l.next = max(l.next, l.part.committed)
}

// taken is the way from the position to behind the highest offset taken.
func (l *lot) taken() int64 {
	for i := len(l.places); i > 0; i-- {
		if l.places[i-1] != free {
			return int64(i)
		}
	}
	return 0
}

// free rewinds to h.
func (l *lot) free(h *held) {
	l.sub.has.remove(h)
	l.places[h.msg.seq-l.part.committed] = free
	l.out--
	l.next = min(l.next, h.msg.seq)
}

func (p *positions) count() (waiting, unacked int64) {
	for _, part := range p.parts {
		waiting += int64(len(part.log)) - part.committed
		if l := part.lot; l != nil {
			waiting -= int64(l.out + l.done)
			unacked += int64(l.out)
		}
	}
	return waiting, unacked
}

func (p *positions) peek() []*message {
	var ms []*message
	for _, part := range p.parts {
		for at := part.committed; at < int64(len(part.log)); at++ {
			if l, i := part.lot, int(at-part.committed); l == nil || i >= len(l.places) || l.places[i] == free {
				ms = append(ms, part.log[at])
			}
		}
	}
	return ms
}
