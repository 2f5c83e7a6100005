package memory

import (
	"maps"
	"slices"
	"strconv"
	"time"
)

// EventKind says what happened to a message or a subscription.
type EventKind uint8

// What a queue's history tells.
const (
	// Subscribed and Ended bound an epoch. Nothing of it stands after Ended.
	Subscribed EventKind = iota + 1
	Ended
	Published
	// Delivered: the driver has it; Receive may not have returned it yet.
	Delivered
	Acked
	Retried
	// Returned: given back by the consumer as if never delivered.
	Returned
	// Reclaimed: the broker took it back, because the subscription ended, an ack
	// deadline passed or a partition went away.
	Reclaimed
	// DeadLettered and Dropped: taken away at the delivery limit.
	DeadLettered
	Dropped
)

func (k EventKind) String() string {
	return [...]string{
		"", "subscribed", "ended", "published", "delivered", "acked", "retried", "returned", "reclaimed", "dead-lettered", "dropped",
	}[k]
}

// Event is one line of a queue's history.
type Event struct {
	At   time.Time
	Kind EventKind
	// Subscription counts from 1 in the broker; 0: none took part.
	Subscription uint64
	// ID is the message's, as brokers.Delivery.ID tells it.
	ID string
}

type event struct {
	at   time.Time
	kind EventKind
	sub  uint64
	m    *message
}

// note writes history, unless the broker forgets.
func (q *queue) note(k EventKind, s *subscription, m *message) {
	if q.b.o.Forget {
		return
	}
	e := event{at: time.Now(), kind: k, m: m}
	if s != nil {
		e.sub = s.id
	}
	q.history = append(q.history, e)
}

// History is all that happened in a queue, in order; nil when there is no such
// queue or the broker forgets.
func (b *Broker) History(queue string) []Event {
	b.mu.Lock()
	defer b.unlock()
	q := b.queues[queue]
	if q == nil {
		return nil
	}
	out := make([]Event, len(q.history))
	for i, e := range q.history {
		out[i] = Event{At: e.at, Kind: e.kind, Subscription: e.sub}
		if e.m != nil {
			out[i].ID = e.m.id(q)
		}
	}
	return out
}

// Acked lists the ids of acked messages in the order of their acks.
func (b *Broker) Acked(queue string) []string {
	var ids []string
	for _, e := range b.History(queue) {
		if e.Kind == Acked {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// Deliveries counts how often each message was delivered.
func (b *Broker) Deliveries(queue string) map[string]int {
	n := make(map[string]int)
	for _, e := range b.History(queue) {
		if e.Kind == Delivered {
			n[e.ID]++
		}
	}
	return n
}

// Depth is where the messages of a queue are.
type Depth struct {
	// Waiting are with nobody; delayed ones are among them.
	Waiting int64
	// Unacked are with consumers.
	Unacked int64
	// Subscriptions that the broker counts as members.
	Members int
}

// Depth counts; zero when there is no such queue.
func (b *Broker) Depth(queue string) Depth {
	b.mu.Lock()
	defer b.unlock()
	q := b.queues[queue]
	if q == nil {
		return Depth{}
	}
	var d Depth
	d.Waiting, d.Unacked = q.store.count()
	for _, s := range q.subs {
		if !s.left || !q.o.LeaveOnHold {
			d.Members++
		}
	}
	return d
}

// Waiting lists the messages of a queue that are with nobody, in order.
func (b *Broker) Waiting(queue string) []Message {
	b.mu.Lock()
	defer b.unlock()
	q := b.queues[queue]
	if q == nil {
		return nil
	}
	var out []Message
	for _, m := range q.store.peek() {
		out = append(out, m.Message)
	}
	return out
}

// Committed is the position of each partition: below it all is acked.
func (b *Broker) Committed(queue string) []int64 {
	b.mu.Lock()
	defer b.unlock()
	q := b.queues[queue]
	if q == nil {
		return nil
	}
	p, ok := q.store.(*positions)
	if !ok {
		return nil
	}
	var out []int64
	for _, part := range p.parts {
		out = append(out, part.committed)
	}
	return out
}

// Queues lists the queues by name.
func (b *Broker) Queues() []string {
	b.mu.Lock()
	defer b.unlock()
	return slices.Sorted(maps.Keys(b.queues))
}

// id is what brokers.Delivery.ID says of m.
func (m *message) id(q *queue) string {
	if m.ID != "" {
		return m.ID
	}
	name := q.name
	if q.o.Partitions > 0 {
		name = partitionName(q.name, m.partition)
	}
	return name + ":" + strconv.FormatInt(m.seq, 10)
}

func partitionName(queue string, i int) string { return queue + "/" + strconv.Itoa(i) }
