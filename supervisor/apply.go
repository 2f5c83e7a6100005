package supervisor

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/lifecycle"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
	"github.com/seed-111f5b8e/supervisord/supervisor/store"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

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
	cold   bool // a restart by a drain
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
	p.c, p.rec = c, c.rec.Load()
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

// commit makes all plans durable in one transaction. The caller's records are
// taken again under each consumer's lock, so that no verb is lost between.
func (s *Supervisor) commit(ctx context.Context, plans []*applyPlan) error {
	for _, p := range plans {
		if p.c == nil {
			continue
		}
		p.c.verb.Lock()
		defer p.c.verb.Unlock()
		if p.change != pb.ApplyChange_APPLY_CHANGE_UPDATED {
			p.rec = p.c.rec.Load()
			continue
		}
		next := proto.CloneOf(p.c.rec.Load())
		next.Spec, next.Etag, next.Updated = p.rec.GetSpec(), newEtag(), timestamppb.Now()
		next.Generation++
		p.rec = next
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	err := s.o.Store.Update(ctx, func(tx *store.Tx) error {
		for _, p := range plans {
			if p.change == pb.ApplyChange_APPLY_CHANGE_UNCHANGED {
				continue
			}
			if err := tx.PutConsumer(p.rec); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return storeError(err)
	}
	for _, p := range plans {
		if p.c != nil {
			p.c.rec.Store(p.rec)
		}
	}
	return nil
}

// enact moves the consumer to its new spec.
func (s *Supervisor) enact(p *applyPlan) {
	switch p.change {
	case pb.ApplyChange_APPLY_CHANGE_CREATED:
		p.c = s.add(p.rec, p.cfg, nil)
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
	c.changed = true
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
	o := &operation{done: make(chan struct{}), soft: cfg.Soft, hard: cfg.Hard, restart: true}
	o.pb = &pb.Operation{
		Id: newID(), Verb: pb.Verb_VERB_RESTART, Actor: "supervisord", Reason: "the spec changed", Started: timestamppb.New(time.Now()),
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
	if closer, ok := h.(interface{ Close() error }); ok {
		if err := closer.Close(); err != nil {
			c.log.Warn("closing the handler", "error", err)
		}
	}
}

// delete removes a consumer that is at rest; with force it kills first.
func (c *consumer) delete(ctx context.Context, cmd Command) (*pb.VerbResult, error) {
	st := c.view.Load().state.Public()
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
	c.verb.Lock()
	defer c.verb.Unlock()
	rec := c.rec.Load()
	if want := cmd.Options.GetEtag(); want != "" && receipt == nil && want != rec.GetEtag() {
		return nil, etagMismatch(c.key, rec.GetEtag())
	}
	if st := c.view.Load().state; st != lifecycle.Stopped && st != lifecycle.Failed {
		return nil, errorf(pb.ErrorReason_ERROR_REASON_INVALID_STATE_TRANSITION, "%s was started meanwhile", c.key)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	err := c.s.o.Store.Update(ctx, func(tx *store.Tx) error { return tx.DeleteConsumer(c.key.namespace, c.key.name) })
	if err != nil {
		return nil, storeError(err)
	}
	c.deleted.Store(true)
	c.s.mu.Lock()
	delete(c.s.consumers, c.key)
	c.s.mu.Unlock()
	c.tell(func() {
		c.final = true
		c.fire(lifecycle.Stop, "deleted") // out of FAILED
	})
	c.s.hub.publish(func(uint64) event { return event{c: c, rec: rec, deleted: true} })
	return &pb.VerbResult{
		Namespace: c.key.namespace, Name: c.key.name, StateBefore: before, State: pb.State_STATE_STOPPED,
		Effect: pb.Effect_EFFECT_ACTED, Durable: true, Revision: c.s.hub.now(), Receipt: receipt,
	}, nil
}
