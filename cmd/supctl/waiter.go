package main

import (
	"context"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// pending is one consumer whose verb is waited for.
type pending struct {
	key    key
	result *pb.VerbResult
	// consumer is the newest that was seen; nil before the first.
	consumer *pb.Consumer
	// err says how it failed, once it has ended.
	err error
}

// waiter waits until the operations of a verb have ended.
type waiter struct {
	client *client
	verb   pb.Verb
	items  []*pending
	// open are those of the items that have not ended.
	open     map[key]*pending
	progress *progress
	// look reads one consumer as it is now.
	look func(context.Context, key) (*pb.Consumer, error)
}

// progressTick is how often figures are asked for and lines are drawn again.
const progressTick = 250 * time.Millisecond

// maxNames is how many consumers a watch names; the events of more are picked
// out here, which is cheaper for both sides.
const maxNames = 100

// newWaiter takes the results that have something to wait for.
func newWaiter(c *client, v pb.Verb, results []*pb.VerbResult, p *progress) *waiter {
	w := &waiter{client: c, verb: v, progress: p, look: c.get, open: map[key]*pending{}}
	for _, r := range results {
		starts := v == pb.Verb_VERB_RESTART && r.GetEffect() == pb.Effect_EFFECT_ACTED
		if r.GetError() == nil && r.GetReceipt() == nil && (r.GetOperation() != "" || starts) {
			item := &pending{key: key{r.GetNamespace(), r.GetName()}, result: r}
			w.items = append(w.items, item)
			w.open[item.key] = item
		}
	}
	return w
}

// run returns when every operation has its receipt, or with ctx's cause. The
// receipts stand in the results then; failures in the items.
func (w *waiter) run(ctx context.Context) error {
	if len(w.items) == 0 {
		return nil
	}
	w.progress.many = len(w.items) > maxLines
	tick := time.Duration(0)
	if w.progress.live {
		tick = progressTick
	}
	defer w.progress.clear()
	f := follower{client: w.client, request: w.request(), relist: true, known: true}
	return f.each(ctx, tick, func(u *update) (bool, error) {
		if u == nil {
			w.figures(ctx)
			w.progress.draw(w.left())
			return false, nil
		}
		err := w.take(ctx, u)
		return len(w.open) == 0, err
	})
}

// request begins with what is, so that nothing depends on what happened between
// the reply and the watch.
func (w *waiter) request() *pb.WatchRequest {
	return watchOf(w.items, func(p *pending) key { return p.key })
}

// watchOf watches consumers by name, or, when they are many or of several
// namespaces, everything there.
func watchOf[T any](of []T, keyOf func(T) key) *pb.WatchRequest {
	r := &pb.WatchRequest{Namespace: keyOf(of[0]).namespace}
	for _, x := range of {
		k := keyOf(x)
		if k.namespace != r.GetNamespace() {
			return &pb.WatchRequest{Namespace: everywhere}
		}
		r.Names = append(r.Names, k.name)
	}
	if len(of) > maxNames {
		r.Names = nil
	}
	return r
}

func (w *waiter) left() []*pending {
	var out []*pending
	for _, p := range w.items {
		if w.open[p.key] == p {
			out = append(out, p)
		}
	}
	return out
}

// end ends the wait for p.
func (w *waiter) end(p *pending, err error) {
	p.err = err
	delete(w.open, p.key)
}

func (w *waiter) take(ctx context.Context, u *update) error {
	if u.resynced {
		// Who is not in the snapshot that follows is gone.
		for _, p := range w.open {
			p.consumer = nil
		}
	}
	switch e := u.event.GetEvent().(type) {
	case *pb.WatchResponse_Consumer:
		if p := w.open[keyOf(e.Consumer)]; p != nil {
			w.see(p, e.Consumer)
		}
	case *pb.WatchResponse_Receipt:
		if p := w.open[key{e.Receipt.GetNamespace(), e.Receipt.GetName()}]; p != nil && e.Receipt.GetId() == p.result.GetOperation() {
			return w.receive(ctx, p, e.Receipt)
		}
	case *pb.WatchResponse_Deleted:
		if p := w.open[key{e.Deleted.GetNamespace(), e.Deleted.GetName()}]; p != nil {
			w.gone(p)
		}
	case *pb.WatchResponse_Synced:
		return w.receipts(ctx)
	case nil:
		if u.lost != "" {
			w.progress.say(u.lost + "; trying again")
		}
	}
	return nil
}

// see takes a newer view of a consumer.
func (w *waiter) see(p *pending, c *pb.Consumer) {
	if p.consumer.GetStatus().GetState() != c.GetStatus().GetState() {
		w.progress.changed(p, c)
	}
	p.consumer = c
	w.settle(p)
}

// receive takes the receipt of p. What was seen of the consumer before says
// nothing about a restart's second half.
func (w *waiter) receive(ctx context.Context, p *pending, r *pb.Receipt) error {
	p.result.Receipt = r
	if w.verb != pb.Verb_VERB_RESTART || r.GetOutcome() == pb.ReceiptOutcome_RECEIPT_OUTCOME_OVERTAKEN {
		w.end(p, nil)
		return nil
	}
	c, err := w.look(ctx, p.key)
	switch exitOf(err) {
	case exitOK:
		w.see(p, c)
	case exitNotFound:
		w.gone(p)
	case exitUnreachable: // The stream breaks too, and begins with what is.
	default:
		return err
	}
	return nil
}

func (w *waiter) gone(p *pending) {
	w.end(p, failf(exitConflict, "%s was deleted meanwhile", p.key.name))
}

// settle ends the wait for a consumer that is to start again, once it has or
// has failed to.
func (w *waiter) settle(p *pending) {
	if w.verb != pb.Verb_VERB_RESTART || (p.result.GetOperation() != "" && p.result.GetReceipt() == nil) {
		return
	}
	p.result.State = p.consumer.GetStatus().GetState()
	switch p.result.GetState() {
	case pb.State_STATE_RUNNING, pb.State_STATE_PAUSED:
		w.end(p, nil)
	case pb.State_STATE_FAILED:
		w.end(p, failf(exitState, "%s did not start again, it is FAILED: %s", p.key.name, oneLine(p.consumer.GetStatus().GetReason())))
	}
}

// receipts asks for those of operations that are not under way any more, all
// consumers having been seen.
func (w *waiter) receipts(ctx context.Context) error {
	for _, p := range w.left() {
		op := p.result.GetOperation()
		switch {
		case p.consumer == nil:
			w.gone(p)
			continue
		case op == "" || p.result.GetReceipt() != nil || p.consumer.GetDesired().GetOperation().GetId() == op:
			continue
		}
		r, err := w.client.consumers.ListReceipts(ctx, &pb.ListReceiptsRequest{Namespace: p.key.namespace, Name: p.key.name, Id: op})
		switch {
		case exitOf(err) == exitUnreachable:
			return nil // The stream breaks too, and comes back here.
		case err == nil && len(r.GetReceipts()) > 0:
			if err := w.receive(ctx, p, r.GetReceipts()[0]); err != nil {
				return err
			}
		case err == nil || exitOf(err) == exitNotFound:
			w.end(p, failf(exitGeneral, "%s: no receipt is left of the %s: see 'supctl events %s'", p.key.name, verbWord(w.verb), p.key.name))
		default:
			return err
		}
	}
	return nil
}

// figures reads anew what is shown as progress. It is a courtesy: the watch
// tells what is wrong.
func (w *waiter) figures(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, progressTick)
	defer cancel()
	for _, p := range w.progress.shown(w.left()) {
		c, err := w.look(ctx, p.key)
		if err != nil {
			return
		}
		if p.consumer == nil || c.GetStatus().GetState() == p.consumer.GetStatus().GetState() {
			p.consumer = c
		}
	}
}
