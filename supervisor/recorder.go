package supervisor

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/lifecycle"
	"github.com/seed-111f5b8e/supervisord/supervisor/store"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	// recordEvery is how long transitions may gather before they are written.
	recordEvery = 200 * time.Millisecond
	// recordMax bounds what gathers while the store cannot be written; then
	// the oldest transitions go. Receipts stay.
	recordMax = 20000
	// recordTimeout bounds one write, recordAgain is the pause after one that
	// failed, recordClose bounds the last.
	recordTimeout = 5 * time.Second
	recordAgain   = time.Second
	recordClose   = 500 * time.Millisecond
)

// recorder writes receipts and histories behind the actors, many at a time.
// A receipt is shown once it is durable, or once the store has refused it.
type recorder struct {
	s     *Supervisor
	wake  chan struct{} // write at once
	later chan struct{} // write soon
	done  chan struct{}
	// ctx bounds all writes; it ends some time after close.
	ctx context.Context //nolint:containedctx // the recorder's own lifetime
	end context.CancelCauseFunc

	mu       sync.Mutex
	receipts []recorded
	rows     []row
	dirty    map[*consumer]struct{} // what is desired could not be written yet
	closed   bool
}

type recorded struct {
	c     *consumer
	o     *operation
	shown bool // though it could not be written yet
}

type row struct {
	c *consumer
	t *pb.Transition
}

func newRecorder(s *Supervisor) *recorder {
	r := &recorder{
		s: s, wake: make(chan struct{}, 1), later: make(chan struct{}, 1), done: make(chan struct{}),
		dirty: map[*consumer]struct{}{},
	}
	r.ctx, r.end = context.WithCancelCause(context.Background())
	return r
}

// receipt takes an operation that has ended.
func (r *recorder) receipt(c *consumer, o *operation) {
	r.mu.Lock()
	r.receipts = append(r.receipts, recorded{c: c, o: o})
	r.mu.Unlock()
	poke(r.wake)
}

func (r *recorder) transition(c *consumer, t *pb.Transition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.rows) >= recordMax {
		r.rows = r.rows[recordMax/2:]
	}
	r.rows = append(r.rows, row{c, t})
	poke(r.later)
}

// run writes until close, and what is left then.
func (r *recorder) run() {
	defer close(r.done)
	var due <-chan time.Time
	for {
		select {
		case <-r.wake:
		case <-due:
		case <-r.later:
			if due == nil {
				due = time.After(recordEvery)
			}
			continue
		}
		r.mu.Lock()
		closed := r.closed
		r.mu.Unlock()
		due = nil
		if !r.write() {
			due = time.After(recordAgain)
		}
		if closed {
			return
		}
	}
}

// close writes what is left and ends the recorder, within recordClose.
func (r *recorder) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	late := time.AfterFunc(recordClose, func() { r.end(errors.New("the process ends")) })
	defer late.Stop()
	poke(r.wake)
	<-r.done
}

// work is what one write takes.
type work struct {
	receipts []recorded
	rows     []row
	dirty    map[*consumer]struct{}
}

func (r *recorder) take() work {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := work{r.receipts, r.rows, r.dirty}
	r.receipts, r.rows, r.dirty = nil, nil, map[*consumer]struct{}{}
	return w
}

// write writes what has gathered; false: it is still to be written.
func (r *recorder) write() bool {
	w := r.take()
	if len(w.receipts) == 0 && len(w.rows) == 0 && len(w.dirty) == 0 {
		return true
	}
	life, cut := context.WithCancelCause(r.ctx)
	defer cut(nil)
	ctx, cancel := context.WithTimeout(life, recordTimeout)
	defer cancel()
	err := r.writeRecords(ctx, cut, w)
	r.show(w.receipts, err)
	if err != nil {
		r.again(w, err)
		return false
	}
	for c := range w.dirty {
		c.notDurable(nil)
	}
	return true
}

// writeRecords takes the turn of all whose records change, for an operation that
// has ended is taken out of its record.
func (r *recorder) writeRecords(ctx context.Context, cut context.CancelCauseFunc, w work) error {
	recs := map[*consumer]*pb.Consumer{}
	for _, c := range w.touched() {
		if err := c.turn.take(ctx, cut, false); err != nil {
			return err
		}
		defer c.turn.give()
		if !c.deleted.Load() {
			recs[c] = c.rec.Load()
		}
	}
	for _, rc := range w.receipts {
		if rec := recs[rc.c]; rec != nil {
			recs[rc.c] = ended(rec, rc.o)
		}
	}
	if err := r.s.o.Store.Update(ctx, func(tx *store.Tx) error { return w.put(tx, recs) }); err != nil {
		return err
	}
	for c, rec := range recs {
		c.owed.Store(false)
		if c.rec.Swap(rec) != rec {
			c.tell(func() { c.changed = true })
		}
	}
	return nil
}

