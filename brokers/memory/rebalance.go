package memory

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// defaultRevokeTimeout is how long Observer.Revoke may take unless a queue says.
const defaultRevokeTimeout = 5 * time.Second

// ask is one call of Observer.Revoke under way.
type ask struct {
	cancel context.CancelCauseFunc
	over   chan struct{}
}

func (p *positions) join(*subscription) { p.balance() }

func (p *positions) leave(s *subscription) {
	for _, l := range slices.Clone(s.lots) {
		p.retire(l)
	}
	p.balance()
}

// seize expels every subscription from its partitions, and lets it join again.
func (p *positions) seize() {
	for _, part := range p.parts {
		if part.lot != nil {
			p.retire(part.lot)
		}
	}
	p.balance()
}

// rotate moves each partition to the next subscription.
func (p *positions) rotate() {
	p.shift++
	for _, part := range p.parts {
		if part.lot != nil {
			part.lot.again = true
		}
	}
	p.balance()
}

// balance hands out the partitions that are with nobody, and asks for those that
// are to move.
func (p *positions) balance() {
	n := len(p.q.subs)
	if n == 0 || p.q.refusal != nil {
		return
	}
	asked := make(map[*subscription][]*lot)
	for i, part := range p.parts {
		to, l := p.q.subs[(i+p.shift)%n], part.lot
		switch {
		case l == nil:
			p.assign(part, to)
		case (l.sub != to || l.again) && !l.revoking:
			l.revoking = true
			asked[l.sub] = append(asked[l.sub], l)
		}
	}
	for _, s := range slices.Clone(p.q.subs) {
		if lots := asked[s]; len(lots) > 0 {
			p.ask(s, lots)
		}
	}
	p.q.dispatch()
}

// assign gives a partition to s, from its committed position on.
func (p *positions) assign(part *partition, s *subscription) {
	index := 0
	for slices.ContainsFunc(s.lots, func(l *lot) bool { return l.origin.Index == index }) {
		index++
	}
	part.lot = &lot{
		part: part, sub: s, next: part.committed,
		origin: &brokers.Origin{Name: partitionName(p.q.name, part.index), Index: index},
	}
	s.lots = append(s.lots, part.lot)
	p.tell(s)
}

// retire takes a partition away from its subscription: settlements that come
// later find nothing.
func (p *positions) retire(l *lot) {
	s := l.sub
	for h := s.has.first; h != nil; {
		next := h.next
		if h.lot == l {
			s.has.remove(h)
			p.q.note(Reclaimed, s, h.msg)
		}
		h = next
	}
	s.buffer = slices.DeleteFunc(slices.Clone(s.buffer), func(d brokers.Delivery) bool { return d.Origin == l.origin })
	s.willRepeat += l.done
	s.lots = slices.DeleteFunc(s.lots, func(o *lot) bool { return o == l })
	l.part.lot = nil
	p.tell(s)
}

// tell lets the observer know whether s has partitions.
func (p *positions) tell(s *subscription) {
	b := p.q.b
	b.calls = append(b.calls, func() {
		b.tell.Lock()
		defer b.tell.Unlock()
		b.mu.Lock()
		n, gone := len(s.lots), s.gone
		b.mu.Unlock()
		if !gone {
			s.observer.Condition(supervisorv1.ConditionType_CONDITION_TYPE_ASSIGNED, n > 0, "partitions: "+strconv.Itoa(n))
		}
	})
}

// ask has the consumer finish with lots, on a goroutine that ends with the
// subscription or the timeout, and then moves them.
func (p *positions) ask(s *subscription, lots []*lot) {
	s.unbuffer(lots)
	timeout := p.q.o.RevokeTimeout
	if timeout <= 0 {
		timeout = defaultRevokeTimeout
	}
	life, cancel := context.WithCancelCause(context.Background())
	a := &ask{cancel: cancel, over: make(chan struct{})}
	s.asks = append(s.asks, a)
	origins := make([]*brokers.Origin, len(lots))
	for i, l := range lots {
		origins[i] = l.origin
	}
	go func() {
		defer close(a.over)
		ctx, done := context.WithTimeout(life, timeout)
		defer done()
		defer cancel(nil)
		s.observer.Revoke(ctx, origins)
		s.flush(ctx)
		p.finish(s, a, lots)
	}()
}

// finish moves lots on after their subscription has let go.
func (p *positions) finish(s *subscription, a *ask, lots []*lot) {
	b := p.q.b
	b.mu.Lock()
	defer b.unlock()
	s.asks = slices.DeleteFunc(s.asks, func(o *ask) bool { return o == a })
	for _, l := range lots {
		if l.part.lot == l {
			p.retire(l)
		}
	}
	p.balance()
}

// unbuffer gives back what was taken of lots and not yet received.
func (s *subscription) unbuffer(lots []*lot) {
	var keep []brokers.Delivery
	var back []*brokers.Delivery
	for i := range s.buffer {
		d := &s.buffer[i]
		if slices.ContainsFunc(lots, func(l *lot) bool { return l.origin == d.Origin }) {
			back = append(back, d)
		} else {
			keep = append(keep, *d)
		}
	}
	s.buffer = keep
	s.q.store.giveBack(s, back)
}

// flush waits until what was settled has arrived, or ctx ends.
func (s *subscription) flush(ctx context.Context) {
	b := s.q.b
	b.mu.Lock()
	if s.gone || len(s.wire) == 0 {
		b.unlock()
		return
	}
	p := &parcel{over: make(chan struct{})}
	s.send(p, b.delays[OpSettle])
	b.unlock()
	select {
	case <-p.over:
	case <-ctx.Done():
	}
}

// awaitAsks waits until no Revoke is under way, or ctx ends.
func (s *subscription) awaitAsks(ctx context.Context) {
	b := s.q.b
	b.mu.Lock()
	asks := slices.Clone(s.asks)
	b.unlock()
	for _, a := range asks {
		select {
		case <-a.over:
		case <-ctx.Done():
			return
		}
	}
}
