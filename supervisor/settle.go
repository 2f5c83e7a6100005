package supervisor

import (
	"context"
	"slices"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

const (
	// settleTimeout: a broker that takes no ack for so long is lost.
	settleTimeout = 10 * time.Second
	// settleShared is how long calls share one context with that timeout, whose
	// making would cost more than all else of a small batch.
	settleShared = time.Second
	// buryTimeout bounds one publication of dead letters.
	buryTimeout = 10 * time.Second
	// buryMax bounds the messages of one.
	buryMax = 100
)

// settle sends an item's outcome on its way.
func (p *pool) settle(it *item, o brokers.Outcome) {
	it.state, it.settle = settling, o
	p.settles = append(p.settles, it)
}

// giveUp gives an item back: with the strays, while those are still to be given
// back, because an intake that the broker knows as open would get it again.
func (p *pool) giveUp(it *item) {
	if p.holding {
		it.state = claimed
		p.strays = append(p.strays, it)
		return
	}
	p.settle(it, brokers.Release)
}

// scratch is what a run of flushAll leaves for the next.
type scratch struct {
	items       []*item
	settlements []brokers.Settlement
}

// flush starts the settling of what has gathered, unless it is under way.
func (p *pool) flush() {
	p.repay()
	if p.flushing || len(p.settles) == 0 {
		return
	}
	p.flushing = true
	go p.flushAll()
}

// flushAll hands gathered outcomes to the broker until none is left. What
// gathers while one batch is on its way is the next batch.
func (p *pool) flushAll() {
	p.mu.Lock()
	batch, out := p.spare.items, p.spare.settlements
	p.spare = scratch{}
	for {
		batch, p.settles = p.settles, batch[:0]
		if len(batch) == 0 {
			p.flushing = false
			if p.onWheel {
				p.spare = scratch{batch, out}
			}
			p.tellIfQuiet()
			p.mu.Unlock()
			return
		}
		ep := batch[0].ep
		for _, it := range batch {
			it.state = sent
		}
		p.mu.Unlock()

		out = slices.Grow(out[:0], len(batch))
		for _, it := range batch {
			out = append(out, brokers.Settlement{Delivery: it.d, Outcome: it.settle})
		}
		err := ep.sub.Settle(ep.settleContext(p.clock.now()), out)
		if err != nil {
			p.broke(ep, err)
		}
		clear(out)
		p.mu.Lock()
		for _, it := range batch {
			p.settled(it, err)
		}
		p.repay()
		clear(batch)
		poke(p.credit)
	}
}

// settleContext bounds a Settle that begins now. It has one caller at a time.
func (ep *epoch) settleContext(now int64) context.Context {
	if ep.settling == nil || now-ep.settlingSince > int64(settleShared) {
		if ep.settling != nil {
			ep.endSettling()
		}
		ep.settling, ep.endSettling = context.WithTimeout(ep.ctx, settleTimeout)
		ep.settlingSince = now
	}
	return ep.settling
}

// settled books an item whose outcome was handed to the broker.
func (p *pool) settled(it *item, err error) {
	if it.state == gone { // fenced meanwhile, and counted there
		return
	}
	switch {
	case err == nil && it.settle == brokers.Release:
		p.count.returned++
	case err == nil && it.buried:
		p.count.deadLettered++
	case err == nil:
		p.count.acked++
	case it.settle == brokers.Ack && brokers.ClassOf(err) == brokers.Fenced:
		p.count.willRepeat++
	case it.settle == brokers.Ack:
		p.count.unconfirmed++
	default:
		p.count.returned++
	}
	p.gone(it)
}

// bury sends an item whose attempts are used up to the dead letters, or keeps
// trying it at the longest backoff where there is no target.
func (p *pool) bury(it *item) {
	if p.cfg.deadLetter == nil {
		if !p.goesOn(it) {
			p.giveUp(it)
			return
		}
		p.block(it, "no dead_letter target: retried for ever")
		p.count.retried++
		p.wait(it, p.clock.now()+int64(p.cfg.backoff.max))
		return
	}
	it.state, it.lane = deadly, nil // its lane goes on
	p.dead = append(p.dead, it)
	if !p.burying {
		p.burying = true
		go p.buryAll()
	}
}

// buryAll publishes dead letters; each is acked only after the publication was
// confirmed. What could not be published waits, and is tried again.
func (p *pool) buryAll() {
	for {
		p.mu.Lock()
		batch := p.dead[:min(len(p.dead), buryMax)]
		p.dead = p.dead[len(batch):]
		if len(batch) == 0 {
			p.burying = false
			p.dead = nil
			p.tellIfQuiet()
			p.mu.Unlock()
			return
		}
		ep := batch[0].ep
		p.mu.Unlock()

		ctx, cancel := context.WithTimeout(ep.ctx, buryTimeout)
		err := p.publish(ctx, ep, batch)
		cancel()

		p.mu.Lock()
		for _, it := range batch {
			p.buried(it, err)
		}
		p.flush()
		p.mu.Unlock()
	}
}

// buried books one dead letter.
func (p *pool) buried(it *item, err error) {
	switch {
	case it.state == gone:
		p.count.late++
	case err == nil:
		delete(p.blocked, it)
		it.buried = true
		p.settle(it, brokers.Ack)
	case !p.goesOn(it):
		p.giveUp(it)
	default:
		p.block(it, "dead letter not confirmed: "+err.Error())
		p.wait(it, p.clock.now()+int64(p.cfg.backoff.after(int(it.attempts), p.jitter)))
	}
}

// block notes a message that cannot go on.
func (p *pool) block(it *item, why string) {
	if p.blocked == nil {
		p.blocked = map[*item]string{}
	}
	if _, ok := p.blocked[it]; !ok {
		poke(p.signal)
	}
	p.blocked[it] = why
}
