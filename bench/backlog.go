package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers/kafka"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

const (
	backlogBytesGoal = 3 << 19
	// backlogSettles is how long clients get to drop what they had fetched.
	backlogSettles = 2 * time.Second
)

// backlogHandler counts its calls; closing held lets them return.
type backlogHandler struct {
	held  chan struct{}
	calls atomic.Int64
}

func (b *backlogHandler) Handle(ctx context.Context, _ *supervisor.Message) supervisor.Outcome {
	b.calls.Add(1)
	select {
	case <-b.held:
		return supervisor.Ack()
	case <-ctx.Done():
		return supervisor.Retry(ctx.Err())
	}
}

// backlogOf measures consumers with all defaults that have work without end and
// do not work: paused amid it, or stalled by handlers that do not return.
func backlogOf(ctx context.Context, n int, paused bool) (out footprint, err error) {
	broker, end, err := servePart(ctx, "kafka-server")
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, end()) }()
	handler := &backlogHandler{held: make(chan struct{})}
	if paused {
		close(handler.held)
	}
	h, err := newHost(kafka.Driver{}, kafkaConnection(broker), map[string]supervisor.Handler{handlerName: handler})
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, h.close(ctx)) }()
	setup, err := kafkaIdle(n+1, broker)
	if err != nil {
		return out, err
	}
	started := 0
	return setup.measure(func(specs []*pb.ConsumerSpec) error {
		names := make([]string, len(specs))
		for i, s := range specs {
			names[i] = s.GetName()
			s.Source.GetKafka().Topics = []string{endlessQueue}
		}
		if err := h.apply(ctx, specs...); err != nil {
			return err
		}
		if err := h.await(ctx, pb.State_STATE_RUNNING, len(names), names...); err != nil {
			return err
		}
		if err := wait(ctx, backlogSettles); err != nil {
			return err
		}
		started += len(specs)
		if err := handler.called(int64(started)); err != nil || !paused {
			return err
		}
		for _, name := range names {
			if err := h.pause(ctx, name); err != nil {
				return err
			}
		}
		return wait(ctx, backlogSettles)
	})
}

// called tells whether there was work.
func (b *backlogHandler) called(least int64) error {
	if n := b.calls.Load(); n < least {
		return fmt.Errorf("%d consumers had only %d messages within %s: the machine is too busy to tell", least, n, backlogSettles)
	}
	return nil
}

// runBacklog measures what consumers with a backlog hold that do not work it off.
func runBacklog(ctx context.Context, fs *flag.FlagSet, args []string, w io.Writer) error {
	n := fs.Int("n", 20, "consumers in one process")
	results := fs.String("results", "", "also put the table into this file (bench/RESULTS.md)")
	if err := fs.Parse(args); err != nil {
		return err
	}
	r := &report{
		title: fmt.Sprintf("Kafka consumers with a backlog that do not work, %d partitions, defaults", kafkaPartitions),
		lines: machine(kgoModule, kfakeModule),
		head:  []string{fmt.Sprintf("%d consumers", *n), "live bytes each", "of them heap", "goroutines each"},
	}
	for _, paused := range []bool{true, false} {
		f, err := backlogOf(ctx, *n, paused)
		if err != nil {
			return err
		}
		name := "stalled in their handlers"
		each := f.live() / int64(*n)
		if paused {
			name = "paused"
			r.notef("Goal: at most %.1f MiB paused: %s.", backlogBytesGoal/float64(1<<20), verdict(each <= backlogBytesGoal))
		}
		mib := func(v int64) string { return fmt.Sprintf("%.2f MiB", float64(v)/(1<<20)) }
		r.row(name, mib(each), mib(f.Heap/int64(*n)), fmt.Sprintf("%.2f", float64(f.Goroutines)/float64(*n)))
	}
	return r.publish(w, *results)
}
