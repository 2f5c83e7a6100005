package kafka

import (
	"testing"

	"github.com/seed-111f5b8e/supervisord/brokers/brokertest"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// protocols are the ways in which a group shares its partitions.
func protocols() map[string]func(*supervisorv1.KafkaSource) {
	return map[string]func(*supervisorv1.KafkaSource){
		"cooperative": nil,
		"eager": func(k *supervisorv1.KafkaSource) {
			k.Balancer = supervisorv1.KafkaBalancer_KAFKA_BALANCER_RANGE
		},
		"consumer protocol": func(k *supervisorv1.KafkaSource) {
			k.Protocol, k.SessionTimeout, k.HeartbeatInterval = supervisorv1.KafkaProtocol_KAFKA_PROTOCOL_CONSUMER, nil, nil
		},
	}
}

func TestConformanceOnFake(t *testing.T) {
	for name, change := range protocols() {
		t.Run(name, func(t *testing.T) {
			brokertest.Run(t, newFake(change))
		})
	}
}

func TestConformanceInVirtualTime(t *testing.T) {
	for name, change := range protocols() {
		t.Run(name, func(t *testing.T) {
			brokertest.RunInBubbles(t, func() brokertest.Harness { return newFake(change) })
		})
	}
}
