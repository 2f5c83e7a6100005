package rabbitmq

import (
	"context"
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// Subscribe opens a channel on a TCP connection with room and consumes on it.
func (c *conn) Subscribe(ctx context.Context, from any, _ brokers.Observer) (brokers.Subscription, error) {
	src, ok := from.(*source)
	if !ok {
		return nil, &brokers.Error{Class: brokers.Refused, Op: "subscribe", Err: errors.New("the source is not of this driver")}
	}
	op := "subscribe to " + src.String()
	s, err := call(ctx, c, func(ctx context.Context) (*subscription, error) {
		l, err := c.reserve(ctx, op)
		if err != nil {
			return nil, err
		}
		s := newSubscription(c, l, src, op)
		if err := s.begin(ctx); err != nil {
			c.release(l)
			if l.amqp.IsClosed() {
				err = l.lost(errorOf(err)) // by whose fault is not known
			}
			return nil, err
		}
		return s, nil
	}, func(s *subscription) { s.end() })
	if err != nil {
		err = src.classify(op, err)
		if brokers.ClassOf(err) == brokers.Missing {
			src.facts.Store(nil) // it may come back as another
		}
		return nil, err
	}
	return s, nil
}

func newSubscription(c *conn, l *link, src *source, op string) *subscription {
	s := &subscription{
		c: c, l: l, src: src, op: op,
		origin: &brokers.Origin{Name: src.queue},
		next:   make(chan consumption, 1),
		ended:  make(chan struct{}),
		wake:   make(chan struct{}, 1),
	}
	return s
}

// begin declares, opens the channel and consumes. When ctx ends meanwhile it
// leaves nothing behind.
func (s *subscription) begin(ctx context.Context) error {
	if s.src.creates() {
		if err := s.declare(); err != nil {
			return err
		}
	}
	if err := s.look(); err != nil {
		return err
	}
	ch, err := s.l.amqp.Channel()
	if err != nil {
		return err
	}
	s.ch = ch
	s.closes = ch.NotifyClose(make(chan *amqp.Error, 1))
	s.cancels = ch.NotifyCancel(make(chan string, 1))
	var deliveries <-chan amqp.Delivery
	if err = ctx.Err(); err == nil {
		err = ch.Qos(s.src.prefetch, 0, false)
	}
	if err == nil {
		deliveries, err = s.consume()
	}
	if err != nil {
		_ = ch.Close()
		return err
	}
	go s.pump(consumption{deliveries, s.drained})
	return nil
}

// declare makes the queue and binds it, on a channel of its own: what the broker
// refuses closes that one.
func (s *subscription) declare() error {
	ch, err := s.l.amqp.Channel()
	if err != nil {
		return err
	}
	defer func() { _ = ch.Close() }()
	if _, err := ch.QueueDeclare(s.src.queue, true, false, false, false, s.src.declare); err != nil {
		return err
	}
	for _, b := range s.src.bindings {
		if err := ch.QueueBind(s.src.queue, b.key, b.exchange, false, b.arguments); err != nil {
			return err
		}
	}
	return nil
}

// consume begins a consumption under a tag of its own.
func (s *subscription) consume() (<-chan amqp.Delivery, error) {
	args := amqp.Table{}
	if s.src.priority != nil {
		args["x-priority"] = *s.src.priority
	}
	tag := s.c.tag(s.src)
	deliveries, err := s.ch.Consume(s.src.queue, tag, false, s.src.exclusive, false, false, args)
	if err != nil {
		return nil, err
	}
	s.tag, s.drained = tag, make(chan struct{})
	return deliveries, nil
}
