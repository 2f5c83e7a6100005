package supervisor

import (
	"context"
	"errors"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/lifecycle"
)

// call is a driver call under way, off the actor's goroutine. One runs at a
// time: the next cancels it and waits, on its own goroutine, for its end.
type call struct {
	cancel  context.CancelCauseFunc
	done    chan struct{}
	opening bool // cancelled by any later one
}

var errSuperseded = errors.New("superseded by a later verb")

// begin runs f off the actor, after the call before has ended, and then end on
// the actor. With cut the call before is cancelled; it is not where its work
// must be whole, as with a give-back.
func (c *consumer) begin(limit time.Duration, cut bool, f func(context.Context) func(current bool)) {
	ctx, cancel := context.WithCancelCause(context.Background())
	prev := c.call
	this := &call{cancel: cancel, done: make(chan struct{})}
	c.call = this
	if prev != nil && (cut || prev.opening) {
		prev.cancel(errSuperseded)
	}
	go func() {
		defer cancel(nil)
		if prev != nil {
			<-prev.done
		}
		bounded, stop := context.WithTimeout(ctx, limit)
		end := f(bounded)
		stop()
		close(this.done)
		c.tell(func() {
			current := c.call == this
			if current {
				c.call = nil
			}
			end(current)
		})
	}()
}

// beginOpen is begin for what leads to RUNNING: any later call cancels it.
func (c *consumer) beginOpen(limit time.Duration, f func(context.Context) func(current bool)) {
	c.begin(limit, false, f)
	c.call.opening = true
}

// open subscribes, or lets a held subscription flow again.
func (c *consumer) open() {
	switch {
	case c.config.Load() == nil:
		fault := c.fault
		c.beginOpen(holdTimeout, func(context.Context) func(bool) {
			return func(current bool) {
				if current {
					c.fire(lifecycle.Refused, fault.Error())
				}
			}
		})
	case c.pool.exhausted():
		c.poolChanged()
	case c.ep != nil:
		c.flow(c.ep)
	default:
		c.subscribe()
	}
}

func (c *consumer) flow(ep *epoch) {
	c.beginOpen(dialTimeout, func(ctx context.Context) func(bool) {
		err := ep.sub.Flow(ctx)
		return func(current bool) {
			switch {
			case !current || c.ep != ep:
			case err != nil:
				c.failed(err)
			default:
				c.opened(ep)
			}
		}
	})
}

// subscribe begins an epoch, after what was before has been released.
func (c *consumer) subscribe() {
	c.epochs++
	n, reaping, cfg, env, handler := c.epochs, c.reaping, c.config.Load(), c.handlerEnv(), c.handler
	l := c.s.links[cfg.Connection]
	c.beginOpen(dialTimeout+holdTimeout, func(ctx context.Context) func(bool) {
		waitAll(ctx, reaping)
		var err error
		if handler == nil {
			if handler, err = c.s.newHandler(cfg, env); err != nil {
				return func(current bool) {
					if current {
						c.fire(lifecycle.Refused, "handler: "+err.Error())
					}
				}
			}
		}
		sub, err := l.subscribe(ctx, cfg.Plan.Source, observer{c, n})
		return func(current bool) { c.subscribed(current, n, handler, sub, err) }
	})
}

// subscribed takes over what subscribe made; when it came too late, so that
// nothing of it leaks.
func (c *consumer) subscribed(current bool, n uint64, h Handler, sub brokers.Subscription, err error) {
	c.handler = h
	c.configure()
	switch {
	case err == nil && current:
		c.reaping = nil
		c.opened(newEpoch(n, sub))
	case err == nil:
		c.release(newEpoch(n, sub), nil, nil)
	case current:
		c.failed(err)
	}
}

func waitAll(ctx context.Context, done []<-chan struct{}) {
	for _, d := range done {
		select {
		case <-d:
		case <-ctx.Done():
		}
	}
}

func newEpoch(n uint64, sub brokers.Subscription) *epoch {
	ep := &epoch{n: n, sub: sub, caps: sub.Capabilities()}
	ep.ctx, ep.cancel = context.WithCancelCause(context.Background())
	return ep
}

