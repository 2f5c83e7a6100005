package memory_test

import (
	"context"
	"slices"
	"testing"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

func TestParse(t *testing.T) {
	b := memory.NewBroker(memory.Options{})
	if err := b.Create("parts", memory.QueueOptions{Partitions: 4}); err != nil {
		t.Fatal(err)
	}
	subject := &supervisorv1.DeadLetter{Target: &supervisorv1.DeadLetter_Subject{Subject: "s"}}
	topic := func(name string) *supervisorv1.DeadLetter {
		return &supervisorv1.DeadLetter{Target: &supervisorv1.DeadLetter_Topic{Topic: name}}
	}
	tests := []struct {
		name, queue string
		ordering    supervisorv1.Ordering
		dead        *supervisorv1.DeadLetter
		want        []string // paths of the faults
	}{
		{name: "plain", queue: "q"},
		{name: "dead letters", queue: "q", dead: topic("q.dead")},
		{name: "no queue", want: []string{"source.memory.queue"}},
		{name: "partitions", queue: "parts", ordering: supervisorv1.Ordering_ORDERING_PARTITION},
		{name: "no partitions", queue: "q", ordering: supervisorv1.Ordering_ORDERING_PARTITION, want: []string{"ordering"}},
		{name: "subject", queue: "q", dead: subject, want: []string{"dead_letter"}},
		{name: "no target", queue: "q", dead: &supervisorv1.DeadLetter{}, want: []string{"dead_letter.topic"}},
		{name: "empty topic", queue: "q", dead: topic(""), want: []string{"dead_letter.topic"}},
		{name: "its own dead letters", queue: "q", dead: topic("q"), want: []string{"dead_letter.topic"}},
		{
			name: "all at once", ordering: supervisorv1.Ordering_ORDERING_PARTITION, dead: subject,
			want: []string{"source.memory.queue", "ordering", "dead_letter"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := specOf("main", test.queue)
			s.Ordering, s.DeadLetter = test.ordering, test.dead
			p, faults := (&memory.Driver{Broker: b}).Parse(s)
			var got []string
			for _, f := range faults {
				got = append(got, f.Path)
			}
			if !slices.Equal(got, test.want) {
				t.Fatalf("faults %v, want paths %v", faults, test.want)
			}
			if len(faults) == 0 && (p.Origin != "queue "+test.queue || (p.DeadLetter == nil) != (test.dead == nil)) {
				t.Errorf("plan %+v", p)
			}
		})
	}
}

func TestDriverOwnsABrokerPerConnection(t *testing.T) {
	ctx := context.Background()
	d := &memory.Driver{}
	conn := func(name string) brokers.Conn {
		c, err := d.Open(ctx, &supervisorv1.Connection{Name: name}, brokers.Env{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	lag := func(c brokers.Conn) int64 {
		p, _ := d.Parse(specOf("a", "q"))
		s, err := c.Subscribe(ctx, p.Source, silent{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close(ctx, nil) //nolint:errcheck // the lag is what counts
		l, err := s.Lag(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return l.Messages
	}
	a := conn("a")
	if err := a.Publish(ctx, []brokers.Publication{{Target: memory.Target("q"), Body: []byte("x")}}); err != nil {
		t.Fatalf("publish to a queue that is to be made: %v", err)
	}
	if err := a.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if got := lag(conn("a")); got != 1 {
		t.Errorf("after a reconnect the queue has %d messages, want 1", got)
	}
	if got := lag(conn("b")); got != 0 {
		t.Errorf("another connection sees %d messages, want 0", got)
	}
	if d.Kind() != "memory" {
		t.Errorf("kind %q", d.Kind())
	}
}

func TestForeignSourcesAndTargets(t *testing.T) {
	ctx := context.Background()
	c := open(t, memory.NewBroker(memory.Options{}), "main")
	if _, err := c.Subscribe(ctx, "queue", silent{}); brokers.ClassOf(err) != brokers.Refused {
		t.Errorf("subscribe to another driver's source: %v", err)
	}
	if err := c.Publish(ctx, []brokers.Publication{{}}); brokers.ClassOf(err) != brokers.Refused {
		t.Errorf("publish without a target: %v", err)
	}
}

func TestCreateTwice(t *testing.T) {
	b := memory.NewBroker(memory.Options{})
	if err := b.Create("q", memory.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := b.Create("q", memory.QueueOptions{}); err == nil {
		t.Error("a queue was made twice")
	}
	for what, err := range map[string]error{
		"delete": b.Delete("x"), "publish": b.Publish("x"), "forbid": b.Forbid("x", ""), "permit": b.Permit("x"),
		"redeliver": b.Redeliver("x"), "rebalance": b.Rebalance("x"), "rebalance without partitions": b.Rebalance("q"),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if d := b.Depth("x"); d != (memory.Depth{}) || b.History("x") != nil || b.Waiting("x") != nil || b.Committed("q") != nil {
		t.Error("a queue that is not there has something")
	}
	if got := b.Queues(); !slices.Equal(got, []string{"q"}) {
		t.Errorf("queues %v", got)
	}
}
