package memory_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/brokertest"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// harness lends one broker to the suite.
type harness struct {
	broker   *memory.Broker
	driver   *memory.Driver
	queue    memory.QueueOptions
	features brokertest.Features
	sources  int
	// loses: the driver does not dial again by itself.
	loses bool
}

func newHarness(o memory.QueueOptions, change func(*brokertest.Features)) *harness {
	b := memory.NewBroker(memory.Options{Queue: o})
	h := &harness{broker: b, driver: &memory.Driver{Broker: b}, queue: o}
	h.features = brokertest.Features{
		Faults: []brokertest.Fault{
			brokertest.Cut, brokertest.Freeze, brokertest.Thaw, brokertest.Kill, brokertest.Restart, brokertest.Delete,
			brokertest.Recreate, brokertest.Forbid, brokertest.Permit, brokertest.Redeliver, brokertest.Lose,
			brokertest.Block, brokertest.Unblock,
		},
		Credentials: true, Revokes: true, Create: true, Members: true, Order: true,
		Names: true, Keys: true, Headers: true,
		Quiet: 20 * time.Millisecond, Prompt: time.Second,
	}
	change(&h.features)
	b.RefuseCredentials("login refused for user guest", "refused")
	return h
}

func (h *harness) Driver() brokers.Driver        { return h.driver }
func (h *harness) Features() brokertest.Features { return h.features }
func (h *harness) Secrets() map[string]string    { return map[string]string{"env:PASSWORD": "canary-7f3"} }

func (h *harness) Connection(valid bool) *supervisorv1.Connection {
	name := "main"
	if !valid {
		name = "refused"
	}
	return &supervisorv1.Connection{Name: name, Broker: &supervisorv1.Connection_Memory{Memory: &supervisorv1.MemoryConnection{}}}
}

func (h *harness) Source(_ context.Context, o brokertest.SourceOptions) (*supervisorv1.ConsumerSpec, error) {
	h.sources++
	name := fmt.Sprintf("q%d", h.sources)
	q := h.queue
	if o.Partitions > 0 {
		q.Partitions = o.Partitions
	}
	q.AckTimeout, q.DeliveryLimit = o.AckDeadline, o.DeliveryLimit
	if !o.Absent {
		if err := h.broker.Create(name, q); err != nil {
			return nil, err
		}
		if !o.NoTarget {
			if err := h.broker.Create(name+".dead", memory.QueueOptions{}); err != nil {
				return nil, err
			}
		}
	}
	return &supervisorv1.ConsumerSpec{
		Namespace: "default", Name: name,
		Source: &supervisorv1.Source{
			Connection: "main",
			Broker:     &supervisorv1.Source_Memory{Memory: &supervisorv1.MemorySource{Queue: name, Missing: o.Missing}},
		},
		DeadLetter: &supervisorv1.DeadLetter{Target: &supervisorv1.DeadLetter_Topic{Topic: name + ".dead"}},
	}, nil
}

func queueOf(s *supervisorv1.ConsumerSpec) string { return s.GetSource().GetMemory().GetQueue() }

func (h *harness) Publish(_ context.Context, s *supervisorv1.ConsumerSpec, ms []brokertest.Message) error {
	out := make([]memory.Message, len(ms))
	for i, m := range ms {
		out[i] = memory.Message{ID: m.ID, Key: m.Key, Body: m.Body, Headers: m.Headers}
	}
	return h.broker.Publish(queueOf(s), out...)
}

func (h *harness) Count(_ context.Context, s *supervisorv1.ConsumerSpec) (brokertest.Count, error) {
	d := h.broker.Depth(queueOf(s))
	return brokertest.Count{Remaining: d.Waiting + d.Unacked, Members: d.Members}, nil
}

