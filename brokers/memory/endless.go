package memory

import "github.com/seed-111f5b8e/supervisord/brokers"

// slab is how many deliveries an endless queue makes at most in one go.
const slab = 1024

// endless makes deliveries from a template: a batch costs one allocation and one
// copy, a message a position.
type endless struct {
	q        *queue
	template []brokers.Delivery
	// next is the position in each partition.
	next []int64
	// Given back and retried ones are counted, and not delivered again.
	taken, settled int64
}

func newEndless(q *queue) *endless {
	e := &endless{q: q, template: make([]brokers.Delivery, slab), next: make([]int64, max(1, q.o.Partitions))}
	for i := range e.template {
		m := &q.o.Endless[i%len(q.o.Endless)]
		e.template[i] = brokers.Delivery{
			Subject: q.name, Key: m.Key, Body: m.Body, Headers: m.headers(), Size: m.size(),
		}
	}
	return e
}

func (e *endless) take(s *subscription, limit brokers.Credit) []brokers.Delivery {
	s.turn = (s.turn + 1) % len(s.origins)
	o, next := s.origins[s.turn], e.next[s.turn]
	n := within(e.template, limit)
	ds := make([]brokers.Delivery, n)
	copy(ds, e.template)
	for i := range ds {
		ds[i].Origin, ds[i].Position = o, next+int64(i)
	}
	e.next[s.turn] = next + int64(n)
	e.taken += int64(n)
	return ds
}

func (e *endless) join(s *subscription) {
	if e.q.o.Partitions == 0 {
		s.origins = []*brokers.Origin{{Name: e.q.name}}
	}
	for i := range e.q.o.Partitions {
		s.origins = append(s.origins, &brokers.Origin{Name: partitionName(e.q.name, i), Index: i})
	}
}

func (e *endless) settle(_ *subscription, st []brokers.Settlement) { e.settled += int64(len(st)) }

func (e *endless) giveBack(_ *subscription, ds []*brokers.Delivery) { e.settled += int64(len(ds)) }

func (e *endless) capabilities() brokers.Capabilities {
	return brokers.Capabilities{
		Pause:        "stops taking from an endless source",
		Membership:   true,
		Positions:    e.q.o.Partitions > 0,
		Partitions:   e.q.o.Partitions > 0,
		MessagesHard: true, BytesHard: true,
	}
}

func (e *endless) add(*message)        {}
func (e *endless) leave(*subscription) {}
func (e *endless) seize()              {}
func (e *endless) stop()               {}
func (e *endless) waiting() int64      { return 0 }
func (e *endless) unacked() int64      { return e.taken - e.settled }
func (e *endless) peek() []*message    { return nil }
