package supervisor

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/lifecycle"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// view is what the actor publishes of itself; immutable.
type view struct {
	state      lifecycle.State
	since      time.Time
	reason     string
	conditions []*pb.Condition
	epoch      uint64
	attempt    int
	at         deadlines
	operation  string
	caps       *pb.Capabilities
	revision   uint64
}

// publish shows the actor's state to readers and watchers, when it changed.
func (c *consumer) publish() {
	old := c.view.Load()
	v := &view{
		state: c.state, since: c.since, reason: c.reason, epoch: c.epochs, attempt: c.attempt, at: c.at,
		conditions: c.conditions(), caps: c.caps,
	}
	if c.op != nil {
		v.operation = c.op.pb.GetId()
	}
	if c.gone || old != nil && v.same(old) && !c.changed {
		return
	}
	c.changed = false
	row := c.lastRow
	c.lastRow = nil
	c.s.hub.publish(func(revision uint64) event {
		v.revision = revision
		c.view.Store(v)
		return event{c: c, rec: c.rec.Load(), view: v, row: row}
	})
}

func (v *view) same(o *view) bool {
	return v.state == o.state && v.since.Equal(o.since) && v.reason == o.reason && v.epoch == o.epoch &&
		v.attempt == o.attempt && v.operation == o.operation && v.at == o.at && v.caps == o.caps &&
		slices.EqualFunc(v.conditions, o.conditions, func(a, b *pb.Condition) bool { return proto.Equal(a, b) })
}

func capabilities(c brokers.Capabilities) *pb.Capabilities {
	return &pb.Capabilities{
		Pause: c.Pause, KeepsMembership: c.Membership, GiveBackCounts: c.GiveBackCounts, Partitions: c.Partitions,
		MessagesBoundHard: c.MessagesHard, BytesBoundHard: c.BytesHard, Lag: c.Lag,
	}
}

// shownOff: a condition that is told also while it is not so.
func shownOff(t pb.ConditionType) bool {
	return t == pb.ConditionType_CONDITION_TYPE_CONNECTED || t == pb.ConditionType_CONDITION_TYPE_ASSIGNED
}

// setCondition notes what is true beside the state.
func (c *consumer) setCondition(t pb.ConditionType, on bool, reason string) {
	old, had := c.conds[t]
	if !had && !on && !shownOff(t) {
		return
	}
	if !on && !shownOff(t) {
		delete(c.conds, t)
		return
	}
	if had && old.GetStatus() == on && old.GetReason() == reason {
		return
	}
	next := &pb.Condition{Type: t, Status: on, Reason: reason, Since: timestamppb.Now()}
	if had && old.GetStatus() == on {
		next.Since = old.GetSince()
	}
	if c.conds == nil {
		c.conds = map[pb.ConditionType]*pb.Condition{}
	}
	c.conds[t] = next
}

func (c *consumer) conditions() []*pb.Condition {
	out := make([]*pb.Condition, 0, len(c.conds))
	for _, cond := range c.conds {
		out = append(out, cond)
	}
	slices.SortFunc(out, func(a, b *pb.Condition) int { return cmp.Compare(a.GetType(), b.GetType()) })
	return out
}

// snapshot is the consumer as users see it, figures of this moment included.
// It is safe to call from any goroutine.
func (c *consumer) snapshot() *pb.Consumer { return c.snapshotOf(c.rec.Load(), c.view.Load()) }

