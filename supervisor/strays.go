package supervisor

import (
	"cmp"
	"slices"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

func inOriginOrder(a, b *item) int {
	return cmp.Or(cmp.Compare(a.d.Origin.Index, b.d.Origin.Index), cmp.Compare(a.d.Position, b.d.Position))
}

// takeStrays hands over what is to be given back; it stays in flight until
// [pool.gaveBack].
func (p *pool) takeStrays() []*item {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.strays
	p.strays, p.holding = nil, false
	for _, it := range out {
		if it.state != gone {
			it.state = returning
		}
	}
	return out
}

// onlyStrays: nothing runs and nothing is being settled; what is in flight waits
// to be given back.
func (p *pool) onlyStrays() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rests()
}

// takeBack lets the strays go on that were not given back after all.
func (p *pool) takeBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	strays := p.strays
	p.strays, p.holding = nil, false
	slices.SortStableFunc(strays, inOriginOrder)
	for _, it := range strays {
		if it.leaving {
			p.settle(it, brokers.Release)
			continue
		}
		l := p.laneOf(it.d)
		l.push(it)
		p.unstarted++
		p.ready.push(l)
	}
	p.flush()
}

// takeLate hands over what arrived after an epoch's fence.
func (p *pool) takeLate(ep *epoch) []*brokers.Delivery {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := ep.late
	ep.late = nil
	return out
}

// gaveBack books items given back, and the driver's own beyond them and others
// that are booked already.
func (p *pool) gaveBack(items []*item, r brokers.Report, others int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, it := range items {
		if it.state != gone {
			p.leftOver(it)
			p.count.returned++
		}
	}
	p.count.returned += int64(max(0, r.Returned-len(items)-others))
	p.count.unconfirmed += int64(r.Unconfirmed)
	p.count.ownershipLost += int64(r.OwnershipLost)
	p.count.willRepeat += int64(r.WillRepeat)
	p.repay()
	poke(p.credit)
	p.tellIfQuiet()
}
