package memory

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// Op is a call of the contract, for faults.
type Op uint8

// The calls that can be delayed and made to fail.
const (
	OpOpen Op = iota
	OpSubscribe
	OpReceive
	OpSettle
	OpHold
	OpFlow
	OpClose
	OpLag
	OpPublish
	OpSeek
	opCount
)

// String is what was tried, as errors say it.
func (o Op) String() string {
	return [opCount]string{
		"connect to", "subscribe to", "receive from", "settle on", "hold", "resume", "close", "ask for the lag of", "publish to", "seek in",
	}[o]
}

// cause is what is wrong, whatever is tried.
type cause struct {
	class  brokers.Class
	err    error
	remedy string
}

// at is the error of one call that met c.
func (c *cause) at(op Op, subject string) *brokers.Error {
	return &brokers.Error{Class: c.class, Op: op.String() + " " + subject, Err: c.err, Remedy: c.remedy}
}

func missing(op Op, queue string, wait bool) *brokers.Error {
	return &brokers.Error{
		Class: brokers.Missing, Op: op.String() + " queue " + queue, Err: errNoQueue, Wait: wait,
		Remedy: "create the queue",
	}
}

// Failure lets the next calls of one kind fail.
type Failure struct {
	Op    Op
	Times int
	Class brokers.Class
	// After so many calls that go well.
	After int
	// Done: the broker does what was asked, and only its answer is lost. For
	// OpPublish, OpSettle and OpSeek.
	Done bool
}

func (f *Failure) at(op Op, subject string) *brokers.Error {
	return (&cause{class: f.Class, err: errInjected}).at(op, subject)
}

// Fail injects f, after what was injected before. A failed Receive, Settle, Hold
// or Flow also ends its subscription, and the broker takes back what it had.
func (b *Broker) Fail(f Failure) {
	b.mu.Lock()
	defer b.unlock()
	b.fails = append(b.fails, &f)
}

// FailNoMore forgets the failures that have not happened yet.
func (b *Broker) FailNoMore() {
	b.mu.Lock()
	defer b.unlock()
	b.fails = nil
}

func (b *Broker) nextFailure(op Op) *Failure {
	for i, f := range b.fails {
		if f.Op != op {
			continue
		}
		if f.After > 0 {
			f.After--
			return nil
		}
		if f.Times--; f.Times <= 0 {
			b.fails = slices.Delete(b.fails, i, i+1)
		}
		return f
	}
	return nil
}

// Delay lets each call of one kind take d. What Settle, Hold and Close send is d
// on its way and arrives in the order sent; Settle itself does not wait for it.
func (b *Broker) Delay(op Op, d time.Duration) {
	b.mu.Lock()
	defer b.unlock()
	b.delays[op] = d
}

// DelayNoMore ends all delays; what is on its way arrives when it was to.
func (b *Broker) DelayNoMore() {
	b.mu.Lock()
	defer b.unlock()
	b.delays = [opCount]time.Duration{}
}

// The faults below are those of the connections named, without a name of all,
// those to come included.

// Freeze lets nothing through and answers nothing until Thaw: calls end with
// their context only, and what they sent arrives after the thaw.
func (b *Broker) Freeze(connections ...string) {
	b.mu.Lock()
	defer b.unlock()
	b.eachLink(connections, func(l *link) {
		if l.frozen == nil {
			l.frozen, l.frozenAt = make(chan struct{}), time.Now()
		}
	})
}

// Thaw ends Freeze.
func (b *Broker) Thaw(connections ...string) {
	b.mu.Lock()
	defer b.unlock()
	b.eachLink(connections, (*link).thaw)
	b.resume()
}

// Cut breaks connections until Heal: all subscriptions end, what they had goes
// back, what was on its way is lost, and dials fail.
func (b *Broker) Cut(connections ...string) { b.CutAfter(0, connections...) }

// CutAfter is Cut, but lets the first n parcels that each subscription has on
// its way arrive, though the consumer does not hear of it.
func (b *Broker) CutAfter(n int, connections ...string) {
	b.mu.Lock()
	defer b.unlock()
	down := &cause{class: brokers.Unreachable, err: errCut}
	b.eachLink(connections, func(l *link) { l.goDown(down, n) })
}

// Heal ends Cut and RefuseCredentials.
func (b *Broker) Heal(connections ...string) {
	b.mu.Lock()
	defer b.unlock()
	b.eachLink(connections, func(l *link) { l.down = nil })
	b.resume()
}

