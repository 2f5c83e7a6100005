package nats

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// What the driver allocates per message, beyond what the client does: next to
// nothing, for it allocates per batch.
func TestAllocations(t *testing.T) {
	const batch, most = 100, 0.15
	plan, faults := Driver{}.Parse(spec(nil))
	src, ok := plan.Source.(*source)
	if len(faults) > 0 || !ok {
		t.Fatal(faults)
	}
	in := &inbox{subject: "_INBOX.x."}
	s := &subscription{
		c: &conn{base: time.Now()}, src: src, origin: &brokers.Origin{Name: "ORDERS"}, in: in,
		wake: make(chan struct{}, 1), broken: make(chan struct{}), ackWait: src.ackWait,
	}
	msgs := make([]*nats.Msg, batch)
	for i := range msgs {
		msgs[i] = &nats.Msg{Subject: "orders.new", Reply: fmt.Sprintf("$JS.ACK.ORDERS.shop_orders.1.%d.%d.1700000000000000000.0", i+1, i+1), Data: make([]byte, 100)}
	}
	settle := make([]brokers.Settlement, 0, batch)
	allocs := testing.AllocsPerRun(200, func() {
		s.mu.Lock()
		for _, m := range msgs {
			s.arrive(in, m, s.c.now())
		}
		s.mu.Unlock()
		ds, err := s.take(brokers.Credit{Messages: batch, Bytes: 1 << 20})
		if err != nil || len(ds) != batch {
			t.Fatal(len(ds), err)
		}
		settle = settle[:0]
		for i := range ds {
			settle = append(settle, brokers.Settlement{Delivery: &ds[i], Outcome: brokers.Ack})
		}
		if err := s.Settle(t.Context(), settle); err != nil {
			t.Fatal(err)
		}
		s.c.out.items = s.c.out.items[:0]
		s.proved(s.ledger.numbers)
	})
	t.Logf("%.3f allocations per message", allocs/batch)
	if allocs/batch > most {
		t.Errorf("want at most %v", most)
	}
}
