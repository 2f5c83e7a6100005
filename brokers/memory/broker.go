package memory

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// Broker holds queues. All its methods are safe for concurrent use, and none of
// them waits.
type Broker struct {
	o Options

	mu     sync.Mutex
	queues map[string]*queue
	links  map[string]*link
	// base is what connections that are yet to be named start with.
	base   link
	delays [opCount]time.Duration
	fails  []*Failure
	subs   uint64
	misuse []error
	// calls are made once mu is free again: they leave the package. tell keeps
	// conditions in order.
	calls []func()
	tell  sync.Mutex
}

// queue is a name, its subscriptions in the order they came, and a store.
type queue struct {
	b     *Broker
	name  string
	o     QueueOptions
	store store
	subs  []*subscription
	turn  int
	// refusal is why it serves nobody: rights were revoked, or it is gone; nil: it serves.
	refusal *cause
	history []event
}

// store is how a queue keeps its messages. It is called under the broker's lock.
type store interface {
	add(m *message)
	// join and leave follow the subscriptions; what one has when it leaves goes back.
	join(s *subscription)
	leave(s *subscription)
	// take delivers within limit, a single larger message alone.
	take(s *subscription, limit brokers.Credit) []brokers.Delivery
	settle(s *subscription, st []brokers.Settlement)
	giveBack(s *subscription, ds []*brokers.Delivery)
	// seize takes away what subscriptions have, without telling them.
	seize()
	count() (waiting, unacked int64)
	// peek lists what waits, in order.
	peek() []*message
	capabilities() brokers.Capabilities
}

// NewBroker makes an empty broker.
func NewBroker(o Options) *Broker {
	return &Broker{o: o, queues: make(map[string]*queue), links: make(map[string]*link)}
}

// unlock ends a critical section and makes the calls that it left behind.
func (b *Broker) unlock() {
	calls := b.calls
	b.calls = nil
	b.mu.Unlock()
	for _, f := range calls {
		f()
	}
}

// Create makes a queue; one of that name must not be there.
func (b *Broker) Create(name string, o QueueOptions) error {
	b.mu.Lock()
	defer b.unlock()
	if b.queues[name] != nil {
		return fmt.Errorf("queue %s exists: delete it first", name)
	}
	b.create(name, o)
	return nil
}

func (b *Broker) create(name string, o QueueOptions) *queue {
	q := &queue{b: b, name: name, o: o}
	switch {
	case len(o.Endless) > 0:
		q.o.Prefetch = 0
		q.store = newEndless(q)
	case o.Partitions > 0:
		q.store = newPositions(q)
	default:
		q.store = &acks{q: q}
	}
	b.queues[name] = q
	return q
}

// Delete removes a queue with all that is in it. Its subscriptions end with an
// error of class Missing.
func (b *Broker) Delete(name string) error {
	b.mu.Lock()
	defer b.unlock()
	q, err := b.find(name)
	if err != nil {
		return err
	}
	delete(b.queues, name)
	q.refusal = &cause{class: brokers.Missing, err: errDeleted, remedy: "create the queue again"}
	q.endAll()
	return nil
}

// Publish adds messages to a queue, all of them at once.
func (b *Broker) Publish(name string, ms ...Message) error {
	b.mu.Lock()
	defer b.unlock()
	q, err := b.find(name)
	if err != nil {
		return err
	}
	q.publish(ms)
	return nil
}

func (b *Broker) find(name string) (*queue, error) {
	if q := b.queues[name]; q != nil {
		return q, nil
	}
	return nil, fmt.Errorf("queue %s: %w", name, errNoQueue)
}

func (b *Broker) queueOptions(name string) QueueOptions {
	b.mu.Lock()
	defer b.unlock()
	if q := b.queues[name]; q != nil {
		return q.o
	}
	return b.o.Queue
}

func (q *queue) publish(ms []Message) {
	now := time.Now()
	slab := make([]message, len(ms))
	for i, m := range ms {
		slab[i] = message{Message: m, published: now, size: m.size(), headers: m.headers()}
		q.store.add(&slab[i])
	}
	q.dispatch()
}

// dispatch hands what waits to the subscriptions that want it, in turn.
func (q *queue) dispatch() {
	n, first := len(q.subs), q.turn
	for i := range n {
		s := q.subs[(first+i)%n]
		want := s.wants()
		if want.Messages == 0 || !q.serves(s) {
			continue
		}
		if got := q.store.take(s, want); len(got) > 0 {
			s.keep(got)
			s.signal()
			q.turn = (first + i + 1) % n
		}
	}
}

// serves tells whether the queue delivers to s at present.
func (q *queue) serves(s *subscription) bool {
	if q.refusal != nil || !q.o.SingleActive {
		return q.refusal == nil
	}
	for _, first := range q.subs {
		if first == s {
			return true
		}
		if !first.left || !q.o.LeaveOnHold {
			return false
		}
	}
	return false
}

// remove takes s off the queue and gives back what it still has.
func (q *queue) remove(s *subscription) {
	q.subs = slices.DeleteFunc(q.subs, func(o *subscription) bool { return o == s })
	q.store.leave(s)
	q.note(Ended, s, nil)
	q.dispatch()
}

// last makes s the youngest member.
func (q *queue) last(s *subscription) {
	q.subs = append(slices.DeleteFunc(q.subs, func(o *subscription) bool { return o == s }), s)
}

// endAll ends all subscriptions with the queue's refusal.
func (q *queue) endAll() {
	for _, s := range slices.Clone(q.subs) {
		s.breakOff(q.refusal)
	}
}

// open makes a connection called name.
func (b *Broker) open(ctx context.Context, name string) (brokers.Conn, error) {
	b.mu.Lock()
	l := b.link(name)
	b.unlock()
	if _, err := l.pass(ctx, OpOpen, name); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.unlock()
	c := &conn{link: l, lost: make(chan struct{}), subs: make(map[*subscription]struct{})}
	l.conns = append(l.conns, c)
	return c, nil
}

// subscribe finds or makes the queue of src and joins it.
func (b *Broker) subscribe(c *conn, src source, o brokers.Observer) (*subscription, error) {
	q := b.queues[src.queue]
	if q == nil {
		if src.missing != supervisorv1.Missing_MISSING_CREATE {
			return nil, missing(OpSubscribe, src.queue, src.missing == supervisorv1.Missing_MISSING_WAIT)
		}
		q = b.create(src.queue, b.o.Queue)
	}
	if q.refusal != nil {
		return nil, q.refusal.at(OpSubscribe, "queue "+q.name)
	}
	b.subs++
	s := &subscription{
		id: b.subs, conn: c, q: q, observer: o, wake: make(chan struct{}, 1),
		caps: q.store.capabilities(), alive: time.Now(), wait: src.missing == supervisorv1.Missing_MISSING_WAIT,
	}
	c.subs[s] = struct{}{}
	q.subs = append(q.subs, s)
	q.note(Subscribed, s, nil)
	q.store.join(s)
	return s, nil
}
