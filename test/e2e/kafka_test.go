package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-111f5b8e/supervisord/test/node/kafka"
	"github.com/twmb/franz-go/pkg/kgo"
)

// kafkaFixture has a topic of 12 partitions and a group for every consumer, on
// the node that all of this package's tests share.
type kafkaFixture struct {
	node   *kafka.Node
	prefix string
	client *kgo.Client
	// more is added to every source.
	more string
}

const partitions = 12

func (*kafkaFixture) consumers() int { return 10 }

func (f *kafkaFixture) open(t *testing.T, names []string) {
	t.Helper()
	f.node = shared.kafka(t)
	f.prefix = strings.ReplaceAll(t.Name(), "/", ".") + "."
	var err error
	if f.client, err = kgo.NewClient(kgo.SeedBrokers(f.node.Broker())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.client.Close)
	for _, name := range names {
		if err := f.node.CreateTopic(t.Context(), f.prefix+name, partitions); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := f.node.DeleteTopic(context.WithoutCancel(t.Context()), f.prefix+name); err != nil {
				t.Error(err)
			}
		})
	}
}

func (f *kafkaFixture) connection() string {
	return fmt.Sprintf("kafka: {brokers: [%q]}", f.node.Broker())
}

func (f *kafkaFixture) source(name string) string {
	return fmt.Sprintf(`source:
  connection: main
  kafka: {topics: [%[1]q], group: %[1]q, session_timeout: 3s, heartbeat_interval: 500ms%[2]s}
ordering: KEY
lanes: 8`, f.prefix+name, f.more)
}

func (*kafkaFixture) keepsOrder() {}

func (f *kafkaFixture) publish(ctx context.Context, name, key, id string) error {
	return f.client.ProduceSync(ctx, &kgo.Record{Topic: f.prefix + name, Key: []byte(key), Value: []byte(id)}).FirstErr()
}

func (f *kafkaFixture) left(ctx context.Context, name string) (int, error) {
	ends, err := f.node.Ends(ctx, f.prefix+name)
	if err != nil {
		return 0, err
	}
	at, err := f.node.Committed(ctx, f.prefix+name, f.prefix+name)
	if err != nil {
		return 0, err
	}
	left := 0
	for p, end := range ends {
		left += int(end - at[p])
	}
	return left, nil
}

func (f *kafkaFixture) messages() string { return f.prefix + "c00" }

func (f *kafkaFixture) kill() { f.node.Kill() }

func (f *kafkaFixture) restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return f.node.Restart(ctx)
}

func (f *kafkaFixture) freeze() { f.node.Freeze() }
func (f *kafkaFixture) thaw()   { f.node.Thaw() }
