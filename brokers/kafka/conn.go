package kafka

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

const (
	// probeEvery is how often a healthy connection is asked for the topics of its
	// subscriptions; one that is down is asked more often.
	probeEvery = 5 * time.Second
	// probeLimit is how long an answer may take.
	probeLimit = 3 * time.Second
	// leastPause lies between any two questions.
	leastPause = 100 * time.Millisecond
	// probeAgain is the longest pause between two questions to one that is down.
	probeAgain = 2 * time.Second
	// backgroundLimit bounds what goes on after a caller's context has ended.
	backgroundLimit = 30 * time.Second
)

// conn is what the consumers of one cluster share: a light client that asks and
// signs in, and one that publishes. Each subscription has a client of its own,
// for a client is one member of one group.
type conn struct {
	name   string
	dialer *dialer
	probe  time.Duration
	log    *slog.Logger
	client *kgo.Client
	adm    *kadm.Client
	pub    publisher
	// hurry asks for a probe now; room for one.
	hurry chan struct{}
	lost  chan struct{} // never closed: the clients reconnect by themselves
	// life ends the probing.
	life context.Context //nolint:containedctx // the lifetime of its own goroutine
	end  context.CancelCauseFunc
	// work counts goroutines that outlive the call that started them.
	work sync.WaitGroup

	mu      sync.Mutex
	err     error     // why the cluster does not answer; nil: it does
	refusal error     // of the last attempt to dial a broker; nil: it succeeded
	since   time.Time // when that began
	subs    map[*subscription]struct{}
	closing bool
}

var _ brokers.Conn = (*conn)(nil)

func newConn(d Driver, name string, cfg *supervisorv1.KafkaConnection, env brokers.Env) (*conn, error) {
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	dial := d.dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	c := &conn{
		name: name, dialer: &dialer{cfg: cfg, env: env, dial: dial}, probe: d.probe,
		log:   env.Log,
		hurry: make(chan struct{}, 1), lost: make(chan struct{}),
		subs: map[*subscription]struct{}{},
	}
	c.life, c.end = context.WithCancelCause(context.Background())
	client, err := kgo.NewClient(append(c.dialer.options(c.log), kgo.WithHooks(&hooks{c: c}))...)
	if err != nil {
		return nil, err
	}
	c.client, c.adm = client, kadm.NewClient(client)
	return c, nil
}

// ping asks for nothing, which needs a broker and its consent.
func (c *conn) ping(ctx context.Context) error {
	_, err := c.ask(ctx, nil, false)
	return err
}

func (c *conn) start() { c.work.Go(c.watch) }

// abandon ends what never became a connection; the client's end may take a while.
func (c *conn) abandon() {
	c.end(errConnDone)
	go c.client.Close()
}

// watch asks the cluster for all topics of all subscriptions, again and again:
// what is deleted, created anew, forbidden or silent is seen within one question.
func (c *conn) watch() {
	timer := time.NewTimer(c.probe)
	defer timer.Stop()
	wait := c.probe
	for {
		select {
		case <-timer.C:
		case <-c.hurry:
		case <-c.life.Done():
			return
		}
		if c.look4all() {
			wait = c.probe
		} else {
			wait = min(max(wait/2, leastPause), probeAgain)
		}
		if pause(c.life, leastPause) != nil {
			return
		}
		timer.Reset(wait)
	}
}

// look4all is one probe; false: the next one is to come soon.
func (c *conn) look4all() bool {
	names, all, subs := c.wanted()
	ctx, cancel := context.WithTimeoutCause(c.life, probeLimit, errSilent)
	defer cancel()
	topics, err := c.ask(ctx, names, all)
	if c.life.Err() != nil {
		return false
	}
	c.heard(err)
	sure := err == nil
	for _, s := range subs {
		if err == nil {
			sure = s.suspect(s.check(topics)) && sure
		}
	}
	return sure
}

