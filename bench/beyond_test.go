package main

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/kafka"
	"github.com/seed-111f5b8e/supervisord/brokers/rabbitmq"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// What a message may allocate beyond a raw loop of the same client. On RabbitMQ
// each ack costs the client ten allocations, and how many messages share one
// depends on timing.
const (
	rabbitAllocationsBeyond = 3
	rabbitBytesBeyond       = 1000
	kafkaAllocationsBeyond  = 0.1
	kafkaBytesBeyond        = 560
)

// supervisedSpan returns what a message of a supervised consumer allocates.
func supervisedSpan(t *testing.T, d brokers.Driver, conn *pb.Connection, spec *pb.ConsumerSpec) (allocations, bytes float64) {
	t.Helper()
	s := newSpan(noop(), spanWarm, spanWarm+spanLength)
	h, err := supervise(t.Context(), d, conn, spec, s)
	if err != nil {
		t.Fatal(err)
	}
	defer closeHost(t, h)
	if _, err := h.verb(t.Context(), pb.Verb_VERB_RESUME, spec.GetName()); err != nil {
		t.Fatal(err)
	}
	return s.perMessage()
}

func TestMessagesOnRabbitMQCostLittleBeyondRaw(t *testing.T) {
	b := stubBench(startStub(t).url())
	client, err := b.server.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // the stub is about to end
	s := newSpan(nil, spanWarm, spanWarm+spanLength)
	l := &rabbitLoop{conn: client, queue: endlessQueue, multiple: 64, handle: func(*amqp.Delivery) { s.hit() }}
	if err := l.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	raw, rawBytes := s.perMessage()
	if err := l.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := b.server.connection()
	if err != nil {
		t.Fatal(err)
	}
	ours, oursBytes := supervisedSpan(t, rabbitmq.Driver{}, conn, b.spec(endlessQueue, 1))
	checkBeyond(t, raw, ours, rabbitAllocationsBeyond, rawBytes, oursBytes, rabbitBytesBeyond)
}

func TestMessagesOnKafkaCostLittleBeyondRaw(t *testing.T) {
	fake, err := newFakeKafka()
	if err != nil {
		t.Fatal(err)
	}
	defer fake.Close()
	broker := fake.ListenAddrs()[0]
	l, err := newKafkaLoop(broker, "raw")
	if err != nil {
		t.Fatal(err)
	}
	defer l.client.CloseAllowingRebalance()
	s := newSpan(nil, spanWarm, spanWarm+spanLength)
	l.handle = func(*kgo.Record) { s.hit() }
	if err := l.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	raw, rawBytes := s.perMessage()
	if err := l.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	ours, oursBytes := supervisedSpan(t, kafka.Driver{}, kafkaConnection(broker), kafkaCases()[0].spec("ours"))
	checkBeyond(t, raw, ours, kafkaAllocationsBeyond, rawBytes, oursBytes, kafkaBytesBeyond)
}

func checkBeyond(t *testing.T, raw, ours, most, rawBytes, oursBytes, mostBytes float64) {
	t.Helper()
	t.Logf("raw %.3f allocations and %.0f bytes per message, supervised %.3f and %.0f", raw, rawBytes, ours, oursBytes)
	if got := ours - raw; got > most {
		t.Errorf("%.3f allocations per message beyond raw, want at most %.1f", got, most)
	}
	if got := oursBytes - rawBytes; got > mostBytes {
		t.Errorf("%.0f bytes per message beyond raw, want at most %.0f", got, mostBytes)
	}
}
