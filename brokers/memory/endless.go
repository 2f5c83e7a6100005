package memory

import "github.com/seed-111f5b8e/supervisord/brokers"

const (
	// slabSize is how many deliveries are made at once, and the most of a batch.
	slabSize = 128
	// slabsIdle is how many settled slabs rest before the oldest is used again.
	slabsIdle = 2
)

// endless makes deliveries in slabs, which it uses again when all of them are
// settled: then a batch costs no allocation, and a message a few nanoseconds.
type endless struct {
	q *queue
	// template is a slab that lacks only origin, position and Ref.
	template []brokers.Delivery
	// Given back and retried ones are counted, and not delivered again.
	taken, settled int64
}

// feed is one origin of an endless queue, for one subscription.
type feed struct {
	origin *brokers.Origin
	next   int64
	slab   *slab
	// rest of the slab is yet to be taken.
	rest []brokers.Delivery
	idle []*slab
}

// slab is the Ref of its deliveries.
type slab struct {
	feed *feed
	ds   []brokers.Delivery
	// left are not settled. What is given back stays so: its holder may look at
	// it for ever, and the slab is not used again.
	left int
}

func newEndless(q *queue) *endless {
	e := &endless{q: q, template: make([]brokers.Delivery, slabSize)}
	for i := range e.template {
		m := &q.o.Endless[i%len(q.o.Endless)]
		e.template[i] = brokers.Delivery{
			Name: m.ID, Subject: q.name, Key: m.Key, Body: m.Body, Headers: m.headers(), Size: m.size(),
		}
	}
	return e
}

func (e *endless) join(s *subscription) {
	for i := range max(1, e.q.o.Partitions) {
		o := &brokers.Origin{Name: e.q.name, Index: i}
		if e.q.o.Partitions > 0 {
			o.Name = partitionName(e.q.name, i)
		}
		s.feeds = append(s.feeds, &feed{origin: o})
	}
}

func (e *endless) take(s *subscription, limit brokers.Credit) []brokers.Delivery {
	s.turn = (s.turn + 1) % len(s.feeds)
	f := s.feeds[s.turn]
	if len(f.rest) == 0 {
		f.refill(e.template)
	}
	n := within(f.rest, limit)
	batch := f.rest[:n:n]
	f.rest = f.rest[n:]
	e.taken += int64(n)
	return batch
}

// refill begins the next slab.
func (f *feed) refill(template []brokers.Delivery) {
	if len(f.idle) > slabsIdle {
		f.slab, f.idle = f.idle[0], append(f.idle[:0], f.idle[1:]...)
	} else {
		f.slab = &slab{feed: f, ds: make([]brokers.Delivery, len(template))}
		copy(f.slab.ds, template)
		for i := range f.slab.ds {
			f.slab.ds[i].Origin, f.slab.ds[i].Ref = f.origin, f.slab
		}
	}
	f.slab.left = len(f.slab.ds)
	f.rest = f.slab.ds
	for i := range f.rest {
		d := &f.rest[i]
		d.Position, d.Attempt = f.next, 0
		f.next++
	}
}

func (e *endless) settle(_ *subscription, st []brokers.Settlement) {
	for i := range st {
		l, ok := st[i].Delivery.Ref.(*slab)
		if !ok {
			continue // of another queue; Settle has complained
		}
		if l.left--; l.left == 0 {
			l.feed.idle = append(l.feed.idle, l)
		}
	}
	e.settled += int64(len(st))
}

func (e *endless) giveBack(_ *subscription, ds []*brokers.Delivery) { e.settled += int64(len(ds)) }

func (e *endless) capabilities() brokers.Capabilities {
	return brokers.Capabilities{
		Pause:        "stops taking from an endless source",
		Membership:   true,
		Positions:    e.q.o.Partitions > 0,
		Partitions:   e.q.o.Partitions > 1,
		MessagesHard: true, BytesHard: true,
	}
}

func (e *endless) add(*message)        {}
func (e *endless) leave(*subscription) {}
func (e *endless) seize()              {}
func (e *endless) peek() []*message    { return nil }

func (e *endless) count() (waiting, unacked int64) { return 0, e.taken - e.settled }
