package supervisor

import (
	"context"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/store"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

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