func (c *consumer) snapshotOf(rec *pb.Consumer, v *view) *pb.Consumer {
	out := &pb.Consumer{
		Spec: rec.GetSpec(), Desired: rec.GetDesired(), Uid: rec.GetUid(), Etag: rec.GetEtag(),
		Generation: rec.GetGeneration(), Created: rec.GetCreated(), Updated: rec.GetUpdated(), LastSeek: rec.GetLastSeek(),
	}
	n, load := c.pool.counters(), c.pool.load()
	st := &pb.Status{
		State: v.state.Public(), Reason: v.reason, Since: timestamppb.New(v.since), Conditions: v.conditions,
		Epoch: v.epoch, Attempt: int32(v.attempt), Capabilities: v.caps, Revision: v.revision,
		InFlight: int32(load.messages), InFlightBytes: load.bytes, Running: int32(load.running),
		Concurrency: int32(load.slots), LeakedHandlers: int32(load.leaked),
		Rate: c.meter.rate(), LastReceipt: c.lastReceipt(), Lag: c.meter.lag.Load(),
		Counters: &pb.Counters{
			Received: n.received, Acked: n.acked, Retried: n.retried, DeadLettered: n.deadLettered,
			Returned: n.returned, Abandoned: n.abandoned, Late: n.late, Panics: n.panics,
		},
		NextAttempt: stamp(v.at.backoff), SoftDeadline: stamp(v.at.soft), HardDeadline: stamp(v.at.hard),
	}
	if v.state.Public() == pb.State_STATE_STOPPING {
		st.Phase = v.state.String()
	}
	if load.messages > 0 {
		st.Oldest = durationpb.New(load.oldest)
	}
	out.Status = st
	return out
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func (c *consumer) lastReceipt() string {
	if id := c.receiptID.Load(); id != nil {
		return *id
	}
	return ""
}

// load is what a pool holds now.
type load struct {
	messages, running, slots, leaked, queued int
	bytes                                    int64
	oldest                                   time.Duration
}

func (p *pool) load() load {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := load{
		messages: p.inFlight, bytes: p.inFlightBytes, slots: max(0, p.cfg.concurrency-p.leaked),
		leaked: p.leaked, queued: p.unstarted,
	}
	for w := range p.workers {
		if w.cur.Load() != nil {
			l.running++
		}
	}
	if p.first != nil {
		l.oldest = time.Duration(p.clock.now() - p.first.taken)
	}
	return l
}

func (p *pool) counters() counters {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// inFlightMessages lists what is in flight, the oldest first.
func (p *pool) inFlightMessages() ([]*pb.InFlightMessage, []*brokers.Delivery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.now()
	running := map[*item]bool{}
	for w := range p.workers {
		if it := w.cur.Load(); it != nil {
			running[it] = true
		}
	}
	var out []*pb.InFlightMessage
	var ds []*brokers.Delivery
	for s := p.first; s != nil; s = s.next {
		for i := range s.items {
			it := &s.items[i]
			if it.state == gone {
				continue
			}
			out = append(out, p.describe(it, now, running[it]))
			ds = append(ds, it.d)
		}
	}
	return out, ds
}

func (p *pool) describe(it *item, now int64, running bool) *pb.InFlightMessage {
	m := &pb.InFlightMessage{
		Id: it.d.ID(), Age: durationpb.New(time.Duration(now - it.slab.taken)), Attempt: it.attempts,
		Running: running, Bytes: it.d.Size,
	}
	if running {
		m.Attempt++
	}
	if it.lane != nil && !it.lane.shared {
		m.Lane = it.lane.name
	}
	if it.lastErr != nil {
		m.LastError = it.lastErr.Error()
	}
	if it.state == waiting {
		m.NextAttempt = timestamppb.New(p.clock.at(it.due))
	}
	return m
}

// gaps counts what has not started and must be finished before a give-back.
func (p *pool) gaps() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for s := p.first; s != nil; s = s.next {
		for i := range s.items {
			if it := &s.items[i]; (it.state == queued || it.state == waiting) && p.gap(it) {
				n++
			}
		}
	}
	return n
}

// find is the item of a delivery; nil when it is gone.
func (p *pool) find(d *brokers.Delivery) *item {
	for s := p.first; s != nil; s = s.next {
		for i := range s.items {
			if it := &s.items[i]; it.d == d && it.state != gone {
				return it
			}
		}
	}
	return nil
}