// RefuseCredentials breaks connections as Cut does, and dials are refused in
// these words until Heal.
func (b *Broker) RefuseCredentials(words string, connections ...string) {
	b.mu.Lock()
	defer b.unlock()
	down := &cause{class: brokers.Refused, err: errors.New(words), remedy: "check the connection's credentials"}
	b.eachLink(connections, func(l *link) { l.goDown(down, 0) })
}

// Lose ends connections for good: their Lost is closed, and Open makes new ones.
func (b *Broker) Lose(connections ...string) {
	b.mu.Lock()
	defer b.unlock()
	lost := &cause{class: brokers.Unreachable, err: errCut}
	b.eachLink(connections, func(l *link) {
		for _, c := range l.conns {
			c.end(lost)
			close(c.lost)
		}
		l.conns = nil
	})
}

// eachLink applies f to the links named, or to all and to the base of new ones.
func (b *Broker) eachLink(names []string, f func(*link)) {
	if len(names) == 0 {
		f(&b.base)
		for _, name := range slices.Sorted(maps.Keys(b.links)) {
			f(b.links[name])
		}
		return
	}
	for _, name := range names {
		f(b.link(name))
	}
}

// link finds or makes the link of connections called name.
func (b *Broker) link(name string) *link {
	l := b.links[name]
	if l == nil {
		l = &link{b: b, name: name, down: b.base.down}
		if b.base.frozen != nil {
			l.frozen, l.frozenAt = make(chan struct{}), b.base.frozenAt
		}
		b.links[name] = l
	}
	return l
}

func (l *link) thaw() {
	if l.frozen == nil {
		return
	}
	close(l.frozen)
	l.frozen = nil
	for _, c := range l.conns {
		for _, s := range c.open() {
			s.arriveDue()
		}
	}
}

func (l *link) goDown(why *cause, arrive int) {
	l.down = why
	for _, c := range l.conns {
		for _, s := range c.open() {
			s.arriveUnheard(arrive)
			s.breakOff(why)
		}
	}
	l.thaw()
}

// resume delivers what waited for a link to come up.
func (b *Broker) resume() {
	for _, name := range slices.Sorted(maps.Keys(b.queues)) {
		b.queues[name].dispatch()
	}
}

// Forbid revokes the rights on a queue: its subscriptions end, and subscribing
// and publishing are refused in these words until Permit.
func (b *Broker) Forbid(queue, words string) error {
	b.mu.Lock()
	defer b.unlock()
	q, err := b.find(queue)
	if err != nil {
		return err
	}
	q.refusal = &cause{
		class: brokers.Refused, err: errors.New(words),
		remedy: "give the connection's user the right, then start the consumer",
	}
	q.endAll()
	return nil
}

// Permit ends Forbid.
func (b *Broker) Permit(queue string) error {
	b.mu.Lock()
	defer b.unlock()
	q, err := b.find(queue)
	if err != nil {
		return err
	}
	q.refusal = nil
	return nil
}

// Redeliver takes away all that the consumers of a queue have, without telling
// them, as when an ack deadline passed or a group member was expelled.
func (b *Broker) Redeliver(queue string) error {
	b.mu.Lock()
	defer b.unlock()
	q, err := b.find(queue)
	if err != nil {
		return err
	}
	q.store.seize()
	q.dispatch()
	return nil
}

// Rebalance asks for all partitions of a queue back and gives each to the next
// subscription, or again to the only one.
func (b *Broker) Rebalance(queue string) error {
	b.mu.Lock()
	defer b.unlock()
	q, err := b.find(queue)
	if err != nil {
		return err
	}
	p, ok := q.store.(*positions)
	if !ok {
		return fmt.Errorf("queue %s has no partitions: set QueueOptions.Partitions", queue)
	}
	p.rotate()
	return nil
}

// complainf records that a caller broke the contract.
func (b *Broker) complainf(format string, args ...any) {
	b.misuse = append(b.misuse, fmt.Errorf(format, args...))
}

// Misuse lists how callers broke the contract of package brokers: a delivery
// settled twice, two Receives at once, a subscription left open.
func (b *Broker) Misuse() error {
	b.mu.Lock()
	defer b.unlock()
	return errors.Join(b.misuse...)
}