// touched lists the consumers whose records are to be written, in the order in
// which all take turns.
func (w work) touched() []*consumer {
	var out []*consumer
	for _, rc := range w.receipts {
		out = append(out, rc.c)
	}
	for c := range w.dirty {
		out = append(out, c)
	}
	return inOrder(out)
}

// inOrder sorts consumers by name, each once: who takes many turns takes them so.
func inOrder(cs []*consumer) []*consumer {
	slices.SortFunc(cs, func(a, b *consumer) int {
		return cmp.Or(compareKeys(a.key, b.key), cmp.Compare(a.number, b.number))
	})
	return slices.Compact(cs)
}

func (w work) put(tx *store.Tx, recs map[*consumer]*pb.Consumer) error {
	for _, rec := range recs {
		if err := tx.PutConsumer(rec); err != nil {
			return err
		}
	}
	for _, rc := range w.receipts {
		if recs[rc.c] == nil {
			continue // deleted: another may have its name
		}
		if err := tx.PutReceipt(rc.o.receipt); err != nil {
			return err
		}
	}
	for _, row := range w.rows {
		if row.c.deleted.Load() {
			continue
		}
		if err := tx.AppendTransition(row.c.key.namespace, row.c.key.name, row.t); err != nil {
			return err
		}
	}
	return nil
}

// ended is the record without the operation, if that is the one it has.
func ended(rec *pb.Consumer, o *operation) *pb.Consumer {
	if rec.GetDesired().GetOperation().GetId() != o.pb.GetId() {
		return rec
	}
	next := proto.CloneOf(rec)
	next.Desired.Operation = nil
	return next
}

// show lets waiters and watchers have the receipts.
func (r *recorder) show(receipts []recorded, err error) {
	for i := range receipts {
		w := &receipts[i]
		if w.shown {
			continue
		}
		w.shown = true
		w.o.durable = err == nil
		w.c.receiptID.Store(new(w.o.receipt.GetId()))
		w.c.log.Info("receipt", "receipt", receiptText{w.o.receipt})
		if !w.c.deleted.Load() {
			r.s.hub.publish(func(uint64) event { return event{c: w.c, rec: w.c.rec.Load(), receipt: w.o.receipt} })
		}
		close(w.o.done)
	}
}

// again keeps what could not be written for the next time.
func (r *recorder) again(w work, err error) {
	for _, rc := range w.receipts {
		rc.c.notDurable(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		r.s.o.Log.Error("not written before the end: receipts, and desired states that were acted on",
			"receipts", len(w.receipts), "desired", len(w.dirty), "error", err)
		return
	}
	r.receipts = append(w.receipts, r.receipts...)
	r.rows = append(w.rows, r.rows...)
	for c := range w.dirty {
		r.dirty[c] = struct{}{}
	}
	for _, rc := range w.receipts {
		r.dirty[rc.c] = struct{}{}
	}
}

// owes notes that a consumer's desired state is acted on but not written.
func (r *recorder) owes(c *consumer) {
	c.owed.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dirty[c] = struct{}{}
	poke(r.later)
}

// unwritten are the receipts of a consumer that are shown but not durable yet.
func (r *recorder) unwritten(c *consumer) []*pb.Receipt {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*pb.Receipt
	for _, rc := range r.receipts {
		if rc.c == c && rc.shown {
			out = append(out, rc.o.receipt)
		}
	}
	return out
}

// notDurable sets or clears the condition.
func (c *consumer) notDurable(err error) {
	why := ""
	if err != nil {
		why = "the state store cannot be written; acted on, and written as soon as it can be: " + err.Error()
	}
	c.tell(func() { c.setCondition(pb.ConditionType_CONDITION_TYPE_NOT_DURABLE, err != nil, why) })
}

// record notes a move in the history.
func (c *consumer) record(from lifecycle.State, e lifecycle.Event, why string) {
	c.log.Debug("moved", "from", from, "event", e, "to", c.state, "reason", why)
	if from.Public() == c.state.Public() {
		return
	}
	c.rows++
	c.lastRow = &pb.Transition{
		Sequence: c.rows, At: timestamppb.Now(), From: from.Public(), To: c.state.Public(), Event: e.String(), Reason: why,
		Actor: c.by,
	}
	c.s.recorder.transition(c, c.lastRow)
}
