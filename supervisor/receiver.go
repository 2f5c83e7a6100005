package supervisor

import (
	"context"
	"errors"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// receive starts taking batches of an epoch, once the receiver before has ended:
// a subscription has one at a time. One that still takes goes on.
func (c *consumer) receive(ep *epoch) {
	prev := c.receiver
	if prev != nil && !prev.stopped {
		return
	}
	ctx, cancel := context.WithCancelCause(ep.ctx)
	r := &receiver{cancel: cancel, done: make(chan struct{})}
	c.receiver = r
	go func() {
		defer close(r.done)
		defer cancel(nil)
		if prev != nil {
			<-prev.done // Receive returns with its context
		}
		for {
			credit, ok := c.pool.awaitCredit(ctx)
			if !ok {
				return
			}
			batch, err := ep.sub.Receive(ctx, credit)
			if len(batch) > 0 {
				c.pool.add(ep, batch)
			}
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				c.lost(ep, err)
				return
			}
		}
	}()
}

// listen waits for the end of a held subscription, so that who is paused hears
// of it. Nothing is delivered meanwhile.
func (c *consumer) listen() {
	ep, prev := c.ep, c.receiver
	if ep == nil {
		return
	}
	ctx, cancel := context.WithCancelCause(ep.ctx)
	r := &receiver{cancel: cancel, done: make(chan struct{}), listens: true}
	c.receiver = r
	go func() {
		defer close(r.done)
		defer cancel(nil)
		if prev != nil {
			<-prev.done // Receive returns with its context
		}
		_, err := ep.sub.Receive(ctx, brokers.Credit{Messages: 1, Bytes: 1})
		if ctx.Err() == nil && err != nil {
			c.lost(ep, err)
		}
	}()
}

// stop ends the taking; what had arrived is in the pool when done is closed.
func (r *receiver) stop() {
	if r != nil {
		r.stopped = true
		r.cancel(context.Canceled)
	}
}

func (r *receiver) wait(ctx context.Context) {
	if r == nil {
		return
	}
	select {
	case <-r.done:
	case <-ctx.Done():
	}
}

// settleBroke hears from the pool that settling failed. That it is fenced says
// only that the subscription is over, which Receive may be about to tell better.
func (c *consumer) settleBroke(ep *epoch, err error) {
	if be, ok := errors.AsType[*brokers.Error](err); ok && be.Class == brokers.Fenced && ep.ctx.Err() == nil {
		over := *be
		over.Class = brokers.Transient
		err = &over
	}
	c.lost(ep, err)
}

// lost tells the actor that a subscription ended. It does not wait for it.
func (c *consumer) lost(ep *epoch, err error) {
	if brokers.ClassOf(err) == brokers.Fenced && ep.ctx.Err() != nil {
		return // our own fence
	}
	c.tell(func() {
		if c.ep == ep {
			c.failed(err)
		}
	})
}
