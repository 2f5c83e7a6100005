package supervisor

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/lifecycle"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
	"github.com/seed-111f5b8e/supervisord/supervisor/store"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// itself is the actor of what no caller asked for.
const itself = "supervisord"

// mustBeNew as an item's etag refuses to update.
const mustBeNew = "new"

// Apply creates or updates consumers, all items or none. All faults of all
// items are reported at once. What operators asked for stays: a paused
// consumer stays paused.
func (s *Supervisor) Apply(ctx context.Context, actor string, r *pb.ApplyRequest) (*pb.ApplyResponse, error) {
	if s.closing.Load() {
		return nil, errorf(pb.ErrorReason_ERROR_REASON_SHUTTING_DOWN, "the daemon is shutting down")
	}
	if len(r.GetRequestId()) > 128 {
		return nil, invalid("request_id", "at most 128 bytes")
	}
	through, err := s.claim(ctx, r.GetRequestId())
	if err != nil {
		return nil, err
	}
	defer through()
	print := applyPrint(actor, r)
	var old pb.ApplyResponse
	if found, err := s.reply(r.GetRequestId(), print, &old); found || err != nil {
		return &old, err
	}
	s.applying.Lock()
	defer s.applying.Unlock()
	plans, err := s.plan(r)
	if err != nil {
		return nil, err
	}
	out := &pb.ApplyResponse{}
	if r.GetValidateOnly() {
		for _, p := range plans {
			out.Results = append(out.Results, p.result(true))
		}
		return out, nil
	}
	if err := s.commit(ctx, plans); err != nil {
		return nil, err
	}
	for _, p := range plans {
		s.enact(p)
		out.Results = append(out.Results, p.result(false))
	}
	if id := r.GetRequestId(); id != "" {
		s.keepReply(ctx, id, print, out)
	}
	return out, nil
}

func applyPrint(actor string, r *pb.ApplyRequest) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
	if err != nil {
		return nil
	}
	sum := sha256.Sum256(append([]byte("apply\x00"+actor+"\x00"), b...))
	return sum[:]
}

// applyPlan is what applying one item will do.
type applyPlan struct {
	c      *consumer // nil: to be created
	cfg    *spec.Consumer
	rec    *pb.Consumer // to be stored; the present one when unchanged
	change pb.ApplyChange
	fields []*pb.FieldChange
	cold   bool   // a restart by a drain
	etag   string // the record must still have it; empty: whatever is there
}

// plan checks all items against the specs' rules, against each other and
// against what is there.
func (s *Supervisor) plan(r *pb.ApplyRequest) ([]*applyPlan, error) {
	var faults []brokers.Fault
	var plans []*applyPlan
	seen := map[key]int{}
	added := map[string]int{}
	var stale *Error
	if len(r.GetItems()) == 0 {
		return nil, invalid("items", "nothing to apply")
	}
	for i, item := range r.GetItems() {
		path := fmt.Sprintf("items[%d].spec", i)
		cfg, found := spec.Check(item.GetSpec(), s.env)
		for _, f := range found {
			faults = append(faults, brokers.Fault{Path: path + "." + f.Path, Message: f.Message})
		}
		if cfg == nil {
			continue
		}
		k := key{cfg.Namespace, cfg.Name}
		if first, dup := seen[k]; dup {
			faults = append(faults, brokers.Faultf(path+".name", "%s is already items[%d]: names are unique in a namespace", k, first))
			continue
		}
		seen[k] = i
		p, err := s.planOne(k, cfg, item)
		if err != nil {
			stale = err
			continue
		}
		if p.change == pb.ApplyChange_APPLY_CHANGE_CREATED {
			added[k.namespace]++
		}
		plans = append(plans, p)
	}
	if len(faults) > 0 {
		return nil, &Error{
			Reason:  pb.ErrorReason_ERROR_REASON_INVALID_ARGUMENT,
			Message: fmt.Sprintf("%d faults; nothing was applied", len(faults)), Faults: faults,
		}
	}
	if stale != nil {
		return nil, stale
	}
	return plans, s.quota(added)
}

