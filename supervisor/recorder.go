package supervisor

import (
	"context"
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
	// recordTimeout bounds one write.
	recordTimeout = 5 * time.Second
)

// recorder writes receipts and histories behind the actors, many at a time.
// A receipt is shown once it is durable, or once the store has refused it.
type recorder struct {
	s    *Supervisor
	wake chan struct{}
	done chan struct{}

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
	key key
	t   *pb.Transition
}

func newRecorder(s *Supervisor) *recorder {
	return &recorder{s: s, wake: make(chan struct{}, 1), done: make(chan struct{}), dirty: map[*consumer]struct{}{}}
}

// receipt takes an operation that has ended.
func (r *recorder) receipt(c *consumer, o *operation) {
	r.mu.Lock()
	r.receipts = append(r.receipts, recorded{c: c, o: o})
	r.mu.Unlock()
	poke(r.wake)
}

func (r *recorder) transition(k key, t *pb.Transition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.rows) >= recordMax {
		r.rows = r.rows[recordMax/2:]
	}
	r.rows = append(r.rows, row{k, t})
}

// run writes until close, and what is left then.
func (r *recorder) run() {
	defer close(r.done)
	t := time.NewTicker(recordEvery)
	defer t.Stop()
	for {
		select {
		case <-r.wake:
		case <-t.C:
		}
		r.mu.Lock()
		closed := r.closed
		r.mu.Unlock()
		r.write()
		if closed {
			return
		}
	}
}

// close writes what is left and ends the recorder.
func (r *recorder) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
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

func (r *recorder) write() {
	w := r.take()
	if len(w.receipts) == 0 && len(w.rows) == 0 && len(w.dirty) == 0 {
		return
	}
	// The records change here too: an operation that has ended is taken out.
	touched := map[*consumer]*pb.Consumer{}
	for _, rc := range w.receipts {
		touched[rc.c] = nil
	}
	for c := range w.dirty {
		touched[c] = nil
	}
	for c := range touched {
		c.verb.Lock()
		touched[c] = c.rec.Load()
	}
	for _, rc := range w.receipts {
		touched[rc.c] = ended(touched[rc.c], rc.o)
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	err := r.s.o.Store.Update(ctx, func(tx *store.Tx) error { return w.put(tx, touched) })
	for c, rec := range touched {
		if err == nil && !c.deleted.Load() {
			c.rec.Store(rec)
		}
		c.verb.Unlock()
	}
	r.show(w.receipts, err)
	if err != nil {
		r.again(w, err)
		return
	}
	for c := range w.dirty {
		c.notDurable(nil)
	}
}

func (w work) put(tx *store.Tx, touched map[*consumer]*pb.Consumer) error {
	for c, rec := range touched {
		if c.deleted.Load() {
			continue
		}
		if err := tx.PutConsumer(rec); err != nil {
			return err
		}
	}
	for _, rc := range w.receipts {
		if err := tx.PutReceipt(rc.o.receipt); err != nil {
			return err
		}
	}
	for _, row := range w.rows {
		if err := tx.AppendTransition(row.key.namespace, row.key.name, row.t); err != nil {
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
		id := w.o.receipt.GetId()
		w.c.receiptID.Store(&id)
		w.c.log.Info("receipt", "receipt", receiptText{w.o.receipt})
		r.s.hub.publish(func(uint64) event { return event{c: w.c, rec: w.c.rec.Load(), receipt: w.o.receipt} })
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
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dirty[c] = struct{}{}
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
	c.rows++
	t := &pb.Transition{
		Sequence: c.rows, At: timestamppb.Now(), From: from.Public(), To: c.state.Public(), Event: e.String(), Reason: why,
	}
	if c.op != nil && e <= lifecycle.Kill {
		t.Actor = c.op.pb.GetActor()
	}
	c.log.Debug("moved", "from", from, "event", e, "to", c.state, "reason", why)
	if from.Public() == c.state.Public() {
		return
	}
	c.lastRow = t
	c.s.recorder.transition(c.key, t)
}
