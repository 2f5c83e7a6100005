package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/seed-111f5b8e/supervisord/brokers/kafka"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// Both sides have these.
const (
	kafkaPoll           = 500
	kafkaFetchBytes     = 16 << 20
	kafkaPartitionBytes = 1 << 20
	kafkaFetchWait      = 500 * time.Millisecond
	kafkaCommitInterval = time.Second
	// kafkaCommitEvery is more than a second brings: the interval decides, as it
	// does in the raw loop.
	kafkaCommitEvery = 1 << 30
	kafkaLanes       = 8

	kafkaGoal     = 0.95
	kafkaLaneGoal = 0.8
)

// kafkaLoop is a raw consumer: it polls, handles inline, and marks the last record
// of each partition, which the client commits once a second.
type kafkaLoop struct {
	client *kgo.Client
	handle func(*kgo.Record)
	n      atomic.Int64
	cancel context.CancelCauseFunc
	done   chan error
}

func newKafkaLoop(broker, group string) (*kafkaLoop, error) {
	c, err := kgo.NewClient(
		kgo.SeedBrokers(broker), kgo.ConsumerGroup(group), kgo.ConsumeTopics(endlessQueue),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.BlockRebalanceOnPoll(), kgo.AutoCommitMarks(), kgo.AutoCommitInterval(kafkaCommitInterval),
		kgo.FetchMaxBytes(kafkaFetchBytes), kgo.FetchMaxPartitionBytes(kafkaPartitionBytes), kgo.FetchMaxWait(kafkaFetchWait),
		kgo.DisableClientMetrics(),
	)
	return &kafkaLoop{client: c, handle: handleRecord}, err
}

func (l *kafkaLoop) start(ctx context.Context) error {
	ctx, l.cancel = context.WithCancelCause(ctx)
	l.done = make(chan error, 1)
	go func() { l.done <- l.work(ctx) }()
	return nil
}

func (l *kafkaLoop) work(ctx context.Context) error {
	var last []*kgo.Record
	for ended := false; !ended; {
		fetches := l.client.PollRecords(ctx, kafkaPoll)
		ended = ctx.Err() != nil
		if err := fetches.Err(); err != nil && !ended {
			return err
		}
		last = last[:0]
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			for _, r := range p.Records {
				l.handle(r)
			}
			if n := len(p.Records); n > 0 {
				last = append(last, p.Records[n-1])
			}
		})
		l.client.MarkCommitRecords(last...)
		l.client.AllowRebalance()
		l.n.Add(int64(fetches.NumRecords()))
	}
	return nil
}

// handleRecord is a handler that has nothing to do.
func handleRecord(*kgo.Record) {}

func (l *kafkaLoop) stop(ctx context.Context) error {
	l.cancel(errSeen)
	return errors.Join(<-l.done, l.client.CommitMarkedOffsets(ctx))
}

// kafkaCase is one way to supervise.
type kafkaCase struct {
	name        string
	ordering    pb.Ordering
	concurrency int32
	goal        float64
}

func kafkaCases() []kafkaCase {
	var out []kafkaCase
	for _, c := range []int32{1, 16} {
		for _, o := range []struct {
			name     string
			ordering pb.Ordering
			goal     float64
		}{
			{"NONE", pb.Ordering_ORDERING_NONE, kafkaGoal},
			{"PARTITION", pb.Ordering_ORDERING_PARTITION, kafkaGoal},
			{"KEY, 8 lanes", pb.Ordering_ORDERING_KEY, kafkaLaneGoal},
		} {
			out = append(out, kafkaCase{fmt.Sprintf("%s, concurrency %d", o.name, c), o.ordering, c, o.goal})
		}
	}
	return out
}

// spec is the consumer of a case.
func (c kafkaCase) spec(group string) *pb.ConsumerSpec {
	return newSpec("kafka", kafkaSource(group), bounded, slots(c.concurrency), func(s *pb.ConsumerSpec) {
		s.Ordering = c.ordering
		if c.ordering == pb.Ordering_ORDERING_KEY {
			s.Lanes = new(int32(kafkaLanes))
		}
	})
}

func kafkaSource(group string) *pb.Source {
	return &pb.Source{Broker: &pb.Source_Kafka{Kafka: &pb.KafkaSource{
		Topics: []string{endlessQueue}, Group: group,
		FetchMaxBytes: new(int64(kafkaFetchBytes)), PartitionMaxBytes: new(int64(kafkaPartitionBytes)),
		FetchMaxWait: durationpb.New(kafkaFetchWait), CommitInterval: durationpb.New(kafkaCommitInterval),
		CommitEvery: new(int32(kafkaCommitEvery)),
	}}}
}

