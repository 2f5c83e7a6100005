package supervisor

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

const (
	// chunkMax bounds what one worker takes at once.
	chunkMax = 64
	// chunkTime is how long a chunk should last: short handlers get more
	// messages per lock, long ones one at a time.
	chunkTime = int64(200 * time.Microsecond)
	// taken is above every index: no message of the chunk starts any more.
	taken = 1 << 30
)

// worker holds one slot. It takes a chunk of a lane and calls the handler for
// each of its messages. Claiming the next is one atomic add; whoever closes the
// gate swaps the index away and so owns all that has not been claimed.
type worker struct {
	pool  *pool
	lane  *lane
	chunk [chunkMax]*item
	n     int // of chunk
	size  int // how many to take next
	next  atomic.Int32
	cur   atomic.Pointer[item]

	// Of the spec in force when the chunk was taken.
	handler Handler
	timeout time.Duration

	shared bool  // the lane is: what follows need not wait for a retry
	done   int   // handled, of chunk
	spent  int64 // of the last chunk

	// Guarded by the pool's lock.
	booked int  // of chunk, completed ahead of the rest
	leaked bool // its call was abandoned
}

func (w *worker) work() {
	exited := false
	defer func() {
		if !exited { // the handler called runtime.Goexit: the slot goes on
			w.goexit()
		}
	}()
	for w.pool.take(w) {
		w.run()
		// Handlers that never wait would keep the processor until the scheduler
		// takes it away, 10 ms later; among many such consumers a verb, or the
		// store's write, then waits for seconds.
		runtime.Gosched()
	}
	exited = true
}

// run handles the chunk.
func (w *worker) run() {
	start := w.pool.clock.now()
	now := start
	n := w.n
	w.done = 0
	for {
		i := int(w.next.Add(1)) - 1
		if i >= n {
			break
		}
		if i > 0 {
			now = max(now, w.pool.clock.coarse())
		}
		it := w.chunk[i]
		it.started = now
		it.d.Attempt = it.attempts + 1
		it.begin(w.pool.clock, now+int64(w.timeout))
		w.cur.Store(it)
		it.out = w.call(it)
		it.ctx.finish(w.pool.returned)
		w.done = i + 1
		if it.out.kind != outcomeAck && !w.shared {
			break // what follows in the lane waits for it
		}
	}
	w.cur.Store(nil)
	w.spent = w.pool.clock.now() - start
}

// begin gives the next call its context.
func (it *item) begin(c *clock, deadline int64) {
	if it.ctx.clock != nil {
		it.ctx = &handlerCtx{}
	}
	it.ctx.clock, it.ctx.deadline = c, deadline
}

// call runs the handler; a panic is an attempt that failed.
func (w *worker) call(it *item) (out Outcome) {
	defer func() {
		if r := recover(); r != nil {
			out = Retry(&PanicError{Value: r, Stack: debug.Stack()})
		}
	}()
	return w.handler.Handle(it.ctx, it.d)
}

// goexit ends the chunk of a worker whose goroutine is being ended by its
// handler, and lets another take the slot.
func (w *worker) goexit() {
	it := w.cur.Load()
	it.out = Retry(context.Canceled)
	it.ctx.finish(w.pool.returned)
	w.done++
	w.cur.Store(nil)
	p := w.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finish(w)
	p.leave(w)
}

// take ends the worker's chunk and gives it the next. False: there is none, or
// no slot; the worker is gone.
func (p *pool) take(w *worker) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.finish(w)
	if w.leaked || p.gate == gateClosed || p.active() > p.cfg.concurrency {
		p.leave(w)
		return false
	}
	l := p.ready.pop()
	if l == nil {
		p.leave(w)
		return false
	}
	n := min(w.size, l.n)
	if l.shared {
		n = min(n, (l.n+p.cfg.concurrency-1)/p.cfg.concurrency)
	}
	for i := range n {
		it := l.pop()
		it.state = claimed
		w.chunk[i] = it
		it.ep.begin(it.d)
	}
	p.unstarted -= n
	w.lane, w.shared, w.n, w.handler, w.timeout = l, l.shared, n, p.cfg.handler, p.cfg.timeout
	l.busy = true
	w.booked = 0
	w.next.Store(0)
	p.ready.push(l)
	p.spawn()
	return true
}

// leave gives up the slot.
func (p *pool) leave(w *worker) {
	if w.leaked {
		p.leaked--
		poke(p.signal)
	} else {
		delete(p.workers, w)
	}
	p.spawn()
	p.tellIfQuiet()
}

