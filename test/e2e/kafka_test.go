package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-111f5b8e/supervisord/test/node/kafka"
	"github.com/twmb/franz-go/pkg/kgo"
)

// kafkaFixture has a topic of 12 partitions and a group for every consumer, or
// one for all, on the node that all of this package's tests share.
type kafkaFixture struct {
	// together: all consumers are one group on one topic.
	together bool
	// balancer of the groups; the default when empty.
	balancer string

	node   *kafka.Node
	prefix string
	client *kgo.Client

	mu sync.Mutex
	at map[place]string // what was confirmed, and where it is
}

// place of a record in the one topic.
type place struct {
	partition int32
	offset    int64
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
	f.at = map[place]string{}
	if f.together {
		names = names[:1]
	}
	for _, name := range names {
		if err := f.node.CreateTopic(t.Context(), f.topic(name), partitions); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := f.node.DeleteTopic(context.WithoutCancel(t.Context()), f.topic(name)); err != nil {
				t.Error(err)
			}
		})
	}
}

// topic of a consumer, and its group.
func (f *kafkaFixture) topic(name string) string {
	if f.together {
		return f.prefix + "all"
	}
	return f.prefix + name
}

func (f *kafkaFixture) connection() string {
	return fmt.Sprintf("kafka: {brokers: [%q]}", f.node.Broker())
}

func (f *kafkaFixture) source(name string) string {
	balancer := ""
	if f.balancer != "" {
		balancer = ", balancer: " + f.balancer
	}
	return fmt.Sprintf(`source:
  connection: main
  kafka: {topics: [%[1]q], group: %[1]q, session_timeout: 3s, heartbeat_interval: 500ms%[2]s}
ordering: KEY
lanes: 8`, f.topic(name), balancer)
}

func (*kafkaFixture) keepsOrder() {}

func (f *kafkaFixture) publish(ctx context.Context, name, key, id string) error {
	r, err := f.client.ProduceSync(ctx, &kgo.Record{Topic: f.topic(name), Key: []byte(key), Value: []byte(id)}).First()
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at[place{r.Partition, r.Offset}] = id
	return nil
}

func (f *kafkaFixture) left(ctx context.Context, name string) (int, error) {
	ends, err := f.node.Ends(ctx, f.topic(name))
	if err != nil {
		return 0, err
	}
	at, err := f.node.Committed(ctx, f.topic(name), f.topic(name))
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
