package supervisor

import (
	"container/heap"
	"context"
	"hash/maphash"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// intake says what becomes of a batch that arrives.
type intake uint8

const (
	intakeClosed intake = iota // kept aside, to be given back
	intakeShut                 // handled, but no more is asked for
	intakeOpen                 // handled
)

// gate says which handler calls may start.
type gate uint8

const (
	gateClosed gate = iota
	gateGaps        // of messages below a position that has begun
	gateOpen
)

// poolConfig is what the spec says of the message path. It is replaced whole.
type poolConfig struct {
	handler     Handler
	timeout     time.Duration
	concurrency int
	ordering    pb.Ordering
	keyHeader   string
	lanes       int
	maxMessages int
	maxBytes    int64
	attempts    int
	backoff     backoff
	deadLetter  brokers.Target
}

// pool is the message path of one consumer: lanes, slots, outcomes, settling.
// It outlives epochs, so that handlers of a lost one still count against the
// concurrency. The actor opens and closes it; batches, chunks and settlements
// pass under its lock as a whole, single messages between them with one atomic
// operation each.
type pool struct {
	clock    *clock
	budget   *budget
	log      *slog.Logger
	jitter   func() float64
	seed     maphash.Seed
	returned *ctxState
	// signal tells the actor that quiet, leaks or the head of a lane changed;
	// it has room for one and is never waited for.
	signal chan struct{}
	// credit tells the receiver that there is room again; room for one.
	credit chan struct{}
	// publish sends dead letters and returns when they are confirmed.
	publish func(ctx context.Context, ep *epoch, items []*item) error
	// broke tells the actor that settling found the subscription dead.
	broke func(ep *epoch, err error)

	mu       sync.Mutex
	cfg      poolConfig
	ep       *epoch
	intake   intake
	gate     gate
	lanes    []*lane
	spread   int // lanes that keys are spread over
	ready    ring
	waits    waits
	wake     *time.Timer
	strays   []*item
	holding  bool // strays are about to be given back
	workers  map[*worker]struct{}
	leaked   int // workers whose call was abandoned
	first    *slab
	last     *slab
	slabs    slabs // to be used again, while the pool is busy
	onWheel  bool
	settles  []*item
	spare    scratch // of the settling before, while the pool is busy
	flushing bool
	dead     []*item
	burying  bool
	blocked  map[*item]string // retried for ever: why

	inFlight      int
	inFlightBytes int64
	largest       int64 // of the last messages; it fades batch by batch
	owed          int64 // of bytes gone, not yet given back to the budget
	unstarted     int   // queued or waiting, of inFlight
	count         counters
	hist          histogram
}

// counters count since the process began.
type counters struct {
	received, acked, retried, deadLettered, returned, abandoned int64
	late, panics, willRepeat, unconfirmed, ownershipLost        int64
}

func newPool(c *clock, b *budget, log *slog.Logger, jitter func() float64) *pool {
	return &pool{
		clock: c, budget: b, log: log, jitter: jitter, seed: maphash.MakeSeed(), returned: newReturned(),
		signal: make(chan struct{}, 1), credit: make(chan struct{}, 1),
	}
}

// configure replaces what the spec says. While messages are queued only the
// hot fields may differ: lanes are kept.
func (p *pool) configure(cfg poolConfig) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cfg = cfg
	p.spawn()
	poke(p.credit)
}

// open begins an epoch: what it delivers is handled.
func (p *pool) open(ep *epoch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ep != ep {
		p.budget.join(1)
	}
	p.ep = ep
	if p.inFlight == 0 && len(p.workers) == 0 {
		// Only now may a key go to another lane than before.
		p.lanes, p.ready, p.spread = nil, ring{}, p.cfg.lanes
	}
	p.intake, p.gate, p.holding = intakeOpen, gateOpen, false
	p.spawn()
	poke(p.credit)
}

// add takes a batch in. What comes after the intake was closed is kept aside.
func (p *pool) add(ep *epoch, ds []brokers.Delivery) {
	p.mu.Lock()
	old := p.slabs.get()
	p.mu.Unlock()
	s := newSlab(old, ep, ds, p.clock.now())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count.received += int64(len(ds))
	if ep.fenced {
		p.count.returned += int64(len(ds))
		for i := range ds {
			ep.late = append(ep.late, &ds[i])
		}
		return
	}
	s.prev = p.last
	if p.last == nil {
		p.first = s
	} else {
		p.last.next = s
	}
	p.last = s
	var bytes int64
	p.largest -= p.largest / 8
	for i := range ds {
		it := &s.items[i]
		bytes += ds[i].Size
		p.largest = max(p.largest, ds[i].Size)
		if p.intake == intakeClosed {
			p.strays = append(p.strays, it)
			continue
		}
		l := p.laneOf(it.d)
		l.push(it)
		p.ready.push(l)
		p.unstarted++
	}
	p.inFlight += len(ds)
	p.inFlightBytes += bytes
	p.budget.charge(bytes)
	p.spawn()
}

