package supervisor

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/lifecycle"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
)

// key names a consumer.
type key struct{ namespace, name string }

func (k key) String() string { return k.namespace + "/" + k.name }

// consumer is an actor: one goroutine owns its state and moves it by the
// lifecycle table. Others reach it through its inbox; what they may read it
// publishes. Nothing that can block runs on its goroutine: the broker is
// called by one driver call at a time, each cancelling the one before.
type consumer struct {
	key     key
	number  uint64 // tells consumers apart that had the same name
	s       *Supervisor
	log     *slog.Logger
	pool    *pool
	inbox   inbox
	stopped chan struct{} // closed when the actor has ended

	// turn serialises changes of what is desired: decide, make durable, post.
	turn turn
	// rec is the record; replaced whole by who has the turn.
	rec atomic.Pointer[pb.Consumer]
	// view is what the actor last published.
	view atomic.Pointer[view]
	// config is the checked spec in force; nil when it does not check.
	config    atomic.Pointer[spec.Consumer]
	receiptID atomic.Pointer[string]
	deleted   atomic.Bool
	owed      atomic.Bool // rec is not, or not for certain, what the store has
	meter     meter

	// Owned by the actor's goroutine.
	fault    error          // why there is no config
	next     func()         // takes effect when it has stopped: a new spec
	changed  bool           // publish also if the view is the same: desired or spec are not
	lastRow  *pb.Transition // not published yet
	rows     uint64         // moves recorded
	by       string         // who wants the moves being made
	gone     bool           // deleted, and published so
	state    lifecycle.State
	since    time.Time
	reason   string
	conds    map[pb.ConditionType]*pb.Condition
	caps     *pb.Capabilities // of the last subscription
	ep       *epoch
	epochs   uint64
	handler  Handler
	receiver *receiver
	call     *call  // the driver call under way
	closing  bool   // the subscription is closed once nothing runs
	reaping  []reap // closings that the next start waits for
	// unreported closings have not told yet what became of their messages; the
	// receipt waits for that.
	unreported int
	cut        bool // they were asked to
	op         *operation
	timer      *time.Timer
	at         deadlines
	attempt    int       // failures in a row
	answered   int       // of them, those that the broker answered
	running    time.Time // since when RUNNING, for the restart budget
	final      bool      // the process shuts down or the consumer was deleted: STOPPED ends the actor
}

// wallCheck is how often the wall clock is looked at for a hold's end: it may be
// set, and goes on while the machine sleeps; timers do neither.
const wallCheck = time.Minute

// deadlines are the moments that the actor's one timer waits for; zero: none.
type deadlines struct {
	soft, hard, closing, backoff, hold, mark time.Time
}

// receiver is the goroutine that takes batches of one epoch.
type receiver struct {
	cancel  context.CancelCauseFunc
	done    chan struct{}
	stopped bool // the actor's
	listens bool // it takes nothing: the intake is held
}

func newConsumer(s *Supervisor, rec *pb.Consumer, cfg *spec.Consumer, fault error) *consumer {
	k := key{rec.GetSpec().GetNamespace(), rec.GetSpec().GetName()}
	log := s.o.Log.With("consumer", k.String())
	c := &consumer{
		key: k, number: s.made.Add(1), s: s, log: log, stopped: make(chan struct{}),
		pool:  newPool(s.clock, s.budgetOf(k.namespace), log, s.o.Jitter),
		fault: fault, state: lifecycle.Stopped, since: time.Now(),
	}
	c.config.Store(cfg.Lean())
	c.pool.publish = c.publishDead
	c.pool.broke = c.settleBroke
	c.rec.Store(rec)
	c.configure()
	c.publish()
	return c
}

// inbox is what others want done on the actor's goroutine, in order. Putting
// something in never waits.
type inbox struct {
	mu sync.Mutex
	fs []func()
}

// tell hands work to the actor without waiting for it.
func (c *consumer) tell(f func()) {
	c.inbox.mu.Lock()
	c.inbox.fs = append(c.inbox.fs, f)
	c.inbox.mu.Unlock()
	poke(c.pool.signal)
}

// post hands work to the actor and returns when it has been done; the actor
// never waits for a broker. False: the actor has ended.
func (c *consumer) post(f func()) bool {
	done := make(chan struct{})
	c.tell(func() { f(); close(done) })
	select {
	case <-done:
		return true
	case <-c.stopped:
		return false
	}
}

func (c *consumer) readInbox() {
	c.inbox.mu.Lock()
	fs := c.inbox.fs
	c.inbox.fs = nil
	c.inbox.mu.Unlock()
	for _, f := range fs {
		f()
	}
}

// run is the actor.
func (c *consumer) run() {
	defer close(c.stopped)
	c.timer = time.NewTimer(time.Hour)
	defer c.timer.Stop()
	c.armHold()
	c.converge()
	for !c.final || c.state != lifecycle.Stopped || c.call != nil {
		c.publish()
		c.arm()
		select {
		case <-c.pool.signal:
			c.readInbox()
			c.poolChanged()
		case <-c.timer.C:
			c.due(time.Now())
		}
		c.settleDown()
		if c.final && c.state == lifecycle.Stopped && c.call != nil {
			c.call.cancel(errSuperseded)
		}
	}
	c.publish()
}

