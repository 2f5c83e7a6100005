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
	if len(r.GetRequestId()) > maxRequestID {
		return nil, invalid("request_id", "at most 128 bytes")
	}
	through, err := s.claim(ctx, r.GetRequestId())
	if err != nil {
		return nil, err
	}
	defer through()
	mark := messagePrint("apply", actor, r)
	var old pb.ApplyResponse
	if found, err := s.reply(r.GetRequestId(), mark, &old); found || err != nil {
		return &old, err
	}
	s.applying <- struct{}{}
	defer func() { <-s.applying }()
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
		s.keepReply(ctx, id, mark, out)
	}
	return out, nil
}

// messagePrint tells two requests of one kind with one id apart.
func messagePrint(kind, actor string, r proto.Message) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
	if err != nil {
		return nil
	}
	sum := sha256.Sum256(append([]byte(kind+"\x00"+actor+"\x00"), b...))
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
		full, err := was.FullSpec()
		if err != nil {
			return nil, errorf(pb.ErrorReason_ERROR_REASON_INTERNAL, "%s: %v", k, err)
		}
		p.fields = spec.Diff(full, cfg.Full)
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
		c.config.Store(cfg.Lean())
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
