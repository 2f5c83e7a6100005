package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/brokertest"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// harness is one kind of queue on a server behind a proxy. Its own clients live for
// one call each, so that no goroutine of theirs is there at the end.
type harness struct {
	*server

	proxy *proxy
	// prefix tells the queues of several harnesses on one server apart.
	prefix       string
	quorum       bool
	singleActive bool
	sources      atomic.Int32
}

func newHarness(tb testing.TB, s *server, prefix string) *harness {
	tb.Helper()
	return &harness{server: s, proxy: startProxy(tb, strings.TrimPrefix(s.URL(), "amqp://")), prefix: prefix}
}

func (h *harness) Driver() brokers.Driver { return Driver{} }

func (h *harness) Features() brokertest.Features {
	f := brokertest.Features{
		Faults: []brokertest.Fault{
			brokertest.Cut, brokertest.Lose, brokertest.Freeze, brokertest.Thaw, brokertest.Kill, brokertest.Restart,
			brokertest.Delete, brokertest.Recreate, brokertest.Forbid, brokertest.Permit,
			brokertest.Block, brokertest.Unblock,
		},
		Credentials: true,
		Create:      true,
		Members:     true,
		Order:       true,
		Finishes:    true,
		Names:       true,
		Headers:     true,
		Redelivery:  brokertest.Flagged,
		Patience:    patience,
	}
	if h.quorum {
		f.Redelivery, f.DeliveryLimit, f.Keys = brokertest.Counted, true, true
	}
	return f
}

const (
	passwordRef      = "env:PASSWORD"
	wrongPasswordRef = "env:WRONG_PASSWORD"
)

func (h *harness) Secrets() map[string]string {
	return map[string]string{passwordRef: appPassword, wrongPasswordRef: "wr0ng-canary"}
}

func (h *harness) Connection(valid bool) *supervisorv1.Connection {
	password := passwordRef
	if !valid {
		password = wrongPasswordRef
	}
	return connection("amqp://"+h.proxy.addr(), password)
}

func connection(url, password string) *supervisorv1.Connection {
	return &supervisorv1.Connection{Name: "test", Broker: &supervisorv1.Connection_Rabbitmq{Rabbitmq: &supervisorv1.RabbitmqConnection{
		Urls: []string{url},
		Auth: &supervisorv1.RabbitmqAuth{User: appUser, Password: password},
	}}}
}

func (h *harness) Source(_ context.Context, o brokertest.SourceOptions) (*supervisorv1.ConsumerSpec, error) {
	name := fmt.Sprintf("%s%d", h.prefix, h.sources.Add(1))
	in := &supervisorv1.RabbitmqSource{
		Queue: name, Missing: o.Missing, Type: supervisorv1.RabbitmqQueueType_RABBITMQ_QUEUE_TYPE_CLASSIC,
		Prefetch: new(int32(200)),
	}
	spec := &supervisorv1.ConsumerSpec{
		Namespace: "default", Name: name, Concurrency: new(int32(1)),
		Source:      &supervisorv1.Source{Connection: "test", Broker: &supervisorv1.Source_Rabbitmq{Rabbitmq: in}},
		MaxInFlight: &supervisorv1.MaxInFlight{Messages: new(int32(200))},
		DeadLetter:  &supervisorv1.DeadLetter{Target: &supervisorv1.DeadLetter_Queue{Queue: name + "-dead"}},
	}
	if h.quorum {
		in.Type = supervisorv1.RabbitmqQueueType_RABBITMQ_QUEUE_TYPE_QUORUM
		spec.DeadLetter = &supervisorv1.DeadLetter{Target: &supervisorv1.DeadLetter_Exchange{Exchange: name + "-dead"}}
	}
	if o.Absent {
		return spec, nil
	}
	return spec, h.client(func(ch *amqp.Channel) error {
		if err := h.declare(ch, name, o.DeliveryLimit); err != nil {
			return err
		}
		if err := fanout(ch, name, name); err != nil || o.NoTarget {
			return err
		}
		if _, err := ch.QueueDeclare(name+"-dead", true, false, false, false, nil); err != nil {
			return err
		}
		return fanout(ch, name+"-dead", name+"-dead")
	})
}

// declare makes a source. A message that came limit times and was given back as
// often is dropped: what x-delivery-limit counts are the times it comes again.
func (h *harness) declare(ch *amqp.Channel, name string, limit int) error {
	args := amqp.Table{"x-queue-type": "classic"}
	if h.quorum {
		args["x-queue-type"] = "quorum"
	}
	if h.singleActive {
		args["x-single-active-consumer"] = true
	}
	if limit > 0 {
		args["x-delivery-limit"] = limit - 1
	}
	_, err := ch.QueueDeclare(name, true, false, false, false, args)
	return err
}