func (s *Supervisor) quota(added map[string]int) error {
	have := map[string]int{}
	for _, c := range s.all() {
		have[c.key.namespace]++
	}
	for ns, n := range added {
		if limit := s.o.Daemon.ConsumersPerNamespace; have[ns]+n > limit {
			return errorf(pb.ErrorReason_ERROR_REASON_QUOTA_EXCEEDED,
				"namespace %s has %d consumers and may have %d: delete some, or raise limits.consumers_per_namespace", ns, have[ns], limit)
		}
	}
	return nil
}

func (s *Supervisor) planOne(k key, cfg *spec.Consumer, item *pb.ApplyItem) (*applyPlan, *Error) {
	p := &applyPlan{cfg: cfg}
	written := proto.CloneOf(cfg.Written)
	written.Namespace = k.namespace
	c, err := s.find(k.namespace, k.name)
	if err != nil {
		if e := item.GetEtag(); e != "" && e != mustBeNew {
			return nil, errorf(pb.ErrorReason_ERROR_REASON_NOT_FOUND, "%s is not there any more: apply it without an etag to create it", k)
		}
		now := timestamppb.Now()
		p.change = pb.ApplyChange_APPLY_CHANGE_CREATED
		p.rec = &pb.Consumer{
			Spec: written, Desired: &pb.Desired{State: cfg.Start}, Uid: newID(), Etag: newEtag(), Generation: 1,
			Created: now, Updated: now,
		}
		return p, nil
	}
	p.c, p.rec, p.etag = c, c.rec.Load(), item.GetEtag()
	if e := item.GetEtag(); e == mustBeNew || e != "" && e != p.rec.GetEtag() {
		return nil, etagMismatch(k, p.rec.GetEtag())
	}
	old := p.rec.GetSpec()
	if was := c.config.Load(); was != nil {
		p.fields = spec.Diff(was.Full, cfg.Full)
	} else {
		p.fields = spec.Diff(old, written)
		p.cold = true
	}
	for _, f := range p.fields {
		p.cold = p.cold || !f.GetHot()
	}
	p.change = pb.ApplyChange_APPLY_CHANGE_UPDATED
	if proto.Equal(old, written) && len(p.fields) == 0 {
		p.change = pb.ApplyChange_APPLY_CHANGE_UNCHANGED
	}
	p.rec = proto.CloneOf(p.rec)
	p.rec.Spec = written
	return p, nil
}

// commit makes all plans durable in one transaction. The records are taken again
// in each consumer's turn, so that no verb is lost between. The shutdown, or an
// urgent verb on one of them, cuts the wait for the store.
func (s *Supervisor) commit(ctx context.Context, plans []*applyPlan) error {
	life, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	defer context.AfterFunc(s.accepting, func() { cut(context.Cause(s.accepting)) })()
	ctx, cancel := context.WithTimeout(life, storeTimeout)
	defer cancel()
	var present []*consumer
	for _, p := range plans {
		if p.c != nil {
			present = append(present, p.c)
		}
	}
	for _, c := range inOrder(present) {
		if err := c.turn.take(ctx, cut, false); err != nil {
			return storeError(err)
		}
		defer c.turn.give()
	}
	for _, p := range plans {
		if err := p.renew(); err != nil {
			return err
		}
	}
	if err := s.o.Store.Update(ctx, func(tx *store.Tx) error { return putPlans(tx, plans) }); err != nil {
		if uncertain(err) {
			s.undo(plans)
		}
		return storeError(err)
	}
	for _, p := range plans {
		if p.c != nil {
			p.c.rec.Store(p.rec)
		}
	}
	return nil
}