// arm sets the timer to the nearest deadline.
func (c *consumer) arm() {
	var first time.Time
	for _, t := range []time.Time{c.at.soft, c.at.hard, c.at.closing, c.at.backoff, c.at.hold, c.at.mark} {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	if first.IsZero() {
		c.timer.Stop()
		return
	}
	d := max(0, time.Until(first))
	if first.Equal(c.at.hold) {
		d = min(d, wallCheck)
	}
	c.timer.Reset(d)
}

// due fires the deadlines that have passed.
func (c *consumer) due(now time.Time) {
	passed := func(t *time.Time) bool {
		if t.IsZero() || now.Before(*t) {
			return false
		}
		*t = time.Time{}
		return true
	}
	if passed(&c.at.hold) {
		go c.s.expireHolds(c)
	}
	if passed(&c.at.mark) {
		c.checkMark(now)
	}
	if passed(&c.at.backoff) {
		c.fire(lifecycle.Due, "")
	}
	if passed(&c.at.soft) {
		c.softLimit()
	}
	if passed(&c.at.hard) {
		c.hardLimit()
	}
	if passed(&c.at.closing) {
		c.closingLate(now)
	}
}

// settleDown fires what follows from nothing being in flight any more.
func (c *consumer) settleDown() {
	if c.call != nil || c.unreported > 0 || c.closeNow() || !c.pool.isQuiet() {
		return
	}
	switch c.state {
	case lifecycle.Pausing:
		c.fire(lifecycle.Quiet, "")
	case lifecycle.Draining:
		if c.op != nil && c.op.consuming {
			if c.ep == nil { // it was lost: nothing more can be consumed
				c.missMark()
			}
			return
		}
		if c.goal() == goalPause && !c.stopping() {
			c.fire(lifecycle.Quiet, "")
			return
		}
		c.fire(lifecycle.Idle, "")
	case lifecycle.Finishing, lifecycle.Aborting:
		c.fire(lifecycle.Idle, "")
	}
}

// goal is what the desired state asks for now.
type goal uint8

const (
	goalStop goal = iota
	goalRun
	goalPause
)

func (c *consumer) goal() goal {
	d := c.rec.Load().GetDesired()
	switch {
	case c.final || d.GetState() != pb.DesiredState_DESIRED_STATE_RUNNING:
		return goalStop
	case len(standing(d.GetHolds(), time.Now())) > 0:
		return goalPause
	}
	return goalRun
}

// standing are the holds that have not ended.
func standing(holds []*pb.Hold, now time.Time) []*pb.Hold {
	var out []*pb.Hold
	for _, h := range holds {
		if u := h.GetUntil(); u == nil || now.Before(u.AsTime()) {
			out = append(out, h)
		}
	}
	return out
}

// converge starts a stopped consumer as its desired state says.
func (c *consumer) converge() {
	if c.state != lifecycle.Stopped {
		return
	}
	if c.next != nil {
		c.next()
		c.next = nil
	}
	switch c.goal() {
	case goalRun:
		c.fire(lifecycle.Start, "")
	case goalPause:
		c.fire(lifecycle.Park, "")
	}
}

// configure gives the pool what the spec and the scale override say.
func (c *consumer) configure() {
	cfg := c.config.Load()
	if cfg == nil {
		return
	}
	concurrency := cfg.Concurrency
	if o := c.rec.Load().GetDesired().GetScale(); o != nil {
		concurrency = int(o.GetConcurrency())
	}
	c.pool.configure(poolConfig{
		handler: c.handler, timeout: cfg.HandlerTimeout, concurrency: concurrency,
		ordering: cfg.Ordering, keyHeader: cfg.KeyHeader, lanes: cfg.Lanes,
		maxMessages: cfg.MaxMessages, maxBytes: cfg.MaxBytes, attempts: cfg.Attempts,
		backoff:    backoff{cfg.Backoff.Initial, cfg.Backoff.Max},
		deadLetter: cfg.Plan.DeadLetter,
	})
}

// Revoke is [brokers.Observer]'s: it blocks its caller, not the actor.
func (o observer) Revoke(ctx context.Context, origins []*brokers.Origin) {
	o.c.pool.revoke(ctx, origins)
}

// Condition is [brokers.Observer]'s.
func (o observer) Condition(t pb.ConditionType, on bool, reason string) {
	o.c.tell(func() {
		if o.epoch != o.c.epochs {
			return
		}
		o.c.setCondition(t, on, reason)
		if ep := o.c.ep; ep != nil && t == pb.ConditionType_CONDITION_TYPE_ASSIGNED {
			o.c.caps = capabilities(ep.sub.Capabilities())
		}
	})
}

// observer hears a driver for one epoch.
type observer struct {
	c     *consumer
	epoch uint64
}