// fanout makes an exchange that gives all to one queue, whatever its key.
func fanout(ch *amqp.Channel, exchange, queue string) error {
	if err := ch.ExchangeDeclare(exchange, "fanout", true, false, false, false, nil); err != nil {
		return err
	}
	return ch.QueueBind(queue, "", exchange, false, nil)
}

func queue(s *supervisorv1.ConsumerSpec) string { return s.GetSource().GetRabbitmq().GetQueue() }

func (h *harness) Publish(ctx context.Context, s *supervisorv1.ConsumerSpec, ms []brokertest.Message) error {
	return h.client(func(ch *amqp.Channel) error {
		if err := ch.Confirm(false); err != nil {
			return err
		}
		var last *amqp.DeferredConfirmation
		for _, m := range ms {
			exchange, key := "", queue(s)
			if len(m.Key) > 0 {
				exchange, key = queue(s), string(m.Key)
			}
			table := amqp.Table{}
			for _, hd := range m.Headers {
				table[hd.Name] = hd.Value
			}
			var err error
			last, err = ch.PublishWithDeferredConfirm(exchange, key, true, false, amqp.Publishing{
				MessageId: m.ID, Headers: table, Body: m.Body, DeliveryMode: amqp.Persistent,
			})
			if err != nil {
				return err
			}
		}
		if last == nil {
			return nil
		}
		ok, err := last.WaitContext(ctx)
		if err == nil && !ok {
			err = errors.New("not confirmed")
		}
		return err
	})
}

func (h *harness) Count(ctx context.Context, s *supervisorv1.ConsumerSpec) (brokertest.Count, error) {
	var out brokertest.Count
	err := h.client(func(ch *amqp.Channel) error {
		q, err := inspect(ch, queue(s))
		out.Members = q.Consumers
		return err
	})
	if err == nil {
		out.Remaining, err = h.count(ctx, queue(s))
	}
	return out, err
}

func (h *harness) DeadLetters(_ context.Context, s *supervisorv1.ConsumerSpec) (out []brokertest.Message, err error) {
	err = h.client(func(ch *amqp.Channel) error {
		for {
			d, ok, err := ch.Get(queue(s)+"-dead", false)
			if err != nil || !ok {
				return err
			}
			m := brokertest.Message{ID: d.MessageId, Key: []byte(d.RoutingKey), Body: d.Body}
			for name, value := range headers(d.Headers).All() {
				m.Headers = append(m.Headers, brokers.Header{Name: name, Value: value})
			}
			out = append(out, m)
		}
	})
	return out, err
}

func (h *harness) Disturb(ctx context.Context, f brokertest.Fault, s *supervisorv1.ConsumerSpec) error {
	switch f {
	case brokertest.Cut, brokertest.Lose:
		h.proxy.cut()
	case brokertest.Freeze:
		h.freeze()
	case brokertest.Thaw:
		h.Thaw()
	case brokertest.Kill:
		if err := errors.Join(h.flush(ctx, queue(s)), h.Flush(ctx)); err != nil {
			return err
		}
		h.Kill()
	case brokertest.Restart:
		return h.restart(ctx)
	case brokertest.Delete:
		return h.client(func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete(queue(s), false, false, false)
			return err
		})
	case brokertest.Recreate:
		return h.client(func(ch *amqp.Channel) error { return h.declare(ch, queue(s), 0) })
	case brokertest.Forbid:
		return h.Permit(ctx, appUser, "/", ".*", ".*", "")
	case brokertest.Permit:
		return h.Permit(ctx, appUser, "/", ".*", ".*", ".*")
	case brokertest.Block, brokertest.Unblock:
		return h.alarm(ctx, f == brokertest.Block)
	default:
		return errors.New("not declared")
	}
	return nil
}

func TestConformance(t *testing.T) {
	s := startServer(t)
	for _, kind := range []struct {
		name                 string
		quorum, singleActive bool
	}{
		{"classic", false, false}, {"quorum", true, false}, {"singleActive", true, true},
	} {
		t.Run(kind.name, func(t *testing.T) {
			h := newHarness(t, s, kind.name+"-")
			h.quorum, h.singleActive = kind.quorum, kind.singleActive
			// Whoever waits for the end of a server that was restarted.
			brokertest.Run(t, h, goleak.IgnoreAnyFunction("github.com/seed-111f5b8e/supervisord/test/node.(*Process).launch.func2"))
		})
	}
}
