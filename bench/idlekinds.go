package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-111f5b8e/supervisord/brokers/kafka"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	natsdriver "github.com/seed-111f5b8e/supervisord/brokers/nats"
	"github.com/seed-111f5b8e/supervisord/brokers/rabbitmq"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// idlePerStream is below the NATS server's default cap of 1,000 consumers.
const idlePerStream = 500

// idleKind is a driver and what its idle consumers need.
type idleKind struct {
	name string
	// n is how many consumers its goals are for, bytes how many one may hold with
	// the client; 0: no goal.
	n     int
	bytes int64
	// clientGoroutines: the client library has several for each consumer, which are
	// no concern of ours.
	clientGoroutines bool
	modules          []string
	// serve starts a broker with sources for n consumers.
	serve func(ctx context.Context, n int) (server string, end func() error, err error)
	setup func(n int, server string) (idleSetup, error)
}

func idleKinds() []idleKind {
	return []idleKind{
		{
			name: "memory", n: 10_000, setup: memoryIdle,
			serve: func(context.Context, int) (string, func() error, error) { return "", func() error { return nil }, nil },
		},
		{name: "nats", n: 1000, bytes: 28 << 10, modules: []string{"github.com/nats-io/nats.go"}, serve: idleNATS, setup: natsIdle},
		{
			name: "rabbitmq", n: 1000, bytes: 24 << 10, modules: []string{amqpModule}, setup: rabbitIdle,
			serve: func(ctx context.Context, _ int) (string, func() error, error) { return servePart(ctx, "amqp-server") },
		},
		{
			name: "kafka", n: 200, bytes: 180 << 10, clientGoroutines: true, modules: []string{kgoModule, kfakeModule}, setup: kafkaIdle,
			serve: func(ctx context.Context, _ int) (string, func() error, error) {
				return servePart(ctx, "kafka-server", "-idle")
			},
		},
	}
}

func idleNames() string {
	var names []string
	for _, k := range idleKinds() {
		names = append(names, k.name)
	}
	return strings.Join(names, ", ")
}

func idleKindOf(name string) (idleKind, error) {
	for _, k := range idleKinds() {
		if k.name == name {
			return k, nil
		}
	}
	return idleKind{}, fmt.Errorf("-driver %s: use one of %s", name, idleNames())
}

func servePart(ctx context.Context, args ...string) (string, func() error, error) {
	p, err := startPart(ctx, args...)
	if err != nil {
		return "", nil, err
	}
	return p.line, p.stop, nil
}

func idleName(i int) string { return "idle-" + strconv.Itoa(i) }

func memoryIdle(n int, _ string) (idleSetup, error) {
	s := idleSetup{driver: &memory.Driver{Broker: memory.NewBroker(memory.Options{})}, conn: memoryConnection()}
	for i := range n {
		s.specs = append(s.specs, newSpec(idleName(i), memorySource(idleName(i))))
	}
	return s, nil
}

// natsIdle makes n durables of their own on as few streams as the server's cap
// allows; the streams are there already.
func natsIdle(n int, url string) (idleSetup, error) {
	s := idleSetup{driver: natsdriver.Driver{}, conn: natsConnection(url)}
	for i := range n {
		s.specs = append(s.specs, newSpec(idleName(i), idleNATSSource(idleStream(i/idlePerStream), idleName(i))))
	}
	return s, nil
}

// idleNATSSource leaves all but names to the defaults.
func idleNATSSource(stream, name string) *pb.Source {
	return &pb.Source{Broker: &pb.Source_Nats{Nats: &pb.NatsSource{
		Stream: stream, Durable: name, FilterSubjects: []string{stream + "." + name},
	}}}
}

func idleStream(i int) string { return "IDLE" + strconv.Itoa(i) }

// idleNATS is a server with streams for n durables.
func idleNATS(ctx context.Context, n int) (url string, end func() error, err error) {
	s, err := startNATS(ctx)
	if err != nil {
		return "", nil, err
	}
	nc, err := nats.Connect(s.url)
	if err != nil {
		return "", nil, errors.Join(err, s.stop())
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	for i := 0; err == nil && i*idlePerStream < n; i++ {
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: idleStream(i), Subjects: []string{idleStream(i) + ".>"}, Storage: jetstream.MemoryStorage,
		})
	}
	if err != nil {
		return "", nil, errors.Join(err, s.stop())
	}
	return s.url, s.stop, nil
}

// rabbitIdle has n consumers on one connection, each on a queue of its own.
func rabbitIdle(n int, url string) (idleSetup, error) {
	conn, err := (rabbitServer{url: url, user: "bench", password: "bench"}).connection()
	if err != nil {
		return idleSetup{}, err
	}
	conn.GetRabbitmq().MaxConsumersPerConnection = new(int32(n))
	s := idleSetup{driver: rabbitmq.Driver{}, conn: conn}
	for i := range n {
		source := &pb.Source{Broker: &pb.Source_Rabbitmq{Rabbitmq: &pb.RabbitmqSource{Queue: idleName(i)}}}
		s.specs = append(s.specs, newSpec(idleName(i), source))
	}
	return s, nil
}

// kafkaIdle has n groups of one member, on the same topic.
func kafkaIdle(n int, broker string) (idleSetup, error) {
	s := idleSetup{driver: kafka.Driver{}, conn: kafkaConnection(broker)}
	for i := range n {
		source := &pb.Source{Broker: &pb.Source_Kafka{Kafka: &pb.KafkaSource{Topics: []string{idleTopic}, Group: idleName(i)}}}
		s.specs = append(s.specs, newSpec(idleName(i), source))
	}
	return s, nil
}