// wanted are the topics to ask for.
func (c *conn) wanted() (names []string, all bool, subs []*subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	set := map[string]struct{}{}
	for s := range c.subs {
		subs = append(subs, s)
		all = all || s.src.pattern != nil
		for _, t := range s.src.topics {
			set[t] = struct{}{}
		}
	}
	return slices.Collect(maps.Keys(set)), all, subs
}

// heard books whether the cluster answers, and tells subscriptions. One whose
// group must have given its partitions to others by now has ended.
func (c *conn) heard(err error) {
	c.mu.Lock()
	was := c.err
	switch {
	case err == nil:
		c.err = nil
	case c.err == nil:
		c.since = time.Now()
		fallthrough
	default:
		if errors.Is(err, errSilent) && c.refusal != nil {
			err = c.refusal // it says more
		}
		c.err = classify("reach the brokers of "+c.name, err)
	}
	now, since, subs := c.err, c.since, slices.Collect(maps.Keys(c.subs))
	c.mu.Unlock()
	switch {
	case was == nil && now != nil:
		c.log.Warn("no broker answers", "error", now)
	case was != nil && now == nil:
		c.log.Info("the brokers answer again")
	}
	for _, s := range subs {
		switch {
		case now != nil && brokers.ClassOf(now) == brokers.Refused:
			s.fail(now)
		case now != nil && time.Since(since) > s.src.session:
			s.fail(&brokers.Error{
				Class: brokers.Unreachable, Op: s.op, Err: errors.Unwrap(now),
				Remedy: "no broker answered for longer than session_timeout, so that the group has given the partitions to others; it is tried until one answers",
			})
		case now != nil:
			s.observer.Condition(supervisorv1.ConditionType_CONDITION_TYPE_CONNECTED, false, now.Error())
		case was != nil:
			s.observer.Condition(supervisorv1.ConditionType_CONDITION_TYPE_CONNECTED, true, "")
		}
	}
}

// ask4 has the cluster asked soon.
func (c *conn) ask4() { poke(c.hurry) }

// Err says why the cluster does not answer.
func (c *conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Lost is never closed: the clients reconnect by themselves.
func (c *conn) Lost() <-chan struct{} { return c.lost }

// add registers s.
func (c *conn) add(s *subscription) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return fenced(s.op, errConnDone)
	}
	c.subs[s] = struct{}{}
	return nil
}

func (c *conn) remove(s *subscription) {
	c.mu.Lock()
	delete(c.subs, s)
	c.mu.Unlock()
}

// Close waits for what closed subscriptions still have to say, then ends the
// clients.
func (c *conn) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return nil
	}
	c.closing = true
	c.mu.Unlock()
	c.end(errConnDone)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.work.Wait()
		c.pub.close()
		c.client.Close()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return &brokers.Error{
			Class: brokers.Unreachable, Op: "close " + c.name, Err: context.Cause(ctx), Remedy: "it goes on in the background",
		}
	}
}

// hooks hear what a client meets between calls.
type hooks struct {
	c *conn
	s *subscription // nil: the connection's own client
}

var (
	_ kgo.HookBrokerConnect    = (*hooks)(nil)
	_ kgo.HookBrokerDisconnect = (*hooks)(nil)
	_ kgo.HookGroupManageError = (*hooks)(nil)
)

// OnBrokerConnect has the cluster asked when a broker could not be reached, and
// keeps the reason.
func (h *hooks) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	h.c.mu.Lock()
	h.c.refusal = err
	h.c.mu.Unlock()
	if err != nil {
		h.c.ask4()
	}
}

// OnBrokerDisconnect has the cluster asked whether more is wrong.
func (h *hooks) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn) {
	if h.s != nil {
		h.c.ask4()
	}
}

// OnGroupManageError hears why a member's session ended.
func (h *hooks) OnGroupManageError(err error) {
	if h.s != nil {
		h.s.groupFailed(err)
	}
}

// pause waits.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return silence(ctx)
	}
}

// poke puts a token into a channel with room for one.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
