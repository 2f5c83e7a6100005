package supervisor

import (
	"context"
	"hash/maphash"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// epoch is one subscription's life. Items belong to the epoch that delivered
// them; once it is fenced, their outcomes are counted and never sent.
type epoch struct {
	n      uint64
	sub    brokers.Subscription
	leave  func() // the connection; to be called once sub is closed
	caps   brokers.Capabilities
	fenced bool // guarded by the pool's lock
	// cancel ends what still settles for this epoch.
	ctx    context.Context //nolint:containedctx // the epoch's own lifetime
	cancel context.CancelCauseFunc
	// settling is the context of the last Settle, made at settlingSince; of
	// flushAll alone.
	settling      context.Context //nolint:containedctx // shared by calls that follow closely
	endSettling   context.CancelFunc
	settlingSince int64
	// high marks, by origin, how far handling has begun; with positions only.
	high []mark
	// late are deliveries that arrived after the fence.
	late []*brokers.Delivery
}

// mark is the highest position of one origin that has begun to be handled.
type mark struct {
	origin   *brokers.Origin
	position int64
}

// begin notes that a delivery is about to be handled.
func (ep *epoch) begin(d *brokers.Delivery) {
	if !ep.caps.Positions {
		return
	}
	for len(ep.high) <= d.Origin.Index {
		ep.high = append(ep.high, mark{})
	}
	if m := &ep.high[d.Origin.Index]; m.origin != d.Origin || m.position < d.Position {
		*m = mark{d.Origin, d.Position}
	}
}

// gap: something above has begun, so giving this back would repeat that.
func (ep *epoch) gap(d *brokers.Delivery) bool {
	if d.Origin.Index >= len(ep.high) {
		return false
	}
	m := ep.high[d.Origin.Index]
	return m.origin == d.Origin && d.Position < m.position
}

type itemState uint8

const (
	queued    itemState = iota // in a lane
	claimed                    // in a worker's chunk
	waiting                    // between two attempts
	settling                   // decided; to be handed to the driver
	sent                       // handed to the driver
	deadly                     // attempts used up; on its way to the dead letters
	returning                  // being given back: the driver has it
	gone                       // settled, given back, fenced or abandoned
)

// item is one delivery on its way through the pool. Its fields are guarded by
// the pool's lock, but for those of a running call, which are its worker's.
type item struct {
	d    *brokers.Delivery
	ep   *epoch
	slab *slab
	lane *lane
	next *item // in its lane

	ctx     *handlerCtx // of the running call, or of the last; before, for the first
	started int64
	out     Outcome

	state    itemState
	released bool // cancelled from outside: this attempt does not count
	buried   bool // its dead letter is confirmed
	leaving  bool // waiting: it is given back when due
	// abandoned: a receipt has named it.
	abandoned bool
	attempts  int32
	due       int64 // waiting: when it may be tried again
	heap      int   // waiting: index in the heap
	settle    brokers.Outcome
	lastErr   error
}

// slab is one received batch. Its items stay listed until the last is gone.
// Then, unless something else may still look at them, the items are used again
// for a later batch; contexts and deliveries never are, since a handler may keep
// them.
type slab struct {
	items      []item
	left       int
	taken      int64
	kept       bool // an item ended otherwise than by being settled
	prev, next *slab
}

// newSlab makes a slab of ds, of epoch ep, in an old one where it fits.
func newSlab(old *slab, ep *epoch, ds []brokers.Delivery, taken int64) *slab {
	s := old
	if s == nil || cap(s.items) < len(ds) {
		s = &slab{items: make([]item, len(ds))}
	} else {
		clear(s.items)
		*s = slab{items: s.items[:len(ds)]}
	}
	s.left, s.taken = len(ds), taken
	ctxs := make([]handlerCtx, len(ds))
	for i := range ds {
		it := &s.items[i]
		it.d, it.ep, it.slab, it.ctx = &ds[i], ep, s, &ctxs[i]
	}
	return s
}

// slabs are those that can be used again.
type slabs struct{ free []*slab }

const (
	// slabsKept bounds how many wait to be used again; it is more than are in use
	// at a time where batches are large.
	slabsKept = 16
	// slabMax bounds the items of one that is kept.
	slabMax = 1024
)

func (l *slabs) get() *slab {
	n := len(l.free)
	if n == 0 {
		return nil
	}
	s := l.free[n-1]
	l.free[n-1] = nil
	l.free = l.free[:n-1]
	return s
}

func (l *slabs) put(s *slab) {
	if !s.kept && len(l.free) < slabsKept && cap(s.items) <= slabMax {
		l.free = append(l.free, s)
	}
}

// lane is a queue whose order is kept: one of its items is handled at a time.
// The shared lane of ordering NONE gives its items to any number of workers.
type lane struct {
	head, tail *item
	n          int
	name       string
	shared     bool
	busy       bool // a worker has a chunk of it
	blocked    bool // its head waits for its next attempt
	listed     bool // it is in the ready ring
}

func (l *lane) push(it *item) {
	it.state, it.next, it.lane = queued, nil, l
	if l.tail == nil {
		l.head = it
	} else {
		l.tail.next = it
	}
	l.tail = it
	l.n++
}

func (l *lane) pushFront(it *item) {
	it.state, it.lane, it.next = queued, l, l.head
	l.head = it
	if l.tail == nil {
		l.tail = it
	}
	l.n++
}

// remove takes an item out of its place.
func (l *lane) remove(it *item) {
	if l.head == it {
		l.pop()
		return
	}
	for at := l.head; at != nil; at = at.next {
		if at.next != it {
			continue
		}
		at.next, it.next = it.next, nil
		if l.tail == it {
			l.tail = at
		}
		l.n--
		return
	}
}

func (l *lane) pop() *item {
	it := l.head
	l.head = it.next
	if l.head == nil {
		l.tail = nil
	}
	it.next = nil
	l.n--
	return it
}

// ready says whether a worker may take from the lane.
func (l *lane) ready() bool { return l.n > 0 && !l.blocked && (l.shared || !l.busy) }

// ring is a FIFO of lanes that are ready.
type ring struct {
	buf  []*lane
	head int
	n    int
}

func (r *ring) push(l *lane) {
	if l.listed || !l.ready() {
		return
	}
	l.listed = true
	if r.n == len(r.buf) {
		grown := make([]*lane, max(4, 2*len(r.buf)))
		for i := range r.n {
			grown[i] = r.buf[(r.head+i)%len(r.buf)]
		}
		r.buf, r.head = grown, 0
	}
	r.buf[(r.head+r.n)%len(r.buf)] = l
	r.n++
}

// pop returns the next lane that is still ready, or nil.
func (r *ring) pop() *lane {
	for r.n > 0 {
		l := r.buf[r.head]
		r.buf[r.head] = nil
		r.head = (r.head + 1) % len(r.buf)
		r.n--
		l.listed = false
		if l.ready() {
			return l
		}
	}
	return nil
}

// waits is a heap of items between two attempts, the earliest first.
type waits []*item

func (w waits) Len() int           { return len(w) }
func (w waits) Less(i, j int) bool { return w[i].due < w[j].due }
func (w waits) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].heap, w[j].heap = i, j
}

func (w *waits) Push(x any) {
	it, ok := x.(*item)
	if !ok {
		return
	}
	it.heap = len(*w)
	*w = append(*w, it)
}

func (w *waits) Pop() any {
	old := *w
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*w = old[:len(old)-1]
	return it
}

// laneHash spreads keys over lanes; the seed is the process's own, so that no
// sender can choose keys that meet in one lane.
func laneHash(seed maphash.Seed, key []byte, n int) int {
	return int(maphash.Bytes(seed, key) % uint64(n))
}