func (h *harness) DeadLetters(_ context.Context, s *supervisorv1.ConsumerSpec) ([]brokertest.Message, error) {
	var out []brokertest.Message
	for _, m := range h.broker.Waiting(queueOf(s) + ".dead") {
		out = append(out, brokertest.Message{ID: m.ID, Key: m.Key, Body: m.Body, Headers: m.Headers})
	}
	return out, nil
}

func (h *harness) Disturb(_ context.Context, f brokertest.Fault, s *supervisorv1.ConsumerSpec) error {
	b, q := h.broker, queueOf(s)
	if h.loses && (f == brokertest.Cut || f == brokertest.Kill) {
		b.Lose("main")
	}
	switch f {
	case brokertest.Cut:
		b.Cut("main")
		b.Heal("main")
	case brokertest.Freeze:
		b.Freeze("main")
	case brokertest.Thaw:
		b.Thaw("main")
	case brokertest.Kill:
		b.Cut("main")
	case brokertest.Restart:
		b.Heal("main")
	case brokertest.Delete:
		return b.Delete(q)
	case brokertest.Recreate:
		return b.Create(q, h.queue)
	case brokertest.Forbid:
		return b.Forbid(q, "access to queue refused")
	case brokertest.Permit:
		return b.Permit(q)
	case brokertest.Redeliver:
		return b.Redeliver(q)
	case brokertest.Lose:
		b.Lose("main")
	case brokertest.Block:
		b.Delay(memory.OpPublish, h.features.Quiet*3)
	case brokertest.Unblock:
		b.Delay(memory.OpPublish, 0)
	}
	return nil
}

// slow lets every call take its time.
func slow(h *harness) *harness {
	for op := memory.OpOpen; op <= memory.OpSeek; op++ {
		h.broker.Delay(op, 3*time.Millisecond)
	}
	return h
}

// losing makes a driver whose connections do not come back by themselves.
func losing(h *harness) *harness {
	h.loses = true
	return h
}

// kinds are the brokers that the memory broker can be.
func kinds() map[string]func() *harness {
	acks := func(f *brokertest.Features) {
		f.Delay, f.Redelivery, f.DeliveryLimit, f.AckDeadline = true, brokertest.Counted, true, 100*time.Millisecond
	}
	kind := func(o memory.QueueOptions, change func(*brokertest.Features)) func() *harness {
		return func() *harness { return newHarness(o, change) }
	}
	return map[string]func() *harness{
		"acks":                 kind(memory.QueueOptions{}, acks),
		"prefetch":             kind(memory.QueueOptions{Prefetch: 16}, acks),
		"quorum":               kind(memory.QueueOptions{Prefetch: 4, GiveBackCounts: true}, acks),
		"single active":        kind(memory.QueueOptions{SingleActive: true, LeaveOnHold: true}, acks),
		"positions":            kind(memory.QueueOptions{Partitions: 1}, func(f *brokertest.Features) { f.Partitions, f.Seek = true, true }),
		"prefetched positions": kind(memory.QueueOptions{Partitions: 1, Prefetch: 16}, func(f *brokertest.Features) { f.Partitions, f.Seek = true, true }),
	}
}

func TestConformance(t *testing.T) {
	for _, name := range []string{"prefetch", "positions"} {
		t.Run(name, func(t *testing.T) {
			h := kinds()[name]()
			brokertest.Run(t, h)
			if err := h.broker.Misuse(); err != nil {
				t.Errorf("the suite breaks the contract: %v", err)
			}
		})
	}
}

func TestConformanceInVirtualTime(t *testing.T) {
	for name, kind := range kinds() {
		t.Run(name, func(t *testing.T) {
			brokertest.RunInBubbles(t, func() brokertest.Harness { return kind() })
		})
		t.Run(name+", slow", func(t *testing.T) {
			brokertest.RunInBubbles(t, func() brokertest.Harness { return slow(kind()) })
		})
		t.Run(name+", losing", func(t *testing.T) {
			brokertest.RunInBubbles(t, func() brokertest.Harness { return losing(kind()) })
		})
	}
}
