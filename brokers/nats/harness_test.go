package nats

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/brokertest"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// harness is a server process behind a proxy. Its own clients live for one call
// each, so that no goroutine of theirs is there at the end.
type harness struct {
	process *process
	proxy   *proxy
	sources atomic.Int32
}

func newHarness(tb testing.TB, lazy bool) *harness {
	tb.Helper()
	h := &harness{process: startProcess(tb, lazy)}
	h.proxy = startProxy(tb, h.process.addr)
	return h
}

// client runs f with a client of its own, beside the proxy.
func (h *harness) client(f func(*nats.Conn, jetstream.JetStream) error) error {
	nc, err := nats.Connect("nats://"+h.process.addr, nats.UserInfo(adminUser, adminPassword))
	if err != nil {
		return err
	}
	defer nc.Close()
	failed := make(chan error, 1)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(64),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) {
			select {
			case failed <- err:
			default:
			}
		}))
	if err != nil {
		return err
	}
	if err := f(nc, js); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

func (h *harness) Driver() brokers.Driver { return Driver{} }

func (h *harness) Features() brokertest.Features {
	return brokertest.Features{
		Faults: []brokertest.Fault{
			brokertest.Cut, brokertest.Freeze, brokertest.Thaw, brokertest.Kill, brokertest.Restart,
			brokertest.Delete, brokertest.Recreate, brokertest.Forbid, brokertest.Permit, brokertest.Redeliver,
			brokertest.Block, brokertest.Unblock, brokertest.Lose,
		},
		Credentials:   true,
		Finishes:      true,
		Revokes:       true,
		Create:        true,
		Members:       true,
		Order:         true,
		Delay:         true,
		Headers:       true,
		Redelivery:    brokertest.Counted,
		DeliveryLimit: true,
		AckDeadline:   time.Second,
		Patience:      12 * time.Second,
	}
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
	return &supervisorv1.Connection{Name: "test", Broker: &supervisorv1.Connection_Nats{Nats: &supervisorv1.NatsConnection{
		Urls: []string{"nats://" + h.proxy.addr()},
		Auth: &supervisorv1.NatsAuth{User: appUser, Password: password},
	}}}
}

func (h *harness) Source(ctx context.Context, o brokertest.SourceOptions) (*supervisorv1.ConsumerSpec, error) {
	name := fmt.Sprintf("S%d", h.sources.Add(1))
	in := &supervisorv1.NatsSource{Stream: name, Durable: "worker", FilterSubjects: []string{name + ".in"}, Missing: o.Missing,
		PullExpiry: durationpb.New(4 * time.Second)}
	messages, concurrency := int32(100), int32(1)
	spec := &supervisorv1.ConsumerSpec{
		Namespace: "default", Name: strings.ToLower(name), Concurrency: &concurrency,
		Source:      &supervisorv1.Source{Connection: "test", Broker: &supervisorv1.Source_Nats{Nats: in}},
		MaxInFlight: &supervisorv1.MaxInFlight{Messages: &messages},
		DeadLetter:  &supervisorv1.DeadLetter{Target: &supervisorv1.DeadLetter_Subject{Subject: name + ".dead"}},
	}
	// Short: what a cut leaves with an epoch that nobody closes comes after it.
	in.AckWait = durationpb.New(3 * time.Second)
	if o.AckDeadline > 0 {
		in.AckWait = durationpb.New(o.AckDeadline)
	}
	if o.DeliveryLimit > 0 {
		in.Manage = supervisorv1.NatsManage_NATS_MANAGE_NONE
	}
	if o.Absent {
		return spec, nil
	}
	return spec, h.client(func(_ *nats.Conn, js jetstream.JetStream) error {
		if err := makeStream(ctx, js, name, name+".in"); err != nil {
			return err
		}
		if o.DeliveryLimit > 0 {
			cfg := jetstream.ConsumerConfig{Durable: "worker", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: o.DeliveryLimit}
			if _, err := js.CreateConsumer(ctx, name, cfg); err != nil {
				return err
			}
		}
		if o.NoTarget {
			return nil
		}
		return makeStream(ctx, js, name+"-dead", name+".dead")
	})
}

func makeStream(ctx context.Context, js jetstream.JetStream, name, subject string) error {
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{subject}})
	return err
}

func stream(s *supervisorv1.ConsumerSpec) string { return s.GetSource().GetNats().GetStream() }

