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

// await returns when the call has ended; it is cancelled when ctx ends, and with
// it those that it waits for itself.
func (c *call) await(ctx context.Context) {
	select {
	case <-c.done:
		return
	case <-ctx.Done():
	}
	c.cancel(errSuperseded)
	<-c.done
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
			prev.await(ctx)
		}
		bounded, stop := context.WithTimeout(ctx, limit)
		end := f(bounded)
		stop()
		// In this order: whoever waits for done comes after end.
		c.tell(func() {
			current := c.call == this
			if current {
				c.call = nil
			}
			end(current)
		})
		close(this.done)
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
		if c.closing {
			c.closing = false
			c.pool.takeBack()
		}
		c.flow(c.ep)
	default:
		c.subscribe()
	}
}

func (c *consumer) flow(ep *epoch) {
	r := c.receiver
	if r == nil || !r.listens {
		r = nil
	}
	r.stop()
	c.beginOpen(dialTimeout, func(ctx context.Context) func(bool) {
		r.wait(ctx) // what flows is not for it
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
	c.beginOpen(startTimeout, func(ctx context.Context) func(bool) {
		waitAll(ctx, dialTimeout+holdTimeout, reaping)
		fresh := handler == nil
		if fresh {
			var err error
			if handler, err = c.s.newHandler(ctx, cfg, env); err != nil {
				return func(current bool) {
					if current {
						c.fire(lifecycle.Refused, "handler: "+err.Error())
					}
				}
			}
		}
		sub, leave, err := l.subscribe(ctx, cfg.Plan.Source, observer{c, n})
		return func(current bool) {
			if fresh {
				c.takeHandler(current, handler)
			}
			if err != nil {
				if current {
					c.failed(err)
				}
				return
			}
			c.subscribed(current, newEpoch(n, sub, leave))
		}
	})
}

// takeHandler keeps a handler made for a start, unless that start was
// superseded: it may be of a spec that is not in force any more.
func (c *consumer) takeHandler(current bool, h Handler) {
	if !current {
		c.endHandler(h)
		return
	}
	c.handler = h
	c.configure()
}

// subscribed takes over what subscribe made; when it came too late, so that
// nothing of it leaks.
func (c *consumer) subscribed(current bool, ep *epoch) {
	if !current {
		c.release(ep, nil)
		return
	}
	c.reaping = nil
	c.opened(ep)
}

// reap is something that is being closed in the background.
type reap struct {
	cut  context.CancelCauseFunc // tells it to report what it knows
	done chan struct{}
}

// waitAll waits for the ends of closings, but no longer than limit for all.
func waitAll(ctx context.Context, limit time.Duration, reaping []reap) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, r := range reaping {
		select {
		case <-r.done:
		case <-ctx.Done():
		}
	}
}

func newEpoch(n uint64, sub brokers.Subscription, leave func()) *epoch {
	ep := &epoch{n: n, sub: sub, leave: leave, caps: sub.Capabilities()}
	ep.ctx, ep.cancel = context.WithCancelCause(context.Background())
	return ep
}

// opened: the subscription flows.
func (c *consumer) opened(ep *epoch) {
	c.ep = ep
	c.caps = capabilities(ep.caps)
	c.setCondition(pb.ConditionType_CONDITION_TYPE_CONNECTED, true, "")
	c.pool.open(ep)
	c.receive(ep)
	c.fire(lifecycle.Ready, "")
}

// close closes the subscription. It is closed, for the consumer, when the driver
// has reported; at the limit the driver is asked for what it knows by then, goes
// on in the background, and the receipt says that the release is pending.
func (c *consumer) close(limit time.Duration, abandoned []*brokers.Delivery) {
	ep := c.ep
	c.ep = nil
	c.cut, c.at = false, deadlines{hold: c.at.hold, closing: time.Now().Add(limit)}
	if ep != nil {
		c.release(ep, append(c.pool.fence(ep, errClosed), abandoned...))
	}
	if c.unreported == 0 {
		c.fire(lifecycle.Released, "")
	}
}

// closingLate: the limit of a closing is over.
func (c *consumer) closingLate(now time.Time) {
	cut := false
	for _, r := range c.reaping {
		select {
		case <-r.done:
		default:
			r.cut(errClosingLate)
			cut = true
		}
	}
	if !cut || c.cut {
		c.fire(lifecycle.Released, "")
		return
	}
	c.cut, c.at.closing = true, now.Add(reportGrace)
}

var (
	errClosed      = errors.New("the subscription was closed")
	errClosingLate = errors.New("the time for closing is over")
)

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
	if ep != nil {
		c.release(ep, c.pool.fence(ep, err))
	}
}

// release closes a subscription in the background. The receipt of the verb under
// way waits for its report, the next start for its end.
func (c *consumer) release(ep *epoch, ds []*brokers.Delivery) {
	r := c.receiver
	c.receiver, c.closing = nil, false
	r.stop()
	ep.cancel(errClosed)
	delete(c.conds, pb.ConditionType_CONDITION_TYPE_ASSIGNED)
	if c.op != nil {
		c.op.release = pb.Release_RELEASE_PENDING
	}
	life, cut := context.WithCancelCause(c.s.reaping)
	done := make(chan struct{})
	c.reaping = append(c.reaping, reap{cut, done})
	c.unreported++
	prev := c.call
	go func() {
		defer close(done)
		defer cut(nil)
		if prev != nil {
			prev.cancel(errSuperseded)
			<-prev.done
		}
		ctx, cancel := context.WithTimeout(life, holdTimeout)
		defer cancel()
		r.wait(ctx)
		late := c.pool.takeLate(ep)
		rep, err := ep.sub.Close(ctx, append(ds, late...))
		ep.leave()
		if err != nil {
			c.log.Warn("closing a subscription", "error", err)
		}
		c.tell(func() { c.released(rep, len(ds)+len(late)) })
	}()
}

// released books what a closed subscription reported.
func (c *consumer) released(rep brokers.Report, given int) {
	c.unreported--
	c.pool.gaveBack(nil, rep, given)
	if o := c.op; o != nil && o.release == pb.Release_RELEASE_PENDING {
		o.unreleased = o.unreleased || !rep.Released
		if c.unreported == 0 && !o.unreleased {
			o.release = pb.Release_RELEASE_CONFIRMED
		}
	}
	if c.unreported == 0 && c.state == lifecycle.Closing {
		c.fire(lifecycle.Released, "")
	}
}

func (c *consumer) cancelCause() error {
	if c.op != nil && c.op.kill {
		return ErrKilled
	}
	return ErrStopping
}
