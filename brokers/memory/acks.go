package memory

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// message is one in a queue.
type message struct {
	Message
	published time.Time
	headers   brokers.Headers
	size      int64
	// seq orders the messages of a queue or partition.
	seq       int64
	partition int
	// deliveries counts those that count.
	deliveries int32
	// holder is who has it; nil: it waits, or is done with.
	holder *held
	// due is when a delayed one may go out again.
	due time.Time
}

// delivery fills d for h.
func (m *message) delivery(d *brokers.Delivery, o *brokers.Origin, queue string, h *held) {
	*d = brokers.Delivery{
		Origin: o, Position: m.seq, Name: m.ID, Subject: queue, Key: m.Key, Body: m.Body,
		Headers: m.headers, Published: m.published, Size: m.size, Ref: h,
	}
}

// acks keeps messages that are acked one by one.
type acks struct {
	q   *queue
	seq int64
	// fresh were never delivered, from head on. back were, and come first: each
	// of them is older than all that are fresh. later wait for their time.
	fresh     []*message
	head      int
	back      messages
	later     messages
	timer     *time.Timer
	unsettled int64
}

func (a *acks) capabilities() brokers.Capabilities {
	o := a.q.o
	c := brokers.Capabilities{
		Pause:        "stops taking; what waits stays in the queue for its other consumers",
		Membership:   !o.LeaveOnHold,
		MessagesHard: o.Prefetch == 0, BytesHard: o.Prefetch == 0,
		GiveBackCounts: o.GiveBackCounts && o.DeliveryLimit > 0,
		OrderOnClose:   o.SingleActive && o.LeaveOnHold,
		NoPause:        o.NoPause,
		Lag:            true,
	}
	if o.LeaveOnHold {
		c.Pause = "stops taking and leaves the queue; the next consumer may take over"
	}
	return c
}

func (a *acks) add(m *message) {
	a.seq++
	m.seq = a.seq
	a.q.note(Published, nil, m)
	a.fresh = append(a.fresh, m)
}

func (a *acks) join(s *subscription) { s.origin = &brokers.Origin{Name: a.q.name} }

func (a *acks) leave(s *subscription) { a.reclaim(s, func(*held) bool { return true }) }

func (a *acks) seize() {
	for _, s := range a.q.subs {
		a.leave(s)
	}
}

// reclaim takes back from s what is chosen.
func (a *acks) reclaim(s *subscription, chosen func(*held) bool) {
	for h := s.has.first; h != nil; {
		next := h.next
		if chosen(h) {
			a.drop(h)
			a.q.note(Reclaimed, s, h.msg)
			a.restore(h.msg, 0)
		}
		h = next
	}
}

func (a *acks) drop(h *held) {
	h.sub.has.remove(h)
	a.unsettled--
}

// restore puts m back after some time, or takes it away at its delivery limit.
func (a *acks) restore(m *message, after time.Duration) {
	o := a.q.o
	switch {
	case o.DeliveryLimit > 0 && int(m.deliveries) >= o.DeliveryLimit:
		a.expel(m)
	case after > 0:
		m.due = time.Now().Add(after)
		heap.Push(&a.later, m)
		a.schedule()
	default:
		m.due = time.Time{}
		heap.Push(&a.back, m)
	}
}

// expel moves m to the dead letters, if there is a queue for them.
func (a *acks) expel(m *message) {
	to := a.q.b.queues[a.q.o.DeadLetter]
	if to == nil {
		a.q.note(Dropped, nil, m)
		return
	}
	a.q.note(DeadLettered, nil, m)
	to.publish([]Message{m.Message})
}

// schedule wakes the queue when the next delayed message is due.
func (a *acks) schedule() {
	if a.timer != nil {
		a.timer.Stop()
	}
	if len(a.later) == 0 {
		return
	}
	a.timer = time.AfterFunc(time.Until(a.later[0].due), func() {
		a.q.b.mu.Lock()
		defer a.q.b.unlock()
		now := time.Now()
		for len(a.later) > 0 && !a.later[0].due.After(now) {
			m := a.later[0]
			heap.Pop(&a.later)
			m.due = time.Time{}
			heap.Push(&a.back, m)
		}
		a.schedule()
		a.q.dispatch()
	})
}

// ready counts what can be taken now.
func (a *acks) ready() int { return len(a.back) + len(a.fresh) - a.head }

// top is the next to go out; there must be one.
func (a *acks) top() *message {
	if len(a.back) > 0 {
		return a.back[0]
	}
	return a.fresh[a.head]
}