// opened: the subscription flows.
func (c *consumer) opened(ep *epoch) {
	c.ep = ep
	c.setCondition(pb.ConditionType_CONDITION_TYPE_CONNECTED, true, "")
	c.pool.open(ep)
	c.receiver = c.receive(ep)
	c.fire(lifecycle.Ready, "")
}

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
	c.pool.hold()
	c.startLimits()
	c.giveBack(ep, nil)
}

// shut closes the intake only.
func (c *consumer) shut() {
	c.pool.shut()
	c.startLimits()
	c.giveBack(c.ep, nil)
}

// giveBack stops taking and gives back strays, and more.
func (c *consumer) giveBack(ep *epoch, more []*brokers.Delivery) {
	r := c.receiver
	r.stop()
	kill := c.op != nil && c.op.kill
	if ep == nil {
		c.begin(holdTimeout, true, func(context.Context) func(bool) { return func(bool) {} })
		return
	}
	c.begin(c.holdLimit(), kill, func(ctx context.Context) func(bool) {
		r.wait(ctx)
		items := c.pool.takeStrays()
		ds := make([]*brokers.Delivery, 0, len(items)+len(more))
		for _, it := range items {
			ds = append(ds, it.d)
		}
		rep, err := ep.sub.Hold(ctx, append(ds, more...))
		c.pool.gaveBack(items, rep, len(more))
		return func(bool) {
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
	c.giveBack(c.ep, ds)
}

// close closes the subscription and waits for it until limit; then it goes on
// in the background and the receipt says that the release is pending.
func (c *consumer) close(limit time.Duration, abandoned []*brokers.Delivery) {
	ep := c.ep
	c.ep = nil
	c.at = deadlines{hold: c.at.hold, closing: time.Now().Add(limit)}
	if ep == nil {
		c.fire(lifecycle.Released, "")
		return
	}
	if c.op != nil {
		c.op.release = pb.Release_RELEASE_PENDING
	}
	ds := append(c.pool.fence(ep, errClosed), abandoned...)
	c.release(ep, ds, func(rep brokers.Report) {
		c.pool.gaveBack(nil, rep, len(ds))
		if c.op != nil && rep.Released && c.state == lifecycle.Closing {
			c.op.release = pb.Release_RELEASE_CONFIRMED
		}
		c.fire(lifecycle.Released, "")
	})
}

var errClosed = errors.New("the subscription was closed")

// reap abandons what still runs and closes.
func (c *consumer) reap() {
	ds, named := c.pool.abandon()
	c.nameAbandoned(named)
	c.close(c.closingLimit(), ds)
}

// closingLimit is how long STOPPED waits for the broker's confirmation.
func (c *consumer) closingLimit() time.Duration {
	switch {
	case c.op != nil && c.op.kill:
		return killClose
	case c.final:
		return max(killClose, time.Until(c.at.hard))
	}
	return max(closeGrace, time.Until(c.at.hard))
}

// detach fences the epoch and leaves its subscription to a reaper.
func (c *consumer) detach(err error) {
	ep := c.ep
	c.ep = nil
	if ep == nil {
		return
	}
	ds := c.pool.fence(ep, err)
	if c.op != nil {
		c.op.release = pb.Release_RELEASE_PENDING
	}
	op := c.op
	c.release(ep, ds, func(rep brokers.Report) {
		c.pool.gaveBack(nil, rep, len(ds))
		if op != nil && op == c.op && rep.Released {
			op.release = pb.Release_RELEASE_CONFIRMED
		}
	})
}

// release closes a subscription in the background; the next start waits for it.
func (c *consumer) release(ep *epoch, ds []*brokers.Delivery, then func(brokers.Report)) {
	r := c.receiver
	c.receiver = nil
	r.stop()
	ep.cancel(errClosed)
	done := make(chan struct{})
	c.reaping = append(c.reaping, done)
	prev := c.call
	go func() {
		if prev != nil {
			prev.cancel(errSuperseded)
			<-prev.done
		}
		ctx, cancel := context.WithTimeout(c.s.reaping, holdTimeout)
		defer cancel()
		r.wait(ctx)
		rep, err := ep.sub.Close(ctx, ds)
		if err != nil {
			c.log.Warn("closing a subscription", "error", err)
		}
		close(done)
		if then != nil {
			c.tell(func() { then(rep) })
		}
	}()
}

func (c *consumer) cancelCause() error {
	if c.op != nil && c.op.kill {
		return ErrKilled
	}
	return ErrStopping
}