// finish books what a worker did with its chunk, if it had one.
func (p *pool) finish(w *worker) {
	if w.n == 0 {
		return
	}
	l := w.lane // nil: it was abandoned, and the lane went on without it
	w.lane = nil
	if l != nil {
		l.busy = false
	}
	for _, it := range slices.Backward(w.steal()) { // it stopped short
		p.unstarted++
		l.pushFront(it)
	}
	for i := w.booked; i < w.done; i++ {
		p.complete(w.chunk[i])
	}
	if w.done > 0 {
		each := w.spent / int64(w.done)
		p.hist.observe(each, w.done)
		switch {
		case each > chunkTime:
			w.size = 1
		case w.n == w.size && w.size < chunkMax:
			w.size *= 2
		case w.spent > 2*chunkTime:
			w.size = max(1, w.size/2)
		}
	}
	clear(w.chunk[:w.n])
	w.n = 0
	if l != nil {
		p.ready.push(l)
	}
	p.flush()
}

// complete decides what becomes of an item whose handler returned.
func (p *pool) complete(it *item) {
	if it.out.kind == outcomeRetry {
		p.notePanic(it)
	}
	if it.state == gone || it.ep.fenced {
		p.count.late++
		if it.out.kind == outcomeAck && !it.abandoned {
			p.count.willRepeat++
		}
		if it.state != gone {
			p.leftOver(it)
		}
		return
	}
	it.lastErr = it.out.err
	if !it.released {
		it.attempts++
	}
	switch {
	case it.out.kind == outcomeAck:
		p.settle(it, brokers.Ack)
	case it.out.kind == outcomeRelease && p.goesOn(it):
		p.release(it)
	case it.out.kind == outcomeRelease || it.released && !p.goesOn(it):
		p.giveUp(it)
	case it.released:
		it.released = false
		p.retry(it)
	case it.out.kind == outcomeDeadLetter || int(it.attempts) >= p.cfg.attempts:
		p.bury(it)
	case !p.goesOn(it): // between attempts it counts as unstarted
		p.giveUp(it)
	default:
		p.count.retried++
		p.retry(it)
	}
}

// goesOn says whether an item may be tried again here.
func (p *pool) goesOn(it *item) bool {
	return p.gate == gateOpen || p.gate == gateGaps && p.gap(it)
}

// release gives an item back as its handler wants, after a moment: the broker
// delivers it again at once, and the two would go round as fast as they can.
func (p *pool) release(it *item) {
	it.leaving, it.lane = true, nil // its lane goes on
	p.wait(it, p.clock.now()+int64(p.cfg.backoff.initial))
}

func (p *pool) notePanic(it *item) {
	if pe, ok := errors.AsType[*PanicError](it.out.err); ok {
		p.count.panics++
		p.log.Error("handler panicked", "message", it.d.ID(), "attempt", it.attempts+1,
			"panic", pe.Value, "stack", string(pe.Stack))
	}
}

// retry lets an item wait for its next attempt in its place.
func (p *pool) retry(it *item) {
	wait := max(p.cfg.backoff.after(int(it.attempts), p.jitter), it.out.after)
	p.wait(it, p.clock.now()+int64(wait))
}

// scan fires handler deadlines; the wheel calls it each tick.
func (p *pool) scan(now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.workers {
		it := w.cur.Load()
		if it == nil {
			continue
		}
		if it.ctx.deadline <= now {
			it.ctx.cancel(context.DeadlineExceeded, ErrTimeout)
		}
		if w.n > 1 && now-it.started > 2*int64(tick) {
			p.relieve(w, it)
		}
	}
	p.flush()
	p.spawn()
	if len(p.workers) == 0 {
		p.onWheel = false
		p.spare, p.slabs = scratch{}, slabs{}
		p.clock.idle(p)
	}
}

// relieve takes from a worker that is stuck in one call of its chunk what it
// has done and what it has not begun.
func (p *pool) relieve(w *worker, cur *item) {
	p.book(w, cur)
	if w.lane == nil || !w.lane.shared {
		return
	}
	for _, it := range slices.Backward(w.steal()) {
		p.unstarted++
		w.lane.pushFront(it)
	}
	p.ready.push(w.lane)
}

// book completes what a worker did before the call that it is in.
func (p *pool) book(w *worker, cur *item) {
	for w.booked < w.n && w.chunk[w.booked] != cur {
		p.complete(w.chunk[w.booked])
		w.booked++
	}
}

// steal takes what the worker has not claimed; it will not start.
func (w *worker) steal() []*item {
	old := int(w.next.Swap(taken))
	if old >= w.n {
		return nil
	}
	return w.chunk[old:w.n]
}
