package supervisor

import (
	"context"
	"fmt"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/lifecycle"
	"github.com/seed-111f5b8e/supervisord/supervisor/store"
)

// delete removes a consumer that is at rest; with force it kills first.
func (c *consumer) delete(ctx context.Context, cmd Command) (*pb.VerbResult, error) {
	var st pb.State
	if !c.post(func() { st = c.state.Public() }) {
		return nil, c.over()
	}
	refused := lifecycle.Decide(pb.Verb_VERB_DELETE, st) == lifecycle.Refusal
	if refused && !cmd.Force {
		return nil, &Error{
			Reason: pb.ErrorReason_ERROR_REASON_INVALID_STATE_TRANSITION,
			Message: fmt.Sprintf("%s is %s and cannot be deleted: drain or stop it first, or delete it with force, which kills it; in this state you can %s",
				c.key, short(st), allowedVerbs(st)),
			Metadata: map[string]string{"state": short(st), "allowed": allowedVerbs(st)},
		}
	}
	if cmd.Options.GetDryRun() {
		return &pb.VerbResult{
			Namespace: c.key.namespace, Name: c.key.name, StateBefore: st, State: st, Effect: pb.Effect_EFFECT_ACTED,
			Durable: true, Predictions: c.predict(cmd, lifecycle.Acts),
		}, nil
	}
	var receipt *pb.Receipt
	if refused {
		kill := cmd
		kill.Verb = pb.Verb_VERB_KILL
		res, err := c.do(ctx, kill)
		if err != nil {
			return nil, err
		}
		receipt = res.GetReceipt()
	}
	return c.remove(ctx, cmd, st, receipt)
}

func (c *consumer) remove(ctx context.Context, cmd Command, before pb.State, receipt *pb.Receipt) (*pb.VerbResult, error) {
	c.s.applying <- struct{}{}
	defer func() { <-c.s.applying }()
	life, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	ctx, cancel := context.WithTimeout(life, storeTimeout)
	defer cancel()
	if err := c.turn.take(ctx, cut, false); err != nil {
		return nil, storeError(err)
	}
	defer c.turn.give()
	rec := c.rec.Load()
	if want := cmd.Options.GetEtag(); want != "" && receipt == nil && want != rec.GetEtag() {
		return nil, etagMismatch(c.key, rec.GetEtag())
	}
	var st lifecycle.State
	if c.deleted.Load() || !c.post(func() { st = c.state }) {
		return nil, c.over()
	}
	if st != lifecycle.Stopped && st != lifecycle.Failed {
		return nil, errorf(pb.ErrorReason_ERROR_REASON_INVALID_STATE_TRANSITION, "%s was started meanwhile", c.key)
	}
	err := c.s.o.Store.Update(ctx, func(tx *store.Tx) error { return tx.DeleteConsumer(c.key.namespace, c.key.name) })
	if err != nil {
		if uncertain(err) {
			c.s.recorder.owes(c) // else it might be gone after a restart
		}
		return nil, storeError(err)
	}
	c.deleted.Store(true)
	c.s.mu.Lock()
	delete(c.s.consumers, c.key)
	c.s.mu.Unlock()
	c.post(func() {
		c.s.hub.publish(func(uint64) event { return event{c: c, rec: rec, deleted: true} })
		c.gone, c.final = true, true
		c.fire(lifecycle.Stop, "deleted") // out of FAILED
	})
	return &pb.VerbResult{
		Namespace: c.key.namespace, Name: c.key.name, StateBefore: before, State: pb.State_STATE_STOPPED,
		Effect: pb.Effect_EFFECT_ACTED, Durable: true, Revision: c.s.hub.now(), Receipt: receipt,
	}, nil
}
