package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

const (
	// A batch of the endless source has at most 128 messages.
	coreBody      = 100
	corePartition = 8
	coreLanes     = 8
	endlessQueue  = "endless"
)

// coreCase is one way to run the core.
type coreCase struct {
	name        string
	ordering    pb.Ordering
	concurrency int32
	partitions  int
	handler     supervisor.Handler
	// done: the handler asks for Done, which costs a channel per message.
	done bool
}

func coreCases() []coreCase {
	var out []coreCase
	for _, c := range []int32{1, 16} {
		for _, o := range []struct {
			name       string
			ordering   pb.Ordering
			partitions int
		}{
			{"NONE", pb.Ordering_ORDERING_NONE, 0},
			{"KEY, 8 lanes", pb.Ordering_ORDERING_KEY, 0},
			{"PARTITION, 8", pb.Ordering_ORDERING_PARTITION, corePartition},
		} {
			out = append(out, coreCase{
				name:     fmt.Sprintf("%s, concurrency %d", o.name, c),
				ordering: o.ordering, concurrency: c, partitions: o.partitions, handler: noop(),
			})
		}
	}
	return append(out,
		coreCase{
			name:     "NONE, concurrency 1, handler reads Deadline",
			ordering: pb.Ordering_ORDERING_NONE, concurrency: 1, handler: readsDeadline(),
		},
		coreCase{
			name:     "NONE, concurrency 1, handler asks for Done",
			ordering: pb.Ordering_ORDERING_NONE, concurrency: 1, handler: readsDone(), done: true,
		},
	)
}

func readsDeadline() supervisor.Handler {
	return supervisor.HandlerFunc(func(ctx context.Context, _ *supervisor.Message) supervisor.Outcome {
		if t, ok := ctx.Deadline(); !ok || t.IsZero() {
			return supervisor.Retry(errors.New("a handler context has a deadline"))
		}
		return supervisor.Ack()
	})
}

func readsDone() supervisor.Handler {
	return supervisor.HandlerFunc(func(ctx context.Context, _ *supervisor.Message) supervisor.Outcome {
		select {
		case <-ctx.Done():
			return supervisor.Retry(ctx.Err())
		default:
			return supervisor.Ack()
		}
	})
}

// endlessBroker makes a broker with an endless queue whose keys spread over lanes.
func endlessBroker(partitions int) (*memory.Broker, error) {
	b := memory.NewBroker(memory.Options{Forget: true})
	messages := make([]memory.Message, 64)
	for i := range messages {
		messages[i] = memory.Message{Key: []byte("key-" + strconv.Itoa(i)), Body: make([]byte, coreBody)}
	}
	return b, b.Create(endlessQueue, memory.QueueOptions{Endless: messages, Partitions: partitions})
}

func memoryConnection() *pb.Connection {
	return &pb.Connection{Name: connection, Broker: &pb.Connection_Memory{Memory: &pb.MemoryConnection{}}}
}

func memorySource(queue string) *pb.Source {
	return &pb.Source{Broker: &pb.Source_Memory{Memory: &pb.MemorySource{Queue: queue}}}
}

// spec is the consumer of a case.
func (c coreCase) spec() *pb.ConsumerSpec {
	return newSpec("core", memorySource(endlessQueue), bounded, func(s *pb.ConsumerSpec) {
		s.Ordering, s.Concurrency = c.ordering, new(c.concurrency)
		if c.ordering == pb.Ordering_ORDERING_KEY {
			s.Lanes = new(int32(coreLanes))
		}
	})
}

// supervised hosts the case's consumer, paused.
func (c coreCase) supervised(ctx context.Context) (*host, error) {
	broker, err := endlessBroker(c.partitions)
	if err != nil {
		return nil, err
	}
	return supervise(ctx, &memory.Driver{Broker: broker}, memoryConnection(), c.spec(), c.handler)
}

// raw is the same work by the driver alone. Call the returned function to end it.
func (c coreCase) raw(ctx context.Context) (*rawLoop, func() error, error) {
	broker, err := endlessBroker(c.partitions)
	if err != nil {
		return nil, nil, err
	}
	d := &memory.Driver{Broker: broker}
	conn, err := connect(ctx, d, memoryConnection())
	if err != nil {
		return nil, nil, err
	}
	sub, err := subscribe(ctx, d, conn, c.spec())
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close(ctx))
	}
	r := &rawLoop{sub: sub, credit: brokers.Credit{Messages: mostInFlight, Bytes: 1 << 30}}
	return r, func() error { return closeAll(ctx, conn, sub) }, nil
}

// against compares the case with its raw loop.
func (c coreCase) against(ctx context.Context, p *settings) (comparison, error) {
	raw, end, err := c.raw(ctx)
	if err != nil {
		return comparison{}, err
	}
	h, err := c.supervised(ctx)
	if err != nil {
		return comparison{}, errors.Join(err, end())
	}
	out, err := compare(ctx, p.pace, raw.side("raw"), h.side("core"))
	if err == nil {
		err = p.profiled(ctx, h.side("core"))
	}
	return out, errors.Join(err, end(), h.close(ctx))
}

// rawTwice compares the raw loop with another one.
func (c coreCase) rawTwice(ctx context.Context, p pace) (comparison, error) {
	a, endA, err := c.raw(ctx)
	if err != nil {
		return comparison{}, err
	}
	b, endB, err := c.raw(ctx)
	if err != nil {
		return comparison{}, errors.Join(err, endA())
	}
	out, err := compare(ctx, p, a.side("raw"), b.side("raw again"))
	return out, errors.Join(err, endA(), endB())
}

// runCore measures the message path on the memory driver's endless source.
func runCore(ctx context.Context, fs *flag.FlagSet, args []string, w io.Writer) error {
	p := settingsFlags(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	r := &report{
		title: "The core alone, on the memory driver's endless source",
		lines: machine(),
		head:  []string{"case", "ns/msg", "raw ns/msg", "ratio (p10-p90)", "CPU ns/msg", "allocs/msg beyond raw", "bytes/msg beyond raw"},
	}
	cases := coreCases()
	twice, err := cases[0].rawTwice(ctx, p.pace)
	if err != nil {
		return err
	}
	for _, c := range cases {
		if !p.wants(c.name) {
			continue
		}
		got, err := c.against(ctx, p)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		r.row(c.name,
			fmt.Sprintf("%.0f", 1e9/median(got.b.perSecond)), fmt.Sprintf("%.1f", 1e9/median(got.a.perSecond)), ratio(got),
			fmt.Sprintf("%.0f", median(got.b.cpu)),
			fmt.Sprintf("%.3f", median(got.b.allocs)-median(got.a.allocs)),
			fmt.Sprintf("%.0f", median(got.b.bytes)-median(got.a.bytes)))
	}
	r.notef("Raw is a loop over the driver's Receive and Settle with the same bounds; %d repetitions of %s. Raw against raw: %s%s.",
		p.reps, p.slice, ratio(twice), void(twice))
	return r.publish(w, p.results)
}

// void says when two equal sides came out so unequal that nothing counts.
func void(twice comparison) string {
	if twice.equal() {
		return ""
	}
	return fmt.Sprintf(", outside %.2f-%.2f: THE RATIOS OF THIS RUN ARE VOID", equalLow, equalHigh)
}
