package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/seed-111f5b8e/supervisord/brokers/rabbitmq"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

const (
	// rabbitPrefetch is that of both sides, and bounds what is in flight.
	rabbitPrefetch = 256
	// rabbitPassword is the environment variable that specs name.
	rabbitPassword = "SUPERVISORD_BENCH_RABBITMQ_PASSWORD"

	rabbitEachGoal    = 1.7
	rabbitBatchedGoal = 0.95
	rabbitRealGoal    = 1.3
	rabbitCPUGoal     = 8.0 // us
)

// rabbitServer is where the broker is and who may sign in.
type rabbitServer struct{ url, user, password string }

func (s rabbitServer) dial() (*amqp.Connection, error) {
	c, err := amqp.DialConfig(s.url, amqp.Config{
		SASL: []amqp.Authentication{&amqp.PlainAuth{Username: s.user, Password: s.password}},
		// The library writes into these.
		Properties: amqp.Table{},
	})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", s.url, err)
	}
	return c, nil
}

// connection is that of a host; its password is in the environment.
func (s rabbitServer) connection() (*pb.Connection, error) {
	return &pb.Connection{Name: connection, Broker: &pb.Connection_Rabbitmq{Rabbitmq: &pb.RabbitmqConnection{
		Urls: []string{s.url}, Auth: &pb.RabbitmqAuth{User: s.user, Password: "env:" + rabbitPassword},
	}}}, os.Setenv(rabbitPassword, s.password)
}

// rabbitLoop is a raw consumer: it calls a handler for each message and acks it,
// or so many as one.
type rabbitLoop struct {
	conn     *amqp.Connection
	queue    string
	multiple int
	handle   func(*amqp.Delivery)

	ch   *amqp.Channel
	n    atomic.Int64
	done chan error
}

const rawTag = "raw"

// handleDelivery is a handler that has nothing to do.
func handleDelivery(*amqp.Delivery) {}

func (l *rabbitLoop) start(context.Context) error {
	var err error
	if l.ch, err = l.conn.Channel(); err != nil {
		return err
	}
	if err := l.ch.Qos(rabbitPrefetch, 0, false); err != nil {
		return err
	}
	deliveries, err := l.ch.Consume(l.queue, rawTag, false, false, false, false, nil)
	if err != nil {
		return err
	}
	l.done = make(chan error, 1)
	go func() {
		if l.multiple == 1 {
			l.done <- l.each(deliveries)
		} else {
			l.done <- l.batched(deliveries)
		}
	}()
	return nil
}

func (l *rabbitLoop) each(deliveries <-chan amqp.Delivery) error {
	var d amqp.Delivery // one: its address goes to the handler
	for d = range deliveries {
		l.handle(&d)
		if err := d.Ack(false); err != nil {
			return err
		}
		l.n.Add(1)
	}
	return nil
}

func (l *rabbitLoop) batched(deliveries <-chan amqp.Delivery) error {
	var last amqp.Delivery
	open := 0
	for last = range deliveries {
		l.handle(&last)
		if open++; open < l.multiple {
			continue
		}
		if err := last.Ack(true); err != nil {
			return err
		}
		l.n.Add(int64(open))
		open = 0
	}
	if open == 0 {
		return nil
	}
	l.n.Add(int64(open))
	return last.Ack(true)
}

func (l *rabbitLoop) stop(context.Context) error {
	err := l.ch.Cancel(rawTag, false)
	return errors.Join(err, <-l.done, l.ch.Close())
}

// rabbitBench is a server and the sides on it.
type rabbitBench struct {
	server rabbitServer
	kind   pb.RabbitmqQueueType
	// queue makes a queue for a side and tells how to fill it before each slice; a
	// nil fill: it never runs empty.
	queue func(ctx context.Context, side string) (name string, fill func(context.Context) error, err error)
	ends  ends
}

// side puts the filling before each start.
func (b *rabbitBench) side(s side, fill func(context.Context) error) side {
	if fill == nil {
		return s
	}
	start := s.start
	s.start = func(ctx context.Context) error {
		if err := fill(ctx); err != nil {
			return fmt.Errorf("fill its queue: %w", err)
		}
		return start(ctx)
	}
	return s
}

// raw makes a side with a connection and a queue of its own.
func (b *rabbitBench) raw(ctx context.Context, name string, multiple int) (side, error) {
	queue, fill, err := b.queue(ctx, name)
	if err != nil {
		return side{}, err
	}
	conn, err := b.server.dial()
	if err != nil {
		return side{}, err
	}
	b.ends.add(func(context.Context) error { return conn.Close() })
	l := &rabbitLoop{conn: conn, queue: queue, multiple: multiple, handle: handleDelivery}
	return b.side(side{
		name: name, start: l.start, stop: l.stop,
		count: func() (int64, error) { return l.n.Load(), nil },
	}, fill), nil
}