func (a *acks) pop() {
	if len(a.back) > 0 {
		heap.Pop(&a.back)
		return
	}
	a.fresh[a.head] = nil
	a.head++
	if a.head == len(a.fresh) {
		a.fresh, a.head = a.fresh[:0], 0
	} else if a.head > len(a.fresh)/2 {
		a.fresh, a.head = append(a.fresh[:0], a.fresh[a.head:]...), 0
	}
}

func (a *acks) take(s *subscription, limit brokers.Credit) []brokers.Delivery {
	n := min(limit.Messages, a.ready())
	if n == 0 {
		return nil
	}
	now, bytes := time.Now(), limit.Bytes
	ds, hs := make([]brokers.Delivery, n), make([]held, n)
	for i := range n {
		m := a.top()
		if bytes -= m.size; bytes < 0 && i > 0 {
			ds = ds[:i:i]
			break
		}
		a.pop()
		hs[i] = held{msg: m, sub: s, at: now}
		m.delivery(&ds[i], s.origin, a.q.name, &hs[i])
		ds[i].Redelivered = m.deliveries
		m.deliveries++
		s.has.add(&hs[i])
		a.unsettled++
		a.q.note(Delivered, s, m)
	}
	a.watch(s)
	return ds
}

func (a *acks) settle(s *subscription, st []brokers.Settlement) {
	back := false
	for i := range st {
		h := s.mine(st[i].Delivery)
		if h == nil {
			s.ownershipLost++
			continue
		}
		a.drop(h)
		switch st[i].Outcome {
		case brokers.Ack:
			a.q.note(Acked, s, h.msg)
		case brokers.Retry:
			a.q.note(Retried, s, h.msg)
			a.restore(h.msg, time.Duration(st[i].AfterMillis)*time.Millisecond)
			back = true
		case brokers.Release:
			a.release(s, h.msg)
			back = true
		}
	}
	if back {
		a.q.dispatch()
	}
}

func (a *acks) giveBack(s *subscription, ds []*brokers.Delivery) {
	for _, d := range ds {
		if h := s.mine(d); h != nil {
			a.drop(h)
			a.release(s, h.msg)
		}
	}
}

// release puts m back as if it had never been delivered, where that is possible.
func (a *acks) release(s *subscription, m *message) {
	a.q.note(Returned, s, m)
	if !a.q.o.GiveBackCounts {
		m.deliveries--
	}
	a.restore(m, 0)
}

// watch looks after the ack timeout of what s holds. A driver whose link is up
// keeps it alive.
func (a *acks) watch(s *subscription) {
	if a.q.o.AckTimeout > 0 && s.expiry == nil {
		a.expireAfter(s, a.q.o.AckTimeout)
	}
}

func (a *acks) expireAfter(s *subscription, d time.Duration) {
	s.expiry = time.AfterFunc(d, func() {
		a.q.b.mu.Lock()
		defer a.q.b.unlock()
		if !s.gone {
			a.expire(s)
		}
	})
}

// expire takes away what s could not keep alive, and looks again when the next
// may be due.
func (a *acks) expire(s *subscription) {
	now, l := time.Now(), s.conn.link
	if l.up() {
		s.alive = now
	} else if l.frozenAt.After(s.alive) {
		s.alive = l.frozenAt
	}
	wait := a.q.o.AckTimeout
	a.reclaim(s, func(h *held) bool {
		last := h.at
		if s.alive.After(last) {
			last = s.alive
		}
		left := last.Add(a.q.o.AckTimeout).Sub(now)
		if left > 0 {
			wait = min(wait, left)
		}
		return left <= 0
	})
	s.expiry = nil
	if s.has.n > 0 {
		a.expireAfter(s, wait)
	}
	a.q.dispatch()
}

func (a *acks) count() (waiting, unacked int64) {
	return int64(a.ready() + len(a.later)), a.unsettled
}

func (a *acks) peek() []*message {
	ms := slices.Concat(a.back, a.fresh[a.head:], a.later)
	slices.SortFunc(ms, func(x, y *message) int { return cmp.Compare(x.seq, y.seq) })
	return ms
}

// messages is a heap by due time, then by order.
type messages []*message

func (h messages) Len() int { return len(h) }
func (h messages) Less(i, j int) bool {
	if c := h[i].due.Compare(h[j].due); c != 0 {
		return c < 0
	}
	return h[i].seq < h[j].seq
}
func (h messages) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *messages) Push(x any) {
	if m, ok := x.(*message); ok {
		*h = append(*h, m)
	}
}

func (h *messages) Pop() any {
	old := *h
	m := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return m
}
