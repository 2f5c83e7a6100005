package supervisor

import (
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"google.golang.org/protobuf/types/known/durationpb"
)

// operation is a verb under way that ends in a receipt.
type operation struct {
	pb         *pb.Operation
	base       counters
	based      bool          // base was taken when the gate closed
	soft, hard time.Duration // soft 0: none
	begun      bool          // the limits run
	kill       bool
	restart    bool
	consuming  bool // a backlog drain that has not reached its mark

	markCount  int64 // settled when the mark is reached
	markUntil  time.Time
	markMissed bool
	softFired  bool
	hardFired  bool
	release    pb.Release
	unreleased bool // the broker did not confirm all that was given back
	abandoned  []*pb.AbandonedMessage
	ended      chan struct{} // closed when there is a receipt
	done       chan struct{} // closed when it is written, or the store refused it
	limitsFrom time.Time
	backlog    time.Duration
	receipt    *pb.Receipt
	durable    bool // the receipt is
}

func newOperation(soft, hard time.Duration) *operation {
	return &operation{ended: make(chan struct{}), done: make(chan struct{}), soft: soft, hard: hard}
}

func (o *operation) verb() pb.Verb { return o.pb.GetVerb() }

// startOp makes an operation the one under way; a weaker one is overtaken.
func (c *consumer) startOp(o *operation) {
	c.endOp(pb.ReceiptOutcome_RECEIPT_OUTCOME_OVERTAKEN)
	if !o.based {
		o.base = c.pool.counters()
	}
	c.at.soft, c.at.hard = time.Time{}, time.Time{}
	if c.unreported > 0 {
		o.release = pb.Release_RELEASE_PENDING
	}
	c.op = o
}

// startLimits runs the soft and hard limit from now: the intake is closed.
func (c *consumer) startLimits() {
	o := c.op
	if o == nil || o.begun {
		return
	}
	now := time.Now()
	o.begun, o.limitsFrom = true, now
	if o.soft > 0 {
		c.at.soft = now.Add(o.soft)
	}
	c.at.hard = now.Add(o.hard)
}

func (c *consumer) nameAbandoned(named []*pb.AbandonedMessage) {
	for _, m := range named {
		c.log.Error("handler ignores its context: its message is abandoned and will be delivered again",
			"message", m.GetId(), "age", m.GetAge().AsDuration())
	}
	if c.op != nil {
		c.op.abandoned = append(c.op.abandoned, named...)
	}
}

// endOp ends the operation under way with its receipt. Unspecified: clean or
// not, as the numbers say.
func (c *consumer) endOp(outcome pb.ReceiptOutcome) {
	if o := c.op; o != nil {
		c.op = nil
		c.writeReceipt(o, outcome)
	}
}

// nothingToDo ends an operation that came too late to move anything.
func (c *consumer) nothingToDo(o *operation) {
	o.base = c.pool.counters()
	c.writeReceipt(o, pb.ReceiptOutcome_RECEIPT_OUTCOME_UNSPECIFIED)
}

func (c *consumer) writeReceipt(o *operation, outcome pb.ReceiptOutcome) {
	n := c.pool.counters()
	r := &pb.Receipt{
		Id: o.pb.GetId(), Namespace: c.key.namespace, Name: c.key.name,
		Verb: o.verb(), Actor: o.pb.GetActor(), Reason: o.pb.GetReason(), Started: o.pb.GetStarted(),
		Duration: durationpb.New(time.Since(o.pb.GetStarted().AsTime()).Round(time.Microsecond)),
		State:    c.state.Public(), Abandoned: o.abandoned,
		Completed: n.acked - o.base.acked, Retried: n.retried - o.base.retried,
		DeadLettered: n.deadLettered - o.base.deadLettered, Returned: n.returned - o.base.returned,
		Unconfirmed: n.unconfirmed - o.base.unconfirmed, OwnershipLost: n.ownershipLost - o.base.ownershipLost,
		WillRepeat: n.willRepeat - o.base.willRepeat,
		SoftFired:  o.softFired, HardFired: o.hardFired, Release: o.release, BacklogTimedOut: o.markMissed,
		Outcome: outcome,
	}
	if r.GetRelease() == pb.Release_RELEASE_UNSPECIFIED {
		r.Release = pb.Release_RELEASE_NONE
	}
	if outcome == pb.ReceiptOutcome_RECEIPT_OUTCOME_UNSPECIFIED {
		r.Outcome = pb.ReceiptOutcome_RECEIPT_OUTCOME_CLEAN
		if len(r.GetAbandoned()) > 0 || r.GetUnconfirmed() > 0 || r.GetOwnershipLost() > 0 || r.GetWillRepeat() > 0 {
			r.Outcome = pb.ReceiptOutcome_RECEIPT_OUTCOME_UNCLEAN
		}
	}
	o.receipt = r
	close(o.ended)
	c.s.recorder.receipt(c, o)
}
