package supervisor

import (
	"context"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// hold closes intake and gate and gives back what has not started. Where a
// give-back counts against the message, what was taken is finished first,
// until the soft limit or a stronger verb comes here again with cancel.
func (c *consumer) hold(cancel bool) {
	ep := c.ep
	if cancel {
		defer c.pool.cancelRunning(c.cancelCause(), nil)
	} else if ep != nil && ep.caps.GiveBackCounts && !(c.op != nil && c.op.softFired) {
		c.shut()
		return
	}
	c.pool.hold(!cancel && !(c.op != nil && c.op.softFired))
	c.startLimits()
	if !c.closesLater(ep) {
		c.giveBack(ep, nil)
	}
}

// closesLater leaves the giving back to the end of the subscription, once
// nothing runs, where only that keeps the order.
func (c *consumer) closesLater(ep *epoch) bool {
	if ep == nil || !ep.caps.OrderOnClose {
		return false
	}
	c.receiver.stop()
	c.closing = true
	return true
}

// closeNow does what closesLater has left, once nothing runs, and says whether
// it did.
func (c *consumer) closeNow() bool {
	if !c.closing || c.ep == nil || !c.pool.onlyStrays() {
		return false
	}
	c.detach(errClosed)
	return true
}

// shut closes the intake only.
func (c *consumer) shut() {
	c.pool.shut()
	c.startLimits()
	if !c.closesLater(c.ep) {
		c.endIntake(c.ep, nil, true)
	}
}

// giveBack stops taking and gives back strays, and more.
func (c *consumer) giveBack(ep *epoch, more []*brokers.Delivery) { c.endIntake(ep, more, false) }

// endIntake stops taking and gives back strays, and more. With finish, what the
// driver has taken is handled where it can hand that over.
func (c *consumer) endIntake(ep *epoch, more []*brokers.Delivery, finish bool) {
	r := c.receiver
	r.stop()
	kill := c.op != nil && c.op.kill
	if ep == nil {
		c.begin(holdTimeout, true, func(context.Context) func(bool) { return func(bool) {} })
		return
	}
	c.begin(c.holdLimit(), kill, func(ctx context.Context) func(bool) {
		r.wait(ctx)
		if f, ok := ep.sub.(brokers.Finisher); ok && finish {
			rest, _ := f.Shut(ctx) // Hold tells what is wrong
			if len(rest) > 0 {
				c.pool.add(ep, rest)
			}
		}
		items := c.pool.takeStrays()
		ds := make([]*brokers.Delivery, 0, len(items)+len(more))
		for _, it := range items {
			ds = append(ds, it.d)
		}
		rep, err := ep.sub.Hold(ctx, append(ds, more...))
		c.pool.gaveBack(items, rep, len(more))
		return func(bool) {
			if !rep.Released && c.op != nil {
				c.op.release, c.op.unreleased = pb.Release_RELEASE_PENDING, true
			}
			if err == nil {
				return
			}
			// A broker that does not confirm a give-back in time is lost, and the
			// epoch with it; the verb goes on without.
			if c.ep == ep {
				c.failed(err)
			}
		}
	})
}

// holdLimit is how long giving back may take now.
func (c *consumer) holdLimit() time.Duration {
	if c.op != nil && c.op.kill {
		return killGrace
	}
	return holdTimeout
}

// abandon gives up on handlers that ignore their context and gives their
// messages back, so that a pause can end.
func (c *consumer) abandon() {
	ds, named := c.pool.abandon()
	c.nameAbandoned(named)
	if ep := c.ep; ep != nil && c.closing {
		c.ep = nil
		c.release(ep, append(c.pool.fence(ep, errClosed), ds...))
		return
	}
	c.giveBack(c.ep, ds)
}
