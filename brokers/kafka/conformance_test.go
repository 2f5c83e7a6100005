package kafka

import (
	"testing"

	"github.com/seed-111f5b8e/supervisord/brokers/brokertest"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

func TestConformanceOnFake(t *testing.T) {
	for name, change := range map[string]func(*supervisorv1.KafkaSource){
		"cooperative": nil,
		"eager":       func(k *supervisorv1.KafkaSource) { k.Balancer = supervisorv1.KafkaBalancer_KAFKA_BALANCER_RANGE },
	} {
		t.Run(name, func(t *testing.T) {
			h := newFake(change)
			defer h.Close()
			brokertest.Run(t, h)
		})
	}
}