func (h *harness) Publish(ctx context.Context, s *supervisorv1.ConsumerSpec, ms []brokertest.Message) error {
	return h.client(func(_ *nats.Conn, js jetstream.JetStream) error {
		for _, m := range ms {
			msg := &nats.Msg{Subject: stream(s) + ".in", Data: m.Body, Header: nats.Header{}}
			for _, hd := range m.Headers {
				msg.Header[hd.Name] = append(msg.Header[hd.Name], hd.Value)
			}
			if _, err := js.PublishMsgAsync(msg, jetstream.WithStallWait(patience)); err != nil {
				return err
			}
		}
		select {
		case <-js.PublishAsyncComplete():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

func (h *harness) Count(ctx context.Context, s *supervisorv1.ConsumerSpec) (count brokertest.Count, err error) {
	err = h.client(func(_ *nats.Conn, js jetstream.JetStream) error {
		c, err := js.Consumer(ctx, stream(s), s.GetSource().GetNats().GetDurable())
		if errors.Is(err, jetstream.ErrConsumerNotFound) { // nobody has subscribed yet
			st, err := js.Stream(ctx, stream(s))
			if err == nil {
				count.Remaining = int64(st.CachedInfo().State.Msgs)
			}
			return err
		}
		if err != nil {
			return err
		}
		info := c.CachedInfo()
		count.Remaining = int64(info.NumPending) + int64(info.NumAckPending)
		count.Members = info.NumWaiting // all the server knows of a subscription is its open pulls
		return nil
	})
	return count, err
}

func (h *harness) DeadLetters(ctx context.Context, s *supervisorv1.ConsumerSpec) (out []brokertest.Message, err error) {
	err = h.client(func(_ *nats.Conn, js jetstream.JetStream) error {
		st, err := js.Stream(ctx, stream(s)+"-dead")
		if err != nil {
			return err
		}
		for seq := uint64(1); seq <= st.CachedInfo().State.LastSeq; seq++ {
			m, err := st.GetMsg(ctx, seq)
			if err != nil {
				return err
			}
			msg := brokertest.Message{ID: m.Header.Get(jetstream.MsgIDHeader), Body: m.Data}
			for name, value := range headers(m.Header).All() {
				msg.Headers = append(msg.Headers, brokers.Header{Name: name, Value: value})
			}
			out = append(out, msg)
		}
		return nil
	})
	return out, err
}

func (h *harness) Disturb(ctx context.Context, f brokertest.Fault, s *supervisorv1.ConsumerSpec) error {
	switch f {
	case brokertest.Cut:
		h.proxy.cut()
	case brokertest.Freeze:
		h.process.freeze()
	case brokertest.Thaw:
		h.process.thaw()
	case brokertest.Lose:
		h.proxy.say("-ERR 'No More Of You'\r\n")
	case brokertest.Block:
		h.proxy.block()
	case brokertest.Unblock:
		h.proxy.unblock()
	case brokertest.Kill:
		h.process.settled(stream(s))
		h.process.kill()
	case brokertest.Restart:
		h.process.start()
	case brokertest.Delete:
		return h.client(func(_ *nats.Conn, js jetstream.JetStream) error { return js.DeleteStream(ctx, stream(s)) })
	case brokertest.Recreate:
		return h.client(func(_ *nats.Conn, js jetstream.JetStream) error {
			return makeStream(ctx, js, stream(s), stream(s)+".in")
		})
	case brokertest.Forbid:
		h.process.reload(`, permissions: { publish: { deny: "$JS.API.CONSUMER.>" } }`)
	case brokertest.Permit:
		h.process.reload("")
	case brokertest.Redeliver:
		return h.takeAway(ctx, s)
	default:
		return errors.New("not declared")
	}
	return nil
}

// takeAway gives back what consumers have, behind their back.
func (h *harness) takeAway(ctx context.Context, s *supervisorv1.ConsumerSpec) error {
	return h.client(func(nc *nats.Conn, js jetstream.JetStream) error {
		c, err := js.Consumer(ctx, stream(s), "worker")
		if err != nil {
			return err
		}
		for seq := uint64(1); seq <= c.CachedInfo().Delivered.Stream; seq++ {
			subject := fmt.Sprintf("$JS.ACK.%s.worker.1.%d.%d.0.0", stream(s), seq, seq)
			if _, err := nc.RequestWithContext(ctx, subject, []byte("-NAK")); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestConformance(t *testing.T) {
	brokertest.Run(t, newHarness(t, false))
}