// laneOf finds the lane that keeps a delivery in order.
func (p *pool) laneOf(d *brokers.Delivery) *lane {
	i := 0
	switch p.cfg.ordering {
	case pb.Ordering_ORDERING_KEY:
		i = laneHash(p.seed, p.keyOf(d), p.spread)
	case pb.Ordering_ORDERING_PARTITION:
		i = d.Origin.Index
	}
	for len(p.lanes) <= i {
		name := strconv.Itoa(len(p.lanes))
		p.lanes = append(p.lanes, &lane{name: name, shared: p.cfg.ordering <= pb.Ordering_ORDERING_NONE})
	}
	return p.lanes[i]
}

func (p *pool) keyOf(d *brokers.Delivery) []byte {
	if p.cfg.keyHeader == "" {
		return d.Key
	}
	v, _ := d.Headers.Get(p.cfg.keyHeader)
	return []byte(v)
}

// active counts workers that hold a slot, leaked ones included.
func (p *pool) active() int { return len(p.workers) + p.leaked }

// spawn starts a worker when there is work and a slot; each worker that finds
// more work starts the next, so that short bursts stay on few.
func (p *pool) spawn() {
	if p.gate == gateClosed || p.active() >= p.cfg.concurrency {
		return
	}
	l := p.ready.pop()
	if l == nil {
		return
	}
	p.ready.push(l)
	if p.workers == nil {
		p.workers = make(map[*worker]struct{}, 1)
	}
	w := &worker{pool: p, size: 1}
	p.workers[w] = struct{}{}
	if !p.onWheel {
		p.onWheel = true
		p.clock.busy(p)
	}
	go w.work()
}

// leftOver is gone for an item that somebody may still look at.
func (p *pool) leftOver(it *item) {
	it.slab.kept = true
	p.gone(it)
}

// gone takes an item out of what is in flight; it may be used again for another
// delivery. The caller calls repay before it unlocks.
func (p *pool) gone(it *item) {
	it.state = gone
	p.inFlight--
	p.inFlightBytes -= it.d.Size
	p.owed += it.d.Size
	delete(p.blocked, it)
	s := it.slab
	if s.left--; s.left > 0 {
		return
	}
	if s.prev == nil {
		p.first = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next == nil {
		p.last = s.prev
	} else {
		s.next.prev = s.prev
	}
	s.prev, s.next = nil, nil
	if p.onWheel {
		p.slabs.put(s)
	}
}

// repay gives the budget what has gone since, at once: its locks are shared by
// many consumers.
func (p *pool) repay() {
	if p.owed > 0 {
		p.budget.release(p.owed)
		p.owed = 0
	}
}

// rests: no handler runs, nothing is being settled, and what is in flight waits to
// be given back.
func (p *pool) rests() bool {
	return len(p.workers) == 0 && !p.flushing && !p.burying && p.inFlight == len(p.strays)
}

// quiet: it rests, and nothing is in flight.
func (p *pool) quiet() bool { return p.rests() && p.inFlight == 0 }

func (p *pool) isQuiet() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.quiet()
}

// tellIfQuiet lets the actor look again.
func (p *pool) tellIfQuiet() {
	if p.rests() {
		poke(p.signal)
	}
}

// wait puts an item aside until due. One that has a lane to keep in order
// keeps its place there, and the lane waits.
func (p *pool) wait(it *item, due int64) {
	p.unstarted++
	if it.lane != nil && !it.lane.shared {
		it.lane.pushFront(it)
		it.lane.blocked = true
	}
	it.state, it.due = waiting, due
	heap.Push(&p.waits, it)
	p.setWake()
}

func (p *pool) setWake() {
	if len(p.waits) == 0 {
		return
	}
	d := time.Duration(p.waits[0].due - p.clock.now())
	if p.wake == nil {
		p.wake = time.AfterFunc(max(d, 0), p.wakeUp)
		return
	}
	p.wake.Reset(max(d, 0))
}

// wakeUp lets the items go on whose time has come.
func (p *pool) wakeUp() {
	now := p.clock.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.waits) > 0 && p.waits[0].due <= now {
		it := p.waits[0]
		heap.Pop(&p.waits)
		switch {
		case it.leaving:
			p.unstarted--
			p.settle(it, brokers.Release)
			continue
		case it.lane == nil: // its dead letter could not be published
			p.unstarted--
			p.bury(it)
			continue
		case it.lane.shared:
			it.lane.pushFront(it)
		default:
			it.state = queued
			it.lane.blocked = false
		}
		p.ready.push(it.lane)
	}
	p.setWake()
	p.flush()
	p.spawn()
}

// poke puts a token into a channel with room for one.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
