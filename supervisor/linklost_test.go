package supervisor

import (
	"log/slog"
	"testing"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// A connection that was lost is closed when the last of its subscriptions is,
// though one of them has not noticed yet when another dials again.
func TestLostConnectionIsClosedBehindItsLastSubscription(t *testing.T) {
	b := memory.NewBroker(memory.Options{})
	d := &memory.Driver{Broker: b}
	plan, faults := d.Parse(&pb.ConsumerSpec{Source: &pb.Source{Broker: &pb.Source_Memory{Memory: &pb.MemorySource{Queue: "q"}}}})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	l := newLink(&pb.Connection{Name: "main"}, d, brokers.Env{Log: slog.New(slog.DiscardHandler)}, func() float64 { return 1 })
	subscribe := func() (end func()) {
		s, leave, err := l.subscribe(t.Context(), plan.Source, observer{})
		if err != nil {
			t.Fatal(err)
		}
		return func() {
			if _, err := s.Close(t.Context(), nil); err != nil {
				t.Error(err)
			}
			leave()
		}
	}
	unaware := subscribe()
	lost := l.conn
	b.Lose()
	again := subscribe()
	if l.conn == lost || len(l.closings) > 0 {
		t.Errorf("dialled again: %t, closings: %d", l.conn != lost, len(l.closings))
	}
	unaware()
	again()
	if len(l.closings) != 1 {
		t.Errorf("%d closings under way, want the lost connection's", len(l.closings))
	}
	if err := l.close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := b.Misuse(); err != nil {
		t.Error(err)
	}
}
