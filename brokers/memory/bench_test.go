package memory_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// silent is an observer that does nothing.
type silent struct{}

func (silent) Revoke(context.Context, []*brokers.Origin)          {}
func (silent) Condition(supervisorv1.ConditionType, bool, string) {}

// BenchmarkEndless takes and acks batches of an endless queue: what the driver
// costs a benchmark of the core. ns/op and B/op are per message.
func BenchmarkEndless(b *testing.B) {
	for _, n := range []int{32, 256, 1000} {
		for _, partitions := range []int{0, 8} {
			b.Run(fmt.Sprintf("batch=%d/partitions=%d", n, partitions), func(b *testing.B) {
				broker := memory.NewBroker(memory.Options{})
				q := memory.QueueOptions{Endless: []memory.Message{{Key: []byte("k"), Body: make([]byte, 100)}}, Partitions: partitions}
				if err := broker.Create("q", q); err != nil {
					b.Fatal(err)
				}
				run(b, broker, n)
			})
		}
	}
}

// BenchmarkQueue takes and acks batches of a queue with single acks.
func BenchmarkQueue(b *testing.B) {
	broker := memory.NewBroker(memory.Options{Forget: true})
	if err := broker.Create("q", memory.QueueOptions{}); err != nil {
		b.Fatal(err)
	}
	if err := broker.Publish("q", make([]memory.Message, b.N+1000)...); err != nil {
		b.Fatal(err)
	}
	run(b, broker, 256)
}

func run(b *testing.B, broker *memory.Broker, n int) {
	ctx := context.Background()
	s := subscribe(b, broker, "main", "q")
	settlements := make([]brokers.Settlement, 0, n)
	b.ReportAllocs()
	b.ResetTimer()
	for left := b.N; left > 0; {
		batch, err := s.Receive(ctx, brokers.Credit{Messages: n, Bytes: 1 << 40})
		if err != nil {
			b.Fatal(err)
		}
		settlements = settlements[:0]
		for i := range batch {
			settlements = append(settlements, brokers.Settlement{Delivery: &batch[i], Outcome: brokers.Ack})
		}
		if err := s.Settle(ctx, settlements); err != nil {
			b.Fatal(err)
		}
		left -= len(batch)
	}
}
