package kafka

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

const (
	// joinPatience is how long Subscribe waits for the group's answer. A group may
	// take much longer, when another member has to finish its work first; the
	// subscription then waits on, and says so.
	joinPatience = 3 * time.Second
	// suspectFor is how long a topic must look wrong: brokers do not all learn of
	// a change at once.
	suspectFor = time.Second
	// mostPolled bounds one batch.
	mostPolled = 2000
)

// subscription is one member of a group for one epoch.
type subscription struct {
	c        *conn
	src      *source
	op       string
	observer brokers.Observer
	client   *kgo.Client
	// several: the source had more than one partition.
	several bool

	// started is closed when client is set: the client's own goroutines are
	// faster than that.
	started chan struct{}
	// life ends with the epoch, and with it whatever still waits for the caller.
	life context.Context //nolint:containedctx // the lifetime of its own goroutines
	end  context.CancelCauseFunc
	// wake has room for one: Receive should look again. steer likewise: the poller.
	wake, steer chan struct{}
	// joined is closed when the group answered for the first time.
	joined chan struct{}
	// polled is closed when the poller has ended.
	polled chan struct{}
	// dirty has room for one: the committer should look. turn holds one token for
	// whoever commits.
	dirty, turn chan struct{}

	mu       sync.Mutex
	err      error // why it is over
	closed   bool
	held     bool
	want     int // of the Receive that waits
	buffer   []brokers.Delivery
	trackers map[string]map[int32]*tracker
	// topics are those it was made on.
	topics    map[string]topicInfo
	suspicion time.Time
	// repause: the client does not know yet of what a hold is to pause.
	repause bool
	// stopPoll interrupts the poll under way.
	stopPoll context.CancelCauseFunc
	// fresh counts acks since the last commit began.
	fresh int
	// What the next report tells beside what the trackers know.
	unconfirmed, ownershipLost, willRepeat int
}

var _ brokers.Subscription = (*subscription)(nil)

// Subscribe joins the group. It waits a moment for the group's answer, so that
// what is refused is told here.
func (c *conn) Subscribe(ctx context.Context, src any, o brokers.Observer) (brokers.Subscription, error) {
	k, ok := src.(*source)
	if !ok {
		return nil, &brokers.Error{Class: brokers.Refused, Op: "subscribe", Err: errForeign}
	}
	topics, err := c.look(ctx, k)
	if err != nil {
		return nil, err
	}
	s := &subscription{
		c: c, src: k, op: "consume " + k.String() + " as group " + k.group, observer: o,
		started: make(chan struct{}), wake: make(chan struct{}, 1), steer: make(chan struct{}, 1), joined: make(chan struct{}), polled: make(chan struct{}),
		dirty: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		trackers: map[string]map[int32]*tracker{}, topics: topics,
	}
	partitions := 0
	for _, t := range topics {
		partitions += t.partitions
	}
	s.several = partitions > 1
	s.life, s.end = context.WithCancelCause(context.Background())
	if err := s.start(); err != nil {
		s.end(errClosed)
		return nil, classify(s.op, err)
	}
	if err := s.await(ctx); err != nil {
		c.work.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), backgroundLimit)
			defer cancel()
			_, _ = s.Close(ctx, nil) // the caller is told why there is no subscription
		})
		return nil, err
	}
	return s, nil
}

// start makes the client, which joins by itself.
func (s *subscription) start() error {
	s.observer.Condition(supervisorv1.ConditionType_CONDITION_TYPE_ASSIGNED, false, s.away())
	if err := s.c.add(s); err != nil {
		return err
	}
	client, err := kgo.NewClient(slices.Concat(s.c.dialer.options(s.c.log), s.options())...)
	if err != nil {
		s.c.remove(s)
		return err
	}
	s.client = client
	close(s.started)
	s.c.work.Go(s.poll)
	s.c.work.Go(s.commits)
	return nil
}

// options are what a member's client has beyond the connection's.
func (s *subscription) options() []kgo.Opt {
	src := s.src
	opts := []kgo.Opt{
		kgo.WithHooks(&hooks{c: s.c, s: s}),
		kgo.WithPools(&recordPool{}),
		kgo.ConsumerGroup(src.group),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(s.assigned),
		kgo.OnPartitionsRevoked(s.revoked),
		kgo.OnPartitionsLost(s.lost),
		kgo.OnOffsetsFetched(s.fetched),
		kgo.AdjustFetchOffsetsFn(s.adjust),
		// Where to begin is decided in adjust; whether to go on after a loss is
		// decided here, never by the client.
		kgo.ConsumeStartOffset(startOffset(src.start)),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.SessionTimeout(src.session),
		kgo.HeartbeatInterval(src.heartbeat),
		kgo.RebalanceTimeout(src.rebalance),
		kgo.FetchMaxWait(src.fetchWait),
		kgo.FetchMaxBytes(src.fetchBytes),
		kgo.FetchMaxPartitionBytes(src.partitionBytes),
	}
	if src.pattern != nil {
		opts = append(opts, kgo.ConsumeRegex(), kgo.ConsumeTopics(src.pattern.String()))
	} else {
		opts = append(opts, kgo.ConsumeTopics(src.topics...))
	}
	if src.consumer {
		opts = append(opts, kgo.ServerSideBalancer())
	} else {
		opts = append(opts, kgo.Balancers(balancer(src.balancer)))
	}
	if src.instance != "" {
		opts = append(opts, kgo.InstanceID(src.instance))
	}
	if src.committedOnly {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if src.rack != "" {
		opts = append(opts, kgo.Rack(src.rack))
	}
	return opts
}

func startOffset(p supervisorv1.KafkaPosition) kgo.Offset {
	if p == supervisorv1.KafkaPosition_KAFKA_POSITION_LATEST {
		return kgo.NewOffset().AtEnd()
	}
	return kgo.NewOffset().AtStart()
}

func balancer(b supervisorv1.KafkaBalancer) kgo.GroupBalancer {
	switch b {
	case supervisorv1.KafkaBalancer_KAFKA_BALANCER_STICKY:
		return kgo.StickyBalancer()
	case supervisorv1.KafkaBalancer_KAFKA_BALANCER_RANGE:
		return kgo.RangeBalancer()
	case supervisorv1.KafkaBalancer_KAFKA_BALANCER_ROUND_ROBIN:
		return kgo.RoundRobinBalancer()
	default:
		return kgo.CooperativeStickyBalancer()
	}
}

// await waits for the group's first answer, as long as that is no surprise.
func (s *subscription) await(ctx context.Context) error {
	t := time.NewTimer(joinPatience)
	defer t.Stop()
	select {
	case <-s.joined:
	case <-t.C:
	case <-s.life.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.err
	case <-ctx.Done():
		return classify(s.op, within(ctx, ctx.Err()))
	}
	return nil
}

// fail ends the epoch; the first reason stands.
func (s *subscription) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.err = err
	s.buffer = nil
	s.end(err)
	poke(s.wake)
	s.interrupt()
}

