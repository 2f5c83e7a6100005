package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// Subscribe finds or makes the durable, as the spec says, and opens an inbox.
func (c *conn) Subscribe(ctx context.Context, from any, _ brokers.Observer) (brokers.Subscription, error) {
	src, ok := from.(*source)
	if !ok {
		return nil, &brokers.Error{Class: brokers.Refused, Op: "subscribe", Err: errors.New("the source is not of this driver")}
	}
	op := "consume from " + src.String() + " as " + src.durable
	session := c.link().session
	s, err := call(ctx, c, src.needs, func(ctx context.Context) (*subscription, error) {
		return c.begin(ctx, op, src, session)
	}, func(s *subscription) { _, _ = s.Close(context.Background(), nil) })
	if err != nil {
		return nil, src.classify(op, err)
	}
	return s, nil
}

// begin uses nats.go: see call.
func (c *conn) begin(ctx context.Context, op string, src *source, session uint64) (*subscription, error) {
	info, err := c.durable(ctx, src)
	if err != nil {
		return nil, err
	}
	s := &subscription{
		c:           c,
		src:         within(src, info.Config),
		op:          op,
		nextSubject: "$JS.API.CONSUMER.MSG.NEXT." + src.stream + "." + src.durable,
		origin:      &brokers.Origin{Name: src.stream},
		caps:        capabilities(info.Config),
		ackWait:     ackWait(info.Config),
		session:     session,
		wake:        make(chan struct{}, 1),
		broken:      make(chan struct{}),
	}
	if err := c.add(s); err != nil {
		return nil, err
	}
	in, err := s.openInbox()
	if err != nil {
		c.remove(s)
		return nil, err
	}
	s.mu.Lock()
	s.in = in
	s.timer = time.AfterFunc(s.beat(), s.tick)
	err = s.err // it may have broken already
	s.mu.Unlock()
	if err != nil {
		s.timer.Stop()
		c.discard(in)
		c.remove(s)
		return nil, err
	}
	return s, nil
}

// durable returns what the server knows about the durable, after making what is
// missing and may be made.
func (c *conn) durable(ctx context.Context, src *source) (*jetstream.ConsumerInfo, error) {
	found, err := c.js.Consumer(ctx, src.stream, src.durable)
	if errors.Is(err, jetstream.ErrStreamNotFound) && src.missing == supervisorv1.Missing_MISSING_CREATE {
		if err := c.createStream(ctx, src); err != nil {
			return nil, err
		}
		found, err = c.js.Consumer(ctx, src.stream, src.durable)
	}
	if errors.Is(err, jetstream.ErrConsumerNotFound) && src.creates() {
		found, err = c.js.CreateConsumer(ctx, src.stream, src.config())
	}
	if err != nil {
		return nil, err
	}
	info := found.CachedInfo()
	if info.Config.AckPolicy != jetstream.AckExplicitPolicy {
		return nil, &brokers.Error{Class: brokers.Refused, Op: "use durable " + src.durable,
			Err:    fmt.Errorf("its ack_policy is %s", info.Config.AckPolicy),
			Remedy: "delete the durable, or name another one; only explicit acks are safe here"}
	}
	if err := c.checkDrift(src, info.Config); err != nil {
		return nil, err
	}
	return info, c.checkLoop(ctx, src, info.Config)
}

func (s *source) creates() bool {
	return s.manage != supervisorv1.NatsManage_NATS_MANAGE_VERIFY && s.manage != supervisorv1.NatsManage_NATS_MANAGE_NONE
}

func (c *conn) createStream(ctx context.Context, src *source) error {
	_, err := c.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: src.stream, Subjects: src.filters, Storage: jetstream.FileStorage,
		Description: "made by supervisord for " + src.durable,
	})
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another was faster
		return nil
	}
	return err
}

// config is a durable that we make. max_deliver stays unlimited: a limit makes
// the server drop messages that were given back often enough.
func (s *source) config() jetstream.ConsumerConfig {
	cfg := jetstream.ConsumerConfig{
		Durable:       s.durable,
		Description:   "made by supervisord",
		DeliverPolicy: s.policy,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       s.ackWait,
		MaxDeliver:    -1,
		MaxAckPending: s.maxAckPending,
	}
	if len(s.filters) == 1 {
		cfg.FilterSubject = s.filters[0]
	} else {
		cfg.FilterSubjects = s.filters
	}
	return cfg
}

