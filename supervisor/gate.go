package supervisor

import (
	"container/heap"
	"context"
	"slices"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"google.golang.org/protobuf/types/known/durationpb"
)

// shut stops asking for more; what was taken is still handled.
func (p *pool) shut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.intake == intakeOpen {
		p.intake = intakeShut
	}
	p.tellIfQuiet()
}

// hold closes intake and gate. On return no further call starts, but, if they
// are to be finished, for gaps where the broker keeps positions. What has not
// started waits in strays.
func (p *pool) hold(finishGaps bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holding = p.holding || p.intake != intakeClosed
	p.intake, p.gate = intakeClosed, gateClosed
	p.sweep(func(it *item) bool { return finishGaps && p.gap(it) && !it.leaving })
	if finishGaps {
		p.gate = gateGaps
		p.spawn()
	}
	p.tellIfQuiet()
}

// stopStarting closes the gate as a verb is about to do, before the verb is
// durable, and returns what was counted until then. Where a give-back counts
// against the message only the intake is closed.
func (p *pool) stopStarting(finishGaps bool) counters {
	p.mu.Lock()
	n, closed, counts := p.count, p.intake == intakeClosed, p.ep != nil && p.ep.caps.GiveBackCounts
	p.mu.Unlock()
	switch {
	case closed: // another verb has done it, in its own way
	case counts:
		p.shut()
	default:
		p.hold(finishGaps)
	}
	return n
}

// gap: something above it has begun, so giving it back would repeat that.
func (p *pool) gap(it *item) bool { return it.ep.gap(it.d) }

// sweep moves what has not started into strays, but for what is to be kept.
// Whatever was left to retry for ever is no longer blocked.
func (p *pool) sweep(keep func(*item) bool) {
	var found []*item
	for w := range p.workers {
		if w.lane != nil {
			found = append(found, w.steal()...)
		}
	}
	for _, l := range p.lanes {
		for l.n > 0 {
			found = append(found, l.pop())
			p.unstarted--
		}
		l.blocked = false
	}
	for _, it := range p.waits {
		if it.lane == nil || it.lane.shared {
			found = append(found, it)
			p.unstarted--
		}
	}
	p.waits = nil
	slices.SortStableFunc(found, inOriginOrder)
	for _, it := range found {
		switch {
		case !keep(it):
			it.state = claimed
			delete(p.blocked, it)
			p.strays = append(p.strays, it)
		case it.state == waiting:
			p.wait(it, it.due)
		default:
			l := p.laneOf(it.d)
			l.push(it)
			p.unstarted++
			p.ready.push(l)
		}
	}
}

// cancelRunning ends the contexts of all running calls, or of one message's.
// Their messages burn no attempt. It says how many it found.
func (p *pool) cancelRunning(cause error, only *brokers.Delivery) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for w := range p.workers {
		if it := w.cur.Load(); it != nil && (only == nil || it.d == only) {
			it.released = true
			it.ctx.cancel(context.Canceled, cause)
			n++
		}
	}
	return n
}

// giveBackOne gives a message back that waits for its call, unless something
// above it has begun where the broker keeps positions.
func (p *pool) giveBackOne(d *brokers.Delivery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	it := p.find(d)
	if it == nil || it.state != queued && it.state != waiting || p.gap(it) {
		return
	}
	if it.state == waiting {
		heap.Remove(&p.waits, it.heap)
	}
	if l := it.lane; l != nil && (it.state == queued || !l.shared) {
		l.blocked = l.blocked && l.head != it
		l.remove(it)
		p.ready.push(l)
	}
	p.unstarted--
	delete(p.blocked, it)
	p.giveUp(it)
	p.flush()
	p.spawn()
}

// abandon gives up on calls that still run: their slots are lost until they
// return, their results will not be sent. The deliveries are the caller's to
// give back.
func (p *pool) abandon() ([]*brokers.Delivery, []*pb.AbandonedMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*brokers.Delivery
	var named []*pb.AbandonedMessage
	for w := range p.workers {
		it := w.cur.Load()
		if it == nil || w.lane == nil {
			continue // between two chunks: it is about to leave
		}
		p.book(w, it)
		p.strays = append(p.strays, w.steal()...)
		named = append(named, p.named(it))
		it.abandoned = true
		p.count.abandoned++
		if it.state != gone {
			out = append(out, it.d)
			p.leftOver(it)
		}
		it.ctx.cancel(context.Canceled, ErrKilled)
		w.leaked = true
		w.lane.busy = false
		w.lane = nil
		delete(p.workers, w)
		p.leaked++
	}
	p.flush()
	p.tellIfQuiet()
	return out, named
}

func (p *pool) named(it *item) *pb.AbandonedMessage {
	return &pb.AbandonedMessage{Id: it.d.ID(), Age: durationpb.New(time.Duration(p.clock.now() - it.slab.taken))}
}