// suspect ends the epoch when something looked wrong for long enough; nil: it
// looks right. False: it is not sure.
func (s *subscription) suspect(err error) bool {
	s.mu.Lock()
	if err == nil || s.err != nil {
		s.suspicion = time.Time{}
		s.mu.Unlock()
		return true
	}
	if s.suspicion.IsZero() {
		s.suspicion = time.Now()
	}
	sure := time.Since(s.suspicion) >= suspectFor
	s.mu.Unlock()
	if sure {
		s.fail(err)
	}
	return sure
}

// Receive returns what the poller brings.
func (s *subscription) Receive(ctx context.Context, credit brokers.Credit) ([]brokers.Delivery, error) {
	defer s.quit()
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		batch, err := s.take(credit)
		if err != nil || len(batch) > 0 {
			return batch, err
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
		}
	}
}

// quit: no Receive waits any more. A poll under way goes on; what it brings is
// kept for the next.
func (s *subscription) quit() {
	s.mu.Lock()
	s.want = 0
	s.mu.Unlock()
}

// take moves deliveries to the caller, or asks the poller for some.
func (s *subscription) take(credit brokers.Credit) ([]brokers.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	n, bytes := 0, int64(0)
	for n < len(s.buffer) && n < credit.Messages {
		if bytes += s.buffer[n].Size; bytes > credit.Bytes && n > 0 {
			break
		}
		n++
	}
	if n == 0 {
		if s.want == 0 {
			poke(s.steer)
		}
		s.want = min(credit.Messages, mostPolled)
		return nil, nil
	}
	batch := s.buffer[:n:n]
	if s.buffer = s.buffer[n:]; len(s.buffer) == 0 {
		s.buffer = nil
	}
	return batch, nil
}

// Settle books outcomes; the committer brings them to the broker.
func (s *subscription) Settle(_ context.Context, list []brokers.Settlement) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return fenced(s.op, s.err)
	}
	foreign := false
	var resumed, rewinds []*tracker
	for i := range list {
		d := list[i].Delivery
		t, ok := d.Ref.(*tracker)
		switch {
		case !ok || t.sub != s:
			foreign = true
		case t.retired:
			s.ownershipLost++
		case list[i].Outcome == brokers.Ack:
			if t.ack(d.Position) {
				s.fresh++
			}
			if t.paused && t.places.n <= s.src.maxGap/2 {
				t.paused = false
				resumed = append(resumed, t)
			}
		default:
			if t.free(d.Position) {
				rewinds = append(rewinds, t)
			}
		}
	}
	s.commitSoon()
	if len(resumed) > 0 {
		s.client.ResumeFetchPartitions(byTopic(resumed))
	}
	if len(rewinds) > 0 {
		s.interrupt()
	}
	if foreign {
		return fenced(s.op, errForeign)
	}
	return nil
}

// each yields the trackers in the order of topics and partitions; mu is held.
func (s *subscription) each() []*tracker {
	var out []*tracker
	for _, topic := range slices.Sorted(maps.Keys(s.trackers)) {
		parts := s.trackers[topic]
		for _, p := range slices.Sorted(maps.Keys(parts)) {
			out = append(out, parts[p])
		}
	}
	return out
}

func byTopic(ts []*tracker) map[string][]int32 {
	out := map[string][]int32{}
	for _, t := range ts {
		out[t.topic] = append(out[t.topic], t.partition)
	}
	return out
}

// mostNamed bounds how many partitions a sentence names.
const mostNamed = 12

// names lists partitions for people.
func names(ts []*tracker) string {
	var b strings.Builder
	for i, t := range ts {
		if i == mostNamed {
			b.WriteString(" and more")
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(t.origin.Name)
	}
	return b.String()
}

// Capabilities tells what it is for its partitions of this moment.
func (s *subscription) Capabilities() brokers.Capabilities {
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := "stops taking and stays a member of the group " + s.src.group +
		", so that no other member gets its partitions: what comes there waits until resume"
	if ts := s.each(); len(ts) > 0 {
		pause += " (" + names(ts) + ")"
	}
	return brokers.Capabilities{
		Pause: pause, Membership: true, Positions: true, Partitions: s.several, MessagesHard: true, Lag: true,
	}
}