// checkDrift compares a durable with the spec. deliver_policy is not compared:
// where it once began does not matter to one that exists.
func (c *conn) checkDrift(src *source, have jetstream.ConsumerConfig) error {
	var drift []string
	differ := func(field string, want, is any) {
		drift = append(drift, fmt.Sprintf("%s is %v, the spec says %v", field, is, want))
	}
	if want, is := sorted(src.filters), sorted(filters(have)); !slices.Equal(want, is) {
		differ("filter_subjects", want, is)
	}
	if have.AckWait != src.ackWait {
		differ("ack_wait", src.ackWait, have.AckWait)
	}
	if have.MaxAckPending != src.maxAckPending {
		differ("max_ack_pending", src.maxAckPending, have.MaxAckPending)
	}
	switch {
	case len(drift) == 0 || src.manage == supervisorv1.NatsManage_NATS_MANAGE_NONE:
		return nil
	case src.manage == supervisorv1.NatsManage_NATS_MANAGE_VERIFY:
		return &brokers.Error{Class: brokers.Refused, Op: "verify durable " + src.durable,
			Err:    errors.New(strings.Join(drift, "; ")),
			Remedy: "change the durable or the spec, or set source.nats.manage: NONE"}
	}
	c.log.Warn("the durable differs from the spec, and is used as it is", "stream", src.stream, "durable", src.durable,
		"drift", strings.Join(drift, "; "), "remedy", "change one of them, or set source.nats.manage: NONE")
	return nil
}

func filters(cfg jetstream.ConsumerConfig) []string {
	if cfg.FilterSubject != "" {
		return []string{cfg.FilterSubject}
	}
	return cfg.FilterSubjects
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

// checkLoop refuses a dead-letter subject that the durable would bring back.
func (c *conn) checkLoop(ctx context.Context, src *source, cfg jetstream.ConsumerConfig) error {
	if src.deadLetter == "" {
		return nil
	}
	takes := filters(cfg)
	if len(takes) == 0 {
		st, err := c.js.Stream(ctx, src.stream)
		if err != nil {
			return err
		}
		takes = st.CachedInfo().Config.Subjects
	}
	if w := loops(src.deadLetter, takes); w != "" {
		return &brokers.Error{Class: brokers.Refused, Op: "use dead letter subject " + src.deadLetter,
			Err:    fmt.Errorf("it comes back through %q", w),
			Remedy: "use a subject of another stream, or set source.nats.filter_subjects"}
	}
	return nil
}

// within bounds the pulls by what the durable allows.
func within(src *source, cfg jetstream.ConsumerConfig) *source {
	w := *src
	if cfg.MaxRequestBatch > 0 {
		w.pullMessages = min(w.pullMessages, cfg.MaxRequestBatch)
	}
	if cfg.MaxRequestMaxBytes > 0 {
		w.pullBytes = min(w.pullBytes, int64(cfg.MaxRequestMaxBytes))
	}
	if cfg.MaxRequestExpires > 0 {
		w.pullExpiry = min(w.pullExpiry, cfg.MaxRequestExpires)
	}
	return &w
}

// ackWait is the shortest time after which the server delivers again.
func ackWait(cfg jetstream.ConsumerConfig) time.Duration {
	if len(cfg.BackOff) > 0 {
		return slices.Min(cfg.BackOff)
	}
	return cfg.AckWait
}

func capabilities(cfg jetstream.ConsumerConfig) brokers.Capabilities {
	return brokers.Capabilities{
		Pause: "this instance stops pulling; the durable keeps its place, and other instances on it go on",
		// The server counts each delivery, and takes the message away at a limit.
		GiveBackCounts: cfg.MaxDeliver > 0,
		MessagesHard:   true,
		BytesHard:      true,
		Lag:            true,
	}
}

// Lag counts what was never delivered, and what was and waits to come again:
// all that is unacknowledged and not with this subscription. Where instances
// share a durable, that includes what the others work on.
func (s *subscription) Lag(ctx context.Context) (brokers.Lag, error) {
	s.mu.Lock()
	err := s.err
	s.mu.Unlock()
	if err != nil {
		return brokers.Lag{}, err
	}
	found, err := call(ctx, s.c, s.src.needs, func(ctx context.Context) (jetstream.Consumer, error) {
		return s.c.js.Consumer(ctx, s.src.stream, s.src.durable)
	}, nil)
	if err != nil {
		return brokers.Lag{}, s.src.classify("ask for the lag of "+s.src.durable, err)
	}
	info := found.CachedInfo()
	s.mu.Lock()
	ours := s.ledger.held.n + s.ledger.out.n + s.ledger.sent.n
	s.mu.Unlock()
	waiting := int64(info.NumPending) + int64(max(0, info.NumAckPending-ours))
	return brokers.Lag{Messages: waiting, Approximate: true}, nil
}
