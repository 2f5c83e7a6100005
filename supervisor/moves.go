package supervisor

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/lifecycle"
)

const (
	// killGrace is what cancelled handlers have after a kill.
	killGrace = 500 * time.Millisecond
	// killClose is how long a kill waits for the broker's confirmation.
	killClose = 500 * time.Millisecond
	// reportGrace is how long a driver may take to report what it knows, once it
	// was asked.
	reportGrace = 100 * time.Millisecond
	// startTimeout bounds a start as a whole: each of its parts has its own limit,
	// but the turn among many consumers on one connection may take long.
	startTimeout = time.Hour
	// closeGrace is how long a stop waits for it beyond its hard limit.
	closeGrace = 1500 * time.Millisecond
	// holdTimeout bounds giving back, and closing in the background.
	holdTimeout = 5 * time.Second
	// steady is how long a consumer runs before its failures are forgiven.
	steady = 30 * time.Second
)

// fire moves the consumer by the table; an event that has no row here is
// refused by leaving everything as it is.
func (c *consumer) fire(e lifecycle.Event, why string) {
	row, ok := c.s.machine.Next(c.state, e)
	if !ok {
		return
	}
	if c.lastRow != nil {
		c.publish() // each move is shown, also when many are made at once
	}
	from := c.state
	c.state = row.To
	if from != row.To {
		c.since, c.reason = time.Now(), why
	}
	c.record(from, e, why)
	if row.To == lifecycle.Running {
		c.running = time.Now()
	}
	c.effect(row.Do, why)
	if row.To == lifecycle.Stopped && from != lifecycle.Stopped {
		c.converge()
	}
}

// effect does what a row says.
func (c *consumer) effect(e lifecycle.Effect, why string) {
	switch e {
	case lifecycle.Open:
		c.endOp(pb.ReceiptOutcome_RECEIPT_OUTCOME_OVERTAKEN)
		c.at = deadlines{hold: c.at.hold}
		c.open()
	case lifecycle.Hold:
		c.at.backoff = time.Time{}
		c.hold(false)
	case lifecycle.Shut:
		c.at.backoff = time.Time{}
		c.shut()
	case lifecycle.Cancel:
		c.at.backoff = time.Time{}
		c.hold(true)
	case lifecycle.Abandon:
		c.abandon()
	case lifecycle.Close:
		c.close(c.closingLimit(), nil)
	case lifecycle.Reap:
		c.reap()
	case lifecycle.Hurry:
		c.cut, c.at.closing = false, time.Now().Add(killClose)
	case lifecycle.Detach:
		c.detach(errors.New(why))
	case lifecycle.Delay:
		c.detach(errors.New(why))
		c.delay()
	case lifecycle.Finish:
		c.at = deadlines{hold: c.at.hold}
		c.endOp(pb.ReceiptOutcome_RECEIPT_OUTCOME_UNSPECIFIED)
		switch c.state {
		case lifecycle.Stopped:
			c.closeHandler()
			delete(c.conds, pb.ConditionType_CONDITION_TYPE_CONNECTED)
		case lifecycle.Paused:
			c.listen()
		}
	}
}

// failed sorts what went wrong with the subscription into an event.
func (c *consumer) failed(err error) {
	var be *brokers.Error
	errors.As(err, &be)
	class := brokers.ClassOf(err)
	c.setCondition(pb.ConditionType_CONDITION_TYPE_CONNECTED, false, err.Error())
	if class == brokers.Lost {
		c.setCondition(pb.ConditionType_CONDITION_TYPE_DATA_LOSS, true, err.Error())
	}
	if c.state == lifecycle.Running && time.Since(c.running) > steady {
		c.attempt, c.answered = 0, 0
	}
	waits := be != nil && be.Wait
	switch {
	case class == brokers.Refused, class == brokers.Fenced, class == brokers.Missing && !waits:
		c.fire(lifecycle.Refused, err.Error())
		return
	case class == brokers.Unreachable, waits:
		c.answered = 0
	default:
		c.answered++
	}
	if cfg := c.config.Load(); cfg != nil && c.answered >= cfg.RestartAttempts {
		c.fire(lifecycle.Refused, fmt.Sprintf("gave up after %d failures in a row: %v", c.answered, err))
		return
	}
	c.fire(lifecycle.Broke, err.Error())
}

// delay waits before the next attempt.
func (c *consumer) delay() {
	c.attempt++
	b := backoff{500 * time.Millisecond, 30 * time.Second}
	if cfg := c.config.Load(); cfg != nil {
		b = backoff{cfg.RestartBackoff.Initial, cfg.RestartBackoff.Max}
	}
	c.at = deadlines{hold: c.at.hold, backoff: time.Now().Add(b.after(c.attempt, c.s.o.Jitter))}
}

// softLimit and hardLimit fire what the limits mean for the goal.
func (c *consumer) softLimit() {
	if c.op != nil {
		c.op.softFired = true
	}
	if c.state == lifecycle.Pausing || c.state == lifecycle.Draining && c.goal() == goalPause && !c.stopping() {
		c.fire(lifecycle.SoftQuiet, "soft limit")
		return
	}
	c.fire(lifecycle.Soft, "soft limit")
}

func (c *consumer) hardLimit() {
	if c.op != nil && !c.pool.isQuiet() {
		c.op.hardFired = true
		c.s.hardLimits.Add(1)
		c.log.Error("hard limit fired: giving up on handlers that do not return", "verb", c.op.verb())
	}
	c.fire(lifecycle.Hard, "hard limit")
}

// stopping: on the way to STOPPED whatever the goal, because of a restart.
func (c *consumer) stopping() bool {
	return c.op != nil && c.op.restart || c.next != nil
}

// poolChanged looks at what the pool has to tell.
func (c *consumer) poolChanged() {
	leaked, why := c.pool.trouble()
	c.setCondition(pb.ConditionType_CONDITION_TYPE_HANDLERS_LEAKED, leaked > 0,
		fmt.Sprintf("%d handlers ignore their context and hold slots", leaked))
	c.setCondition(pb.ConditionType_CONDITION_TYPE_HEAD_BLOCKED, why != "", why)
	if c.pool.exhausted() {
		c.fire(lifecycle.Exhausted, "leaked handlers hold every slot; restart the process to free them")
	}
}
