package memory_test

import (
	"context"
	"testing"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

func specOf(connection, queue string) *supervisorv1.ConsumerSpec {
	return &supervisorv1.ConsumerSpec{Source: &supervisorv1.Source{
		Connection: connection,
		Broker:     &supervisorv1.Source_Memory{Memory: &supervisorv1.MemorySource{Queue: queue}},
	}}
}

func open(t testing.TB, b *memory.Broker, connection string) brokers.Conn {
	t.Helper()
	d := &memory.Driver{Broker: b}
	c, err := d.Open(context.Background(), &supervisorv1.Connection{Name: connection}, brokers.Env{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func subscribe(t testing.TB, b *memory.Broker, connection, queue string) brokers.Subscription {
	t.Helper()
	p, faults := (&memory.Driver{Broker: b}).Parse(specOf(connection, queue))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	s, err := open(t, b, connection).Subscribe(context.Background(), p.Source, silent{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
