package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/seed-111f5b8e/supervisord/brokers"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
)

// rawLoop takes and acks batches of a driver with nothing above it: what a
// program would write that uses the driver by itself.
type rawLoop struct {
	sub    brokers.Subscription
	credit brokers.Credit
	n      atomic.Int64
	cancel context.CancelCauseFunc
	done   chan error
}

// connect opens one connection of a driver for raw loops.
func connect(ctx context.Context, d brokers.Driver, c *pb.Connection) (brokers.Conn, error) {
	return d.Open(ctx, c, brokers.Env{Log: slog.New(slog.DiscardHandler), Secret: spec.Secret})
}

// subscribe takes what a spec takes, without its consumer.
func subscribe(ctx context.Context, d brokers.Driver, conn brokers.Conn, s *pb.ConsumerSpec) (brokers.Subscription, error) {
	plan, faults := d.Parse(s)
	if len(faults) > 0 {
		return nil, joinFaults(faults)
	}
	return conn.Subscribe(ctx, plan.Source, nobody{})
}

func (r *rawLoop) side(name string) side {
	return side{
		name: name,
		start: func(ctx context.Context) error {
			ctx, r.cancel = context.WithCancelCause(ctx)
			r.done = make(chan error, 1)
			go func() { r.done <- r.work(ctx) }()
			return nil
		},
		stop: func(context.Context) error {
			r.cancel(errSeen)
			return <-r.done
		},
		count: func() (int64, error) { return r.n.Load(), nil },
	}
}

func (r *rawLoop) work(ctx context.Context) error {
	settlements := make([]brokers.Settlement, 0, r.credit.Messages)
	for {
		batch, err := r.sub.Receive(ctx, r.credit)
		if ctx.Err() != nil && len(batch) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		settlements = settlements[:0]
		for i := range batch {
			settlements = append(settlements, brokers.Settlement{Delivery: &batch[i], Outcome: brokers.Ack})
		}
		if err := r.sub.Settle(ctx, settlements); err != nil {
			return fmt.Errorf("settle: %w", err)
		}
		r.n.Add(int64(len(batch)))
	}
}

// nobody hears nothing: a raw loop has nothing to give up and shows nothing.
type nobody struct{}

func (nobody) Revoke(context.Context, []*brokers.Origin) {}

func (nobody) Condition(pb.ConditionType, bool, string) {}

// closeAll ends what raw loops opened.
func closeAll(ctx context.Context, conn brokers.Conn, subs ...brokers.Subscription) error {
	var errs []error
	for _, s := range subs {
		_, err := s.Close(ctx, nil)
		errs = append(errs, err)
	}
	return errors.Join(append(errs, conn.Close(ctx))...)
}
