package supervisor

import (
	"context"
	"fmt"
	"strings"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/lifecycle"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	// defaultHold is shared by all operators.
	defaultHold = "operator"
	// urgentStore is how long pause, stop and kill wait for the store; then
	// they act all the same.
	urgentStore = 500 * time.Millisecond
	// killAnswer is when a kill answers at the latest, its receipt written or not.
	killAnswer = 1900 * time.Millisecond
	// storeTimeout is how long the other verbs wait.
	storeTimeout = 10 * time.Second
)

// urgent verbs act also when the store cannot be written.
func urgent(v pb.Verb) bool {
	return v == pb.Verb_VERB_PAUSE || v == pb.Verb_VERB_STOP || v == pb.Verb_VERB_KILL
}

// do carries a verb out on one consumer: decide, make durable, move, answer.
func (c *consumer) do(ctx context.Context, cmd Command) (*pb.VerbResult, error) {
	if cmd.Verb == pb.Verb_VERB_DELETE {
		return c.delete(ctx, cmd)
	}
	until := time.Now().Add(killAnswer)
	wctx, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	if err := c.turn.take(wctx, cut, urgent(cmd.Verb)); err != nil {
		return nil, err
	}
	res, op, err := c.decideAndMove(wctx, cmd)
	c.turn.give()
	if err != nil || op == nil || cmd.Verb != pb.Verb_VERB_KILL {
		return res, err
	}
	return c.awaitKill(ctx, until, res, op)
}