// renew makes the record to be stored from the present one.
func (p *applyPlan) renew() error {
	if p.c == nil {
		return nil
	}
	rec := p.c.rec.Load()
	if p.etag != "" && p.etag != rec.GetEtag() {
		return etagMismatch(p.c.key, rec.GetEtag())
	}
	if p.change == pb.ApplyChange_APPLY_CHANGE_UPDATED {
		next := proto.CloneOf(rec)
		next.Spec, next.Etag, next.Updated = p.rec.GetSpec(), newEtag(), timestamppb.Now()
		next.Generation++
		rec = next
	}
	p.rec = rec
	return nil
}

func putPlans(tx *store.Tx, plans []*applyPlan) error {
	for _, p := range plans {
		if p.change == pb.ApplyChange_APPLY_CHANGE_UNCHANGED {
			continue
		}
		if err := tx.PutConsumer(p.rec); err != nil {
			return err
		}
	}
	return nil
}

// undo takes back what a commit that was refused may still write: the store
// keeps the order of what is queued, and undo does not wait for it.
func (s *Supervisor) undo(plans []*applyPlan) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	err := s.o.Store.Update(ctx, func(tx *store.Tx) error {
		for _, p := range plans {
			if p.c != nil {
				s.recorder.owes(p.c)
				continue
			}
			if err := tx.DeleteConsumer(p.rec.GetSpec().GetNamespace(), p.rec.GetSpec().GetName()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && !uncertain(err) {
		s.o.Log.Error("what was not applied may be there after a restart: apply it again, or delete it then", "error", err)
	}
}

// enact moves the consumer to its new spec.
func (s *Supervisor) enact(p *applyPlan) {
	switch p.change {
	case pb.ApplyChange_APPLY_CHANGE_CREATED:
		p.c = newConsumer(s, p.rec, p.cfg, nil)
		s.add(p.c)
	case pb.ApplyChange_APPLY_CHANGE_UPDATED:
		p.c.post(func() { p.c.reconfigure(p.cfg, p.cold) })
	}
}

func (p *applyPlan) result(dry bool) *pb.ApplyResult {
	out := &pb.ApplyResult{Change: p.change, Fields: p.fields, Durable: !dry}
	if p.c != nil && !dry {
		out.Consumer = p.c.snapshot()
	} else {
		out.Consumer = p.rec
	}
	return out
}

// reconfigure takes a new spec, on the actor: at once where only hot fields
// changed or nothing runs, else after a drain.
func (c *consumer) reconfigure(cfg *spec.Consumer, cold bool) {
	c.changed, c.by = true, itself
	defer func() { c.by = "" }()
	swap := func() {
		c.config.Store(cfg)
		c.fault = nil
		c.configure()
	}
	if !cold {
		swap()
		return
	}
	renew := func() {
		c.closeHandler()
		swap()
	}
	switch c.state {
	case lifecycle.Stopped:
		renew()
		return
	case lifecycle.Paused:
		if c.ep == nil && c.call == nil {
			renew()
			return
		}
	}
	c.next = renew
	o := newOperation(cfg.Soft, cfg.Hard)
	o.restart = true
	o.pb = &pb.Operation{
		Id: newID(), Verb: pb.Verb_VERB_RESTART, Actor: itself, Reason: "the spec changed", Started: timestamppb.New(time.Now()),
	}
	if _, ok := c.s.machine.Next(c.state, lifecycle.Drain); ok {
		c.startOp(o)
		c.fire(lifecycle.Drain, "the spec changed")
	}
}

// closeHandler ends what the handler keeps open.
func (c *consumer) closeHandler() {
	h := c.handler
	c.handler = nil
	c.endHandler(h)
}

// endHandler closes a handler in the background: it is not ours, and may block.
// The next start waits for it.
func (c *consumer) endHandler(h Handler) {
	closer, ok := h.(io.Closer)
	if !ok {
		return
	}
	done := make(chan struct{})
	c.reaping = append(c.reaping, reap{func(error) {}, done})
	go func() {
		defer close(done)
		if err := <-Go(closer.Close); err != nil {
			c.log.Warn("closing the handler", "error", err)
		}
	}()
}

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
	c.s.applying.Lock()
	defer c.s.applying.Unlock()
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