// fence ends an epoch: nothing of it starts or settles any more. What was not
// settled is the caller's to give back by closing the subscription. Calls that
// run go on, and keep their slots.
func (p *pool) fence(ep *epoch, cause error) []*brokers.Delivery {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ep.fenced {
		return nil
	}
	ep.fenced = true
	ep.cancel(cause)
	p.budget.join(-1)
	p.intake, p.gate, p.holding = intakeClosed, gateClosed, false
	p.sweep(func(*item) bool { return false })
	for w := range p.workers {
		if it := w.cur.Load(); it != nil && w.lane != nil {
			p.book(w, it)
		}
	}
	p.strays, p.settles, p.dead = nil, nil, nil
	var out []*brokers.Delivery
	for s := p.first; s != nil; {
		next := s.next
		for i := range s.items {
			it := &s.items[i]
			switch it.state {
			case gone:
				continue
			case returning, sent: // the driver has it already
			default:
				out = append(out, it.d)
			}
			p.bookFenced(it)
		}
		s = next
	}
	p.repay()
	p.tellIfQuiet()
	return out
}

// bookFenced counts what the fence does to an item.
func (p *pool) bookFenced(it *item) {
	switch {
	case it.state == sent && it.settle == brokers.Ack:
		p.count.unconfirmed++
	case it.state == settling && it.settle == brokers.Ack:
		p.count.willRepeat++
	case it.state == claimed && p.runs(it):
		// counted as late when its call returns
	default:
		p.count.returned++
	}
	p.leftOver(it)
}

func (p *pool) runs(it *item) bool {
	for w := range p.workers {
		if w.cur.Load() == it {
			return true
		}
	}
	return false
}

// revoke gives up what has not started of some origins, without giving it
// back, finishes their gaps, and returns when nothing of them runs or is on its
// way to the broker, or when ctx ends.
func (p *pool) revoke(ctx context.Context, origins []*brokers.Origin) {
	of := func(it *item) bool { return slices.Contains(origins, it.d.Origin) }
	t := time.NewTicker(tick)
	defer t.Stop()
	for first := true; p.yield(of, first); first = false {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// yield gives up what of these has not started and is no gap, and says whether
// some of them are still in flight. A message that failed meanwhile has not
// started either; chunks of workers are looked into the first time only.
func (p *pool) yield(of func(*item) bool, first bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	keep := func(it *item) bool { return !of(it) || p.gap(it) }
	idle := func(it *item) bool { return (it.state == queued || it.state == waiting) && !keep(it) }
	if first || p.any(idle) {
		strays := p.strays
		p.strays = nil
		p.sweep(keep)
		for _, it := range p.strays {
			p.count.returned++
			p.leftOver(it)
		}
		p.strays = strays
		p.repay()
		p.spawn()
		p.tellIfQuiet()
		poke(p.credit)
	}
	return p.any(of)
}

// any says whether an item like this is in flight.
func (p *pool) any(like func(*item) bool) bool {
	for s := p.first; s != nil; s = s.next {
		for i := range s.items {
			if it := &s.items[i]; it.state != gone && like(it) {
				return true
			}
		}
	}
	return false
}

// awaitCredit waits until more may be asked for, and says how much.
func (p *pool) awaitCredit(ctx context.Context) (brokers.Credit, bool) {
	for {
		p.mu.Lock()
		free, room := p.cfg.maxMessages-p.inFlight, p.cfg.maxBytes-p.inFlightBytes
		ok := p.intake == intakeOpen && p.worthAsking(free, room)
		p.mu.Unlock()
		if ok {
			left, err := p.budget.room(ctx)
			return brokers.Credit{Messages: free, Bytes: min(room, left)}, err == nil
		}
		select {
		case <-p.credit:
		case <-ctx.Done():
			return brokers.Credit{}, false
		}
	}
}

// worthAsking: unless workers starve, a quarter of the bounds is free, so that
// asking is paid per batch. A message that is larger than what is asked for comes
// all the same; so there is also room for the largest of the last ones, or
// nothing is in flight.
func (p *pool) worthAsking(free int, room int64) bool {
	switch {
	case p.inFlight == 0:
		return true
	case free <= 0 || room <= 0 || room < min(p.largest, p.cfg.maxBytes):
		return false
	}
	return p.unstarted == 0 || free >= (p.cfg.maxMessages+3)/4 && room >= p.cfg.maxBytes/4
}

// trouble tells how many slots are lost, and why a message is retried for ever.
func (p *pool) trouble() (leaked int, blocked string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	oldest := int64(0)
	for it, why := range p.blocked {
		if oldest == 0 || it.slab.taken < oldest {
			oldest, blocked = it.slab.taken, "message "+it.d.ID()+": "+why
		}
	}
	return p.leaked, blocked
}

// exhausted: leaked calls hold every slot.
func (p *pool) exhausted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leaked > 0 && p.leaked >= p.cfg.concurrency
}