// supervised makes a side of a consumer with a no-op handler.
func (b *rabbitBench) supervised(ctx context.Context, name string, concurrency int32) (side, error) {
	queue, fill, err := b.queue(ctx, name)
	if err != nil {
		return side{}, err
	}
	conn, err := b.server.connection()
	if err != nil {
		return side{}, err
	}
	spec := b.spec(queue, concurrency)
	h, err := supervise(ctx, rabbitmq.Driver{}, conn, spec, noop())
	if err != nil {
		return side{}, err
	}
	b.ends.add(h.close)
	s := h.side(spec.GetName())
	s.name = name
	return b.side(s, fill), nil
}

func (b *rabbitBench) spec(queue string, concurrency int32) *pb.ConsumerSpec {
	source := &pb.Source{Broker: &pb.Source_Rabbitmq{Rabbitmq: &pb.RabbitmqSource{
		Queue: queue, Type: b.kind, Prefetch: new(int32(rabbitPrefetch)),
	}}}
	return newSpec("rabbitmq", source, bounded, slots(concurrency))
}

// batched makes the fastest of the sides that ack many as one.
func (b *rabbitBench) batched(ctx context.Context, p pace) (side, string, error) {
	var ways []side
	for _, n := range []int{32, 64, 128} {
		s, err := b.raw(ctx, fmt.Sprintf("raw, multiple ack of %d", n), n)
		if err != nil {
			return side{}, "", err
		}
		ways = append(ways, s)
	}
	best, told, err := fastest(ctx, p, ways...)
	if err != nil {
		return side{}, "", err
	}
	return ways[best], told, nil
}

// measure runs all sides and puts them into r. The first figures are those of the raw
// loop that acks each, the second those of the hand-batched one.
func (b *rabbitBench) measure(ctx context.Context, p *settings, r *report) ([]figures, error) {
	best, told, err := b.batched(ctx, p.pace)
	if err != nil {
		return nil, err
	}
	each, err1 := b.raw(ctx, "raw, each acked", 1)
	again, err2 := b.raw(ctx, "raw, each acked, again", 1)
	sides := []side{each, best, again}
	errs := []error{err1, err2}
	for _, c := range []int32{1, 16} {
		name := fmt.Sprintf("supervised, concurrency %d", c)
		if !p.wants(name) {
			continue
		}
		s, err := b.supervised(ctx, name, c)
		sides, errs = append(sides, s), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	f, err := rounds(ctx, p.pace, sides...)
	if err != nil {
		return nil, err
	}
	for i, s := range sides {
		r.row(s.name, count(median(f[i].perSecond)), fmt.Sprintf("%.2f", median(f[i].cpu)/1e3), fmt.Sprintf("%.2f", median(f[i].allocs)),
			fmt.Sprintf("%.0f", median(f[i].bytes)), ratio(relate(f[0], f[i])), ratio(relate(f[1], f[i])))
	}
	twice := relate(f[0], f[2])
	r.notef("Multiple acks against the first of them: %s. %d repetitions of %s, prefetch %d. Raw against raw: %s%s.",
		told, p.reps, p.slice, rabbitPrefetch, ratio(twice), void(twice))
	return f, p.profiled(ctx, sides[len(sides)-1])
}

func rabbitHead() []string {
	return []string{"", "msgs/s", "client CPU us/msg", "allocs/msg", "bytes/msg", "of each acked (p10-p90)", "of hand-batched (p10-p90)"}
}

const amqpModule = "github.com/rabbitmq/amqp091-go"

// runRabbitMQ compares consumers on the protocol stub, where the client is the
// bottleneck.
func runRabbitMQ(ctx context.Context, fs *flag.FlagSet, args []string, w io.Writer) (err error) {
	p := settingsFlags(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	r := &report{
		title: "RabbitMQ, no-op handler, 100 B messages, protocol stub in a process of its own",
		lines: machine(amqpModule), head: rabbitHead(),
	}
	stub, err := startPart(ctx, "amqp-server")
	if err != nil {
		return err
	}
	b := stubBench(stub.line)
	b.ends.add(func(context.Context) error { return stub.stop() })
	defer func() { err = errors.Join(err, b.ends.close(ctx)) }()
	f, err := b.measure(ctx, p, r)
	if err != nil {
		return err
	}
	for _, ours := range f[3:] {
		each, batched, cpu := relate(f[0], ours).ratio, relate(f[1], ours).ratio, median(ours.cpu)/1e3
		r.notef("Goals: %.2f of each acked, at least %.1f: %s; %.2f of hand-batched, at least %.2f: %s; client CPU %.1f us, at most %.0f: %s.",
			each, rabbitEachGoal, verdict(each >= rabbitEachGoal), batched, rabbitBatchedGoal, verdict(batched >= rabbitBatchedGoal),
			cpu, rabbitCPUGoal, verdict(cpu <= rabbitCPUGoal))
	}
	return r.publish(w, p.results)
}

// stubBench has all sides on the stub's endless queue.
func stubBench(url string) *rabbitBench {
	return &rabbitBench{
		server: rabbitServer{url: url, user: "bench", password: "bench"},
		kind:   pb.RabbitmqQueueType_RABBITMQ_QUEUE_TYPE_CLASSIC,
		queue: func(context.Context, string) (string, func(context.Context) error, error) {
			return endlessQueue, nil, nil
		},
	}
}
