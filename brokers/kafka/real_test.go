package kafka

import (
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-111f5b8e/supervisord/brokers/brokertest"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	node "github.com/seed-111f5b8e/supervisord/test/node/kafka"
)

// newReal starts a real Kafka.
func newReal(t *testing.T, change func(*supervisorv1.KafkaSource)) *harness {
	t.Helper()
	n, err := node.Start(t.Context(), node.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Kill)
	t.Logf("Kafka %s", n.Version())
	return &harness{
		gate: newGate(new(net.Dialer).DialContext), admin: []kgo.Opt{kgo.SeedBrokers(n.Broker())}, brokers: []string{n.SASLBroker()},
		user: node.User, password: node.Password, change: change, real: n, features: features(change, faultsOf()),
	}
}

func TestConformanceOnKafka(t *testing.T) {
	for name, change := range protocols() {
		t.Run(name, func(t *testing.T) {
			brokertest.Run(t, newReal(t, change))
		})
	}
}