// awaitKill waits for the receipt, and, but no longer than until, for its being
// written. A kill bounds itself.
func (c *consumer) awaitKill(ctx context.Context, until time.Time, res *pb.VerbResult, op *operation) (*pb.VerbResult, error) {
	select {
	case <-op.ended:
	case <-c.stopped:
		select {
		case <-op.ended:
		default:
			return nil, c.over()
		}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	durable := false
	select {
	case <-op.done:
		durable = op.durable
	case <-t.C:
	}
	res.Receipt, res.Durable, res.State = op.receipt, res.GetDurable() && durable, op.receipt.GetState()
	return res, nil
}

// over is why nothing can be done with a consumer whose actor has ended.
func (c *consumer) over() *Error {
	if c.deleted.Load() {
		return errorf(pb.ErrorReason_ERROR_REASON_NOT_FOUND, "no consumer %s", c.key)
	}
	return errorf(pb.ErrorReason_ERROR_REASON_SHUTTING_DOWN, "the daemon is shutting down")
}

// decideAndMove is called by the one who has the turn.
func (c *consumer) decideAndMove(ctx context.Context, cmd Command) (*pb.VerbResult, *operation, error) {
	rec, st := c.rec.Load(), pb.State_STATE_UNSPECIFIED
	if c.deleted.Load() || !c.post(func() { st = c.state.Public() }) {
		return nil, nil, c.over()
	}
	if want := cmd.Options.GetEtag(); want != "" && want != rec.GetEtag() {
		return nil, nil, etagMismatch(c.key, rec.GetEtag())
	}
	d := lifecycle.Decide(cmd.Verb, st)
	if cmd.Verb == pb.Verb_VERB_SCALE {
		d = lifecycle.Acts
	}
	if err := c.allowed(cmd, rec); err != nil {
		return nil, nil, err
	}
	want, note := desire(rec.GetDesired(), cmd, time.Now())
	res := &pb.VerbResult{
		Namespace: c.key.namespace, Name: c.key.name, StateBefore: st, State: st,
		Durable: true, Etag: rec.GetEtag(), Revision: c.s.hub.now(), Note: note,
	}
	same := proto.Equal(want, rec.GetDesired())
	res.Effect = effectOf(d, same)
	if cmd.Verb == pb.Verb_VERB_SCALE && same {
		res.Effect = pb.Effect_EFFECT_NO_OP
	}
	if cmd.Options.GetDryRun() {
		res.Predictions = c.predict(cmd, d)
		return res, nil, nil
	}
	op := c.operationFor(cmd, d, st, want, res)
	if op != nil && d == lifecycle.Acts && urgent(cmd.Verb) {
		// It acts even if the store fails: the gate need not wait for the disk.
		op.base, op.based = c.pool.stopStarting(!op.kill), true
	}
	if err := c.save(ctx, cmd, rec, want, res); err != nil {
		return nil, nil, err
	}
	if !c.post(func() {
		op = c.carryOut(cmd, op)
		res.State = c.state.Public()
	}) {
		return nil, nil, c.over()
	}
	if op != nil {
		res.Operation = op.pb.GetId()
		res.Effect = pb.Effect_EFFECT_ACTED
	}
	return res, op, nil
}

// operationFor begins the operation of a verb that ends in a receipt; nil for
// one that does not, or that has nothing to move.
func (c *consumer) operationFor(cmd Command, d lifecycle.Decision, st pb.State, want *pb.Desired, res *pb.VerbResult) *operation {
	idle := cmd.Verb == pb.Verb_VERB_RESTART && st == pb.State_STATE_STOPPED
	moves := d == lifecycle.Acts || d == lifecycle.Overtakes
	if lifecycle.Strength(cmd.Verb) > 0 && !idle && moves {
		op := c.newOperation(cmd)
		want.Operation = op.pb
		res.Operation = op.pb.GetId()
		return op
	}
	if d == lifecycle.Updates && want.GetOperation() != nil {
		res.Operation = want.GetOperation().GetId()
	}
	return nil
}

// save makes what is desired durable, if it is not already. Its wait for the
// store ends with ctx.
func (c *consumer) save(ctx context.Context, cmd Command, rec *pb.Consumer, want *pb.Desired, res *pb.VerbResult) error {
	if proto.Equal(want, rec.GetDesired()) && !c.owed.Load() {
		return nil
	}
	next := proto.CloneOf(rec)
	next.Desired = want
	next.Updated = timestamppb.Now()
	next.Etag = newEtag()
	limit := storeTimeout
	if urgent(cmd.Verb) {
		limit = urgentStore
	}
	sctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := c.s.putConsumer(sctx, next)
	if err != nil && !urgent(cmd.Verb) {
		if uncertain(err) {
			c.s.recorder.owes(c) // else a restart might do what was refused
		}
		return storeError(err)
	}
	if err != nil {
		res.Durable = false
		c.s.recorder.owes(c)
		c.notDurable(err)
		c.log.Error("acting although the state store cannot be written", "verb", cmd.Verb, "error", err)
	}
	c.rec.Store(next)
	res.Etag = next.GetEtag()
	return nil
}

// newOperation fixes id, limits and words of a verb that ends in a receipt.
func (c *consumer) newOperation(cmd Command) *operation {
	o := newOperation(cmd.Soft, cmd.Hard)
	soft, hard, timeout := 15*time.Second, 25*time.Second, 30*time.Second
	if cfg := c.config.Load(); cfg != nil {
		soft, hard, timeout = cfg.Soft, cfg.Hard, cfg.HandlerTimeout
	}
	if o.hard == 0 {
		o.hard = max(hard, o.soft)
	}
	if o.soft == 0 {
		o.soft = min(soft, o.hard)
	}
	switch cmd.Verb {
	case pb.Verb_VERB_KILL:
		o.kill, o.soft, o.hard = true, 0, killGrace
	case pb.Verb_VERB_PAUSE:
		o.hard += timeout
	case pb.Verb_VERB_RESTART:
		o.restart = true
	case pb.Verb_VERB_DRAIN:
		o.consuming = cmd.Mode == pb.DrainMode_DRAIN_MODE_BACKLOG
		o.backlog = cmd.BacklogTimeout
	}
	o.pb = &pb.Operation{
		Id: newID(), Verb: cmd.Verb, Actor: cmd.Actor, Reason: cmd.Options.GetReason(),
		Started: timestamppb.Now(), Soft: durationpb.New(o.soft), Hard: durationpb.New(o.hard),
	}
	return o
}

// carryOut moves the consumer after its desired state changed; on the actor.
// The state may have changed while that was written, so it decides again.
func (c *consumer) carryOut(cmd Command, op *operation) *operation {
	defer c.armHold()
	c.changed, c.by = true, cmd.Actor
	defer func() { c.by = "" }()
	d := lifecycle.Decide(cmd.Verb, c.state.Public())
	acts := d == lifecycle.Acts || d == lifecycle.Overtakes || d == lifecycle.Cancels
	switch cmd.Verb {
	case pb.Verb_VERB_SCALE:
		c.configure()
		return nil
	case pb.Verb_VERB_START:
		if acts && c.next == nil { // a new spec ends its drain, then starts
			c.startOrPark(cmd)
		}
		return nil
	case pb.Verb_VERB_RESUME:
		if acts && c.goal() == goalRun {
			c.fire(lifecycle.Start, cmd.Options.GetReason())
		}
		return nil
	}
	switch {
	case d == lifecycle.Updates && cmd.Verb == pb.Verb_VERB_DRAIN && c.op != nil && c.op.restart:
		// The drain for a new spec becomes the operator's.
		if op == nil {
			op = c.newOperation(cmd)
		}
		op.consuming = false
		c.startOp(op)
		c.startLimits()
		return op
	case d == lifecycle.Updates:
		c.update(cmd)
	case acts && cmd.Verb == pb.Verb_VERB_RESTART && c.state == lifecycle.Stopped:
		c.startOrPark(cmd)
	case acts && op == nil:
		op = c.newOperation(cmd)
		fallthrough
	case acts:
		if !c.moveWith(cmd, op) {
			c.nothingToDo(op)
		}
		return op
	}
	if op != nil {
		c.nothingToDo(op)
	}
	return op
}

// moveWith makes op the one under way and fires its event; false when there is
// nothing to move any more.
func (c *consumer) moveWith(cmd Command, op *operation) bool {
	e := map[pb.Verb]lifecycle.Event{
		pb.Verb_VERB_PAUSE: lifecycle.Park, pb.Verb_VERB_DRAIN: lifecycle.Drain, pb.Verb_VERB_STOP: lifecycle.Stop,
		pb.Verb_VERB_RESTART: lifecycle.Stop, pb.Verb_VERB_KILL: lifecycle.Kill,
	}[cmd.Verb]
	if op.consuming {
		e = lifecycle.Consume
	}
	if _, ok := c.s.machine.Next(c.state, e); !ok && op.consuming {
		e, op.consuming = lifecycle.Drain, false
	}
	if _, ok := c.s.machine.Next(c.state, e); !ok {
		return false
	}
	c.attempt, c.answered = 0, 0
	c.startOp(op)
	c.fire(e, cmd.Options.GetReason())
	if op.consuming {
		c.findMark()
	}
	return true
}

// startOrPark begins to run, or to be paused where a hold stands.
func (c *consumer) startOrPark(cmd Command) {
	why := cmd.Options.GetReason()
	if c.goal() == goalPause {
		if c.state == lifecycle.Stopped || c.state == lifecycle.Failed {
			c.fire(lifecycle.Park, why)
		}
		return
	}
	c.attempt, c.answered = 0, 0
	delete(c.conds, pb.ConditionType_CONDITION_TYPE_DATA_LOSS) // it was seen
	if cfg := c.config.Load(); cfg != nil {
		c.s.links[cfg.Connection].hurry()
	}
	c.fire(lifecycle.Start, why)
}

// update gives a drain under way new limits.
func (c *consumer) update(cmd Command) {
	if cmd.Verb != pb.Verb_VERB_DRAIN || c.op == nil {
		return
	}
	if cmd.Mode != pb.DrainMode_DRAIN_MODE_BACKLOG && c.op.consuming {
		c.op.consuming = false
		c.fire(lifecycle.Marked, "")
	}
	began := time.Now()
	if c.op.begun {
		began = c.op.limitsFrom
	}
	if cmd.Soft > 0 {
		c.op.soft = cmd.Soft
		c.op.hard = max(c.op.hard, cmd.Soft)
	}
	if cmd.Hard > 0 {
		c.op.hard = cmd.Hard
		c.op.soft = min(c.op.soft, cmd.Hard)
	}
	if c.op.begun {
		c.at.soft, c.at.hard = began.Add(c.op.soft), began.Add(c.op.hard)
	}
}

// allowed refuses what this consumer cannot do.
func (c *consumer) allowed(cmd Command, rec *pb.Consumer) error {
	if ep := c.pool.current(); ep != nil && ep.caps.NoPause != "" &&
		(cmd.Verb == pb.Verb_VERB_PAUSE || cmd.Then == pb.DrainThen_DRAIN_THEN_PAUSED) {
		return &Error{
			Reason:   pb.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED,
			Message:  fmt.Sprintf("%s cannot be paused: %s", c.key, ep.caps.NoPause),
			Metadata: map[string]string{"broker": c.s.links[rec.GetSpec().GetSource().GetConnection()].driver.Kind(), "capability": "pause"},
		}
	}
	held := standing(rec.GetDesired().GetHolds(), time.Now())
	if cmd.Verb == pb.Verb_VERB_DRAIN && cmd.Mode == pb.DrainMode_DRAIN_MODE_BACKLOG && len(held) > 0 {
		st := c.view.Load().state.Public()
		return &Error{
			Reason:   pb.ErrorReason_ERROR_REASON_INVALID_STATE_TRANSITION,
			Message:  fmt.Sprintf("%s is held (%s), so it cannot consume its backlog: resume it first, or drain with mode inflight", c.key, held[0].GetName()),
			Metadata: map[string]string{"state": short(st), "allowed": allowedVerbs(st)},
		}
	}
	return nil
}

func allowedVerbs(s pb.State) string {
	var out []string
	for _, v := range lifecycle.Legal(s) {
		out = append(out, strings.ToLower(strings.TrimPrefix(v.String(), "VERB_")))
	}
	return strings.Join(out, ", ")
}

func short(s pb.State) string { return strings.TrimPrefix(s.String(), "STATE_") }
