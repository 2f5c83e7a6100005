package supervisor

import (
	"context"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/supervisor/lifecycle"
)

// markEvery is how often a backlog drain looks whether it is there.
const markEvery = 250 * time.Millisecond

// findMark asks the broker what waits there, for a drain of the backlog: the
// mark is reached when so many more are settled, or when nothing waits and
// nothing is in flight. Others may consume the same source, so that the count
// alone would not do.
func (c *consumer) findMark() {
	o := c.op
	o.markUntil = time.Now().Add(o.backlog)
	o.markCount = -1
	c.at.mark = time.Now()
}

// checkMark looks again.
func (c *consumer) checkMark(now time.Time) {
	o := c.op
	if o == nil || !o.consuming {
		return
	}
	if now.After(o.markUntil) {
		c.missMark()
		return
	}
	n := c.pool.counters()
	if o.markCount >= 0 && n.acked+n.deadLettered-o.base.acked-o.base.deadLettered >= o.markCount {
		c.marked()
		return
	}
	c.at.mark = now.Add(markEvery)
	ep := c.ep
	if ep == nil {
		return // not open yet
	}
	go func() {
		ctx, cancel := context.WithTimeout(ep.ctx, lagTimeout)
		defer cancel()
		lag, err := ep.sub.Lag(ctx)
		if err != nil {
			return
		}
		c.tell(func() { c.foundLag(o, lag) })
	}()
}

func (c *consumer) foundLag(o *operation, lag brokers.Lag) {
	if c.op != o || !o.consuming {
		return
	}
	held := c.pool.load()
	if o.markCount < 0 {
		n := c.pool.counters()
		o.markCount = lag.Messages + int64(held.messages) + n.acked + n.deadLettered - o.base.acked - o.base.deadLettered
	}
	if lag.Messages == 0 && held.messages == 0 {
		c.marked()
	}
}

// missMark ends the consuming before the mark is reached.
func (c *consumer) missMark() {
	c.op.markMissed = true
	c.marked()
}

func (c *consumer) marked() {
	c.op.consuming = false
	c.at.mark = time.Time{}
	c.fire(lifecycle.Marked, "")
}
