package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	natsdriver "github.com/seed-111f5b8e/supervisord/brokers/nats"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

const (
	natsBody = 100
	// natsPull is how many messages the raw loops and the driver ask for at once.
	natsPull = 500
	// natsKept bounds a stream; before each slice at least natsReady wait in it.
	natsKept  = 400_000
	natsReady = 100_000
)

// feed is a stream of one side's own that is filled up before each slice, on a
// connection of its own.
type feed struct {
	js     jetstream.JetStream
	stream jetstream.Stream
	name   string
}

func newFeed(ctx context.Context, js jetstream.JetStream, name string) (*feed, error) {
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{name + ".>"}, Storage: jetstream.MemoryStorage, MaxMsgs: natsKept,
		Discard: jetstream.DiscardOld,
	})
	if err != nil {
		return nil, fmt.Errorf("create stream %s: %w", name, err)
	}
	return &feed{js, s, name}, nil
}

// fill publishes until enough waits for a durable.
func (f *feed) fill(ctx context.Context, durable string) error {
	c, err := f.stream.Consumer(ctx, durable)
	if err != nil {
		return fmt.Errorf("durable %s of stream %s: %w", durable, f.name, err)
	}
	body := make([]byte, natsBody)
	for n := c.CachedInfo().NumPending; n < natsReady; n++ {
		if _, err := f.js.PublishAsync(f.name+".x", body, jetstream.WithStallWait(time.Minute)); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	select {
	case <-f.js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// filled lets a side start only with enough to do.
func (f *feed) filled(s side, durable string) side {
	start := s.start
	s.start = func(ctx context.Context) error {
		if err := f.fill(ctx, durable); err != nil {
			return err
		}
		return start(ctx)
	}
	return s
}

// pull is one raw way to consume: it acks what comes until the returned
// function is called, which returns when all is acked.
type pull struct {
	name  string
	begin func(c jetstream.Consumer, n *atomic.Int64) (end func() error, err error)
}

func pulls() []pull {
	return []pull{
		{"raw Consume", consumeLoop}, {"raw Messages", messagesLoop}, {"raw Fetch", fetchLoop},
	}
}

func consumeLoop(c jetstream.Consumer, n *atomic.Int64) (func() error, error) {
	failed := make(chan error, 1)
	cc, err := c.Consume(func(m jetstream.Msg) {
		if err := m.Ack(); err != nil {
			select {
			case failed <- err:
			default:
			}
		}
		n.Add(1)
	}, jetstream.PullMaxMessages(natsPull))
	if err != nil {
		return nil, err
	}
	return func() error {
		cc.Drain()
		<-cc.Closed()
		select {
		case err := <-failed:
			return err
		default:
			return nil
		}
	}, nil
}

func messagesLoop(c jetstream.Consumer, n *atomic.Int64) (func() error, error) {
	it, err := c.Messages(jetstream.PullMaxMessages(natsPull))
	if err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() {
		for {
			m, err := it.Next()
			if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
				done <- nil
				return
			}
			if err == nil {
				err = m.Ack()
			}
			if err != nil {
				done <- err
				return
			}
			n.Add(1)
		}
	}()
	return func() error { it.Drain(); return <-done }, nil
}

func fetchLoop(c jetstream.Consumer, n *atomic.Int64) (func() error, error) {
	var end atomic.Bool
	done := make(chan error, 1)
	go func() {
		for !end.Load() {
			batch, err := c.Fetch(natsPull)
			if err != nil {
				done <- err
				return
			}
			for m := range batch.Messages() {
				if err := m.Ack(); err != nil {
					done <- err
					return
				}
				n.Add(1)
			}
			if err := batch.Error(); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	return func() error { end.Store(true); return <-done }, nil
}

// jetStreamBench is a server and what publishes to it.
type jetStreamBench struct {
	server *natsServer
	nc     *nats.Conn
	js     jetstream.JetStream
	made   int
	ends   ends
}

func newJetStreamBench(ctx context.Context) (*jetStreamBench, error) {
	server, err := startNATS(ctx)
	if err != nil {
		return nil, err
	}
	b := &jetStreamBench{server: server}
	b.ends.add(func(context.Context) error { return server.stop() })
	b.nc, b.js, err = b.dial()
	if err != nil {
		return nil, errors.Join(err, b.ends.close(ctx))
	}
	return b, nil
}

func (b *jetStreamBench) dial() (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect(b.server.url)
	if err != nil {
		return nil, nil, fmt.Errorf("connect: %w", err)
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(2000))
	b.ends.add(func(context.Context) error { nc.Close(); return nil })
	return nc, js, err
}

func (b *jetStreamBench) feed(ctx context.Context) (*feed, error) {
	b.made++
	return newFeed(ctx, b.js, fmt.Sprintf("BENCH%d", b.made))
}

// raw makes a side of a raw loop with a connection and a stream of its own.
func (b *jetStreamBench) raw(ctx context.Context, p pull) (side, error) {
	f, err := b.feed(ctx)
	if err != nil {
		return side{}, err
	}
	_, js, err := b.dial()
	if err != nil {
		return side{}, err
	}
	c, err := js.CreateConsumer(ctx, f.name, jetstream.ConsumerConfig{
		Durable: "raw", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: mostInFlight,
	})
	if err != nil {
		return side{}, fmt.Errorf("create a durable: %w", err)
	}
	var n atomic.Int64
	var end func() error
	return f.filled(side{
		name: p.name,
		start: func(context.Context) (err error) {
			end, err = p.begin(c, &n)
			return err
		},
		stop:  func(context.Context) error { return end() },
		count: func() (int64, error) { return n.Load(), nil },
	}, "raw"), nil
}

// supervised makes a side of a consumer with a no-op handler.
func (b *jetStreamBench) supervised(ctx context.Context) (side, error) {
	f, err := b.feed(ctx)
	if err != nil {
		return side{}, err
	}
	name := strings.ToLower(f.name)
	spec := newSpec(name, natsSource(f.name, name), bounded)
	h, err := supervise(ctx, natsdriver.Driver{}, b.server.connection(), spec, noop())
	if err != nil {
		return side{}, err
	}
	b.ends.add(h.close)
	return f.filled(h.side(name), name), nil
}

func natsSource(stream, durable string) *pb.Source {
	return &pb.Source{Broker: &pb.Source_Nats{Nats: &pb.NatsSource{
		Stream: stream, Durable: durable, PullMaxMessages: new(int32(natsPull)),
	}}}
}

// fastest compares the raw loops and returns the fastest.
func (b *jetStreamBench) fastest(ctx context.Context, p pace) (pull, string, error) {
	var sides []side
	for _, way := range pulls() {
		s, err := b.raw(ctx, way)
		if err != nil {
			return pull{}, "", err
		}
		sides = append(sides, s)
	}
	best, told, err := fastest(ctx, p, sides...)
	return pulls()[best], told, err
}

const jetStreamGoal = 0.9

// runJetStream compares a supervised consumer with the fastest raw loop.
func runJetStream(ctx context.Context, fs *flag.FlagSet, args []string, w io.Writer) (err error) {
	p := settingsFlags(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	r := &report{
		title: "JetStream, no-op handler, 100 B messages, memory stream, server in a process of its own",
		lines: machine("github.com/nats-io/nats.go", "github.com/nats-io/nats-server/v2"),
		head:  []string{"", "msgs/s", "client CPU us/msg", "allocs/msg", "bytes/msg", "ratio (p10-p90)"},
	}
	b, err := newJetStreamBench(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.ends.close(ctx)) }()
	best, told, err := b.fastest(ctx, p.pace)
	if err != nil {
		return err
	}
	raw, err1 := b.raw(ctx, best)
	again, err2 := b.raw(ctx, best)
	ours, err3 := b.supervised(ctx)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	twice, err := compare(ctx, p.pace, raw, again)
	if err != nil {
		return err
	}
	got, err := compare(ctx, p.pace, raw, ours)
	if err == nil {
		err = p.profiled(ctx, ours)
	}
	if err != nil {
		return err
	}
	r.side(best.name, got.a, "1")
	r.side("supervised", got.b, ratio(got))
	r.notef("Raw loops against the first of them: %s. %d repetitions of %s, pulls of %d, at most %d unacked. Raw against raw: %s%s.",
		told, p.reps, p.slice, natsPull, mostInFlight, ratio(twice), void(twice))
	r.notef("Goal: a ratio of at least %.1f: %s.", jetStreamGoal, verdict(got.ratio >= jetStreamGoal))
	return r.publish(w, p.results)
}

func (r *report) side(name string, f figures, ratio string) {
	r.row(name, count(median(f.perSecond)), fmt.Sprintf("%.2f", median(f.cpu)/1e3), fmt.Sprintf("%.2f", median(f.allocs)),
		fmt.Sprintf("%.0f", median(f.bytes)), ratio)
}
