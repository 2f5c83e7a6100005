package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	amqp "github.com/rabbitmq/amqp091-go"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/test/node/rabbitmq"
)

const (
	// rabbitReady messages wait in a queue before each slice, more than a slice
	// takes; rabbitWindow of those being published are not confirmed.
	rabbitReady  = 60_000
	rabbitWindow = 2_000
)

// rabbitFeed fills quorum queues on a connection of its own.
type rabbitFeed struct {
	ch   *amqp.Channel
	made int
}

func newRabbitFeed(s rabbitServer) (*rabbitFeed, func(context.Context) error, error) {
	conn, err := s.dial()
	if err != nil {
		return nil, nil, err
	}
	end := func(context.Context) error { return conn.Close() }
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return &rabbitFeed{ch: ch}, end, nil
}

// queue declares a quorum queue for a side.
func (f *rabbitFeed) queue(_ context.Context, side string) (string, func(context.Context) error, error) {
	f.made++
	name := fmt.Sprintf("bench-%d", f.made)
	if _, err := f.ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		return "", nil, fmt.Errorf("a queue for %s: %w", side, err)
	}
	return name, func(ctx context.Context) error { return f.fill(ctx, name) }, nil
}

// fill publishes until enough is ready in a queue, and all of it confirmed.
func (f *rabbitFeed) fill(ctx context.Context, queue string) error {
	q, err := f.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		return err
	}
	body := make([]byte, amqpBody)
	var open []*amqp.DeferredConfirmation
	for n := q.Messages; n < rabbitReady || len(open) > 0; n++ {
		if n < rabbitReady {
			c, err := f.ch.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body})
			if err != nil {
				return err
			}
			open = append(open, c)
		}
		if n < rabbitReady && len(open) < rabbitWindow {
			continue
		}
		if ok, err := open[0].WaitContext(ctx); err != nil || !ok {
			return fmt.Errorf("a publication was not confirmed: %w", err)
		}
		open = open[1:]
	}
	return nil
}

// runRabbitMQReal compares consumers on a RabbitMQ of their own, which is the
// bottleneck on a small machine: client CPU tells more than rates do.
func runRabbitMQReal(ctx context.Context, fs *flag.FlagSet, args []string, w io.Writer) (err error) {
	p := settingsFlags(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "supervisord-bench-rabbitmq-")
	if err != nil {
		return fmt.Errorf("make a folder for the broker: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	lines := machine(amqpModule)
	broker, err := rabbitmq.Start(ctx, rabbitmq.Options{Dir: dir})
	if err != nil {
		return err
	}
	defer broker.Kill()
	b := &rabbitBench{
		server: rabbitServer{url: broker.URL(), user: rabbitmq.User, password: rabbitmq.Password},
		kind:   pb.RabbitmqQueueType_RABBITMQ_QUEUE_TYPE_QUORUM,
	}
	defer func() { err = errors.Join(err, b.ends.close(ctx)) }()
	feed, end, err := newRabbitFeed(b.server)
	if err != nil {
		return err
	}
	b.ends.add(end)
	b.queue = feed.queue
	r := &report{
		title: "RabbitMQ " + broker.Version() + ", quorum queues, no-op handler, 100 B messages", lines: lines, head: rabbitHead(),
	}
	f, err := b.measure(ctx, p, r)
	if err != nil {
		return err
	}
	for _, ours := range f[3:] {
		each := relate(f[0], ours).ratio
		r.notef("Goal: %.2f of each acked, at least %.1f: %s; client CPU %.2f of hand-batched.",
			each, rabbitRealGoal, verdict(each >= rabbitRealGoal), median(ours.cpu)/median(f[1].cpu))
	}
	return r.publish(w, p.results)
}