func kafkaConnection(broker string) *pb.Connection {
	return &pb.Connection{Name: connection, Broker: &pb.Connection_Kafka{Kafka: &pb.KafkaConnection{Brokers: []string{broker}}}}
}

// kafkaBench is a broker and the sides on it, each a group of its own.
type kafkaBench struct {
	broker string
	// fill, if not nil, is called before each slice with what its side has taken.
	fill func(ctx context.Context, taken int64) error
	made int
	ends ends
}

func (b *kafkaBench) group() string {
	b.made++
	return fmt.Sprintf("bench-%d", b.made)
}

// side puts the filling before each start.
func (b *kafkaBench) side(s side) side {
	if b.fill == nil {
		return s
	}
	start := s.start
	s.start = func(ctx context.Context) error {
		taken, err := s.count()
		if err == nil {
			err = b.fill(ctx, taken)
		}
		if err != nil {
			return fmt.Errorf("fill the topic: %w", err)
		}
		return start(ctx)
	}
	return s
}

func (b *kafkaBench) raw(name string) (side, error) {
	l, err := newKafkaLoop(b.broker, b.group())
	if err != nil {
		return side{}, err
	}
	b.ends.add(func(context.Context) error { l.client.CloseAllowingRebalance(); return nil })
	return b.side(side{
		name: name, start: l.start, stop: l.stop,
		count: func() (int64, error) { return l.n.Load(), nil },
	}), nil
}

func (b *kafkaBench) supervised(ctx context.Context, c kafkaCase) (side, error) {
	spec := c.spec(b.group())
	h, err := supervise(ctx, kafka.Driver{}, kafkaConnection(b.broker), spec, noop())
	if err != nil {
		return side{}, fmt.Errorf("%s: %w", c.name, err)
	}
	b.ends.add(h.close)
	s := h.side(spec.GetName())
	s.name = c.name
	return b.side(s), nil
}

// measure runs all sides and puts them into r.
func (b *kafkaBench) measure(ctx context.Context, p *settings, r *report) error {
	raw, err1 := b.raw("raw")
	again, err2 := b.raw("raw again")
	sides, errs := []side{raw, again}, []error{err1, err2}
	var cases []kafkaCase
	for _, c := range kafkaCases() {
		if !p.wants(c.name) {
			continue
		}
		s, err := b.supervised(ctx, c)
		sides, errs, cases = append(sides, s), append(errs, err), append(cases, c)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	f, err := rounds(ctx, p.pace, sides...)
	if err != nil {
		return err
	}
	for i, s := range sides {
		goal := ""
		if i >= 2 {
			want := cases[i-2].goal
			goal = fmt.Sprintf("%.2f: %s", want, verdict(relate(f[0], f[i]).ratio >= want))
		}
		r.row(s.name, count(median(f[i].perSecond)), fmt.Sprintf("%.3f", median(f[i].cpu)/1e3), fmt.Sprintf("%.3f", median(f[i].allocs)),
			fmt.Sprintf("%.0f", median(f[i].bytes)), ratio(relate(f[0], f[i])), goal)
	}
	twice := relate(f[0], f[1])
	r.notef("Raw polls %d records at a time, calls a function for each, and commits each partition's mark once a second; the supervised "+
		"consumers commit as often, have at most %d in flight, and fetch %d MiB, %d MiB of a partition, as raw does. %d repetitions of %s. Raw against raw: %s%s.",
		kafkaPoll, mostInFlight, kafkaFetchBytes>>20, kafkaPartitionBytes>>20, p.reps, p.slice, ratio(twice), void(twice))
	return p.profiled(ctx, sides[len(sides)-1])
}

func kafkaHead() []string {
	return []string{"", "msgs/s", "client CPU us/msg", "allocs/msg", "bytes/msg", "ratio (p10-p90)", "goal"}
}

const (
	kgoModule   = "github.com/twmb/franz-go"
	kfakeModule = "github.com/twmb/franz-go/pkg/kfake"
)

// runKafka compares consumers on an endless topic of a fake broker.
func runKafka(ctx context.Context, fs *flag.FlagSet, args []string, w io.Writer) (err error) {
	p := settingsFlags(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	r := &report{
		title: fmt.Sprintf("Kafka, no-op handler, %d B values, %d partitions, kfake in a process of its own", kafkaBody, kafkaPartitions),
		lines: machine(kgoModule, kfakeModule), head: kafkaHead(),
	}
	fake, err := startPart(ctx, "kafka-server")
	if err != nil {
		return err
	}
	b := &kafkaBench{broker: fake.line}
	b.ends.add(func(context.Context) error { return fake.stop() })
	defer func() { err = errors.Join(err, b.ends.close(ctx)) }()
	if err := b.measure(ctx, p, r); err != nil {
		return err
	}
	return r.publish(w, p.results)
}
