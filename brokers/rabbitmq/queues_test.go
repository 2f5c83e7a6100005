package rabbitmq

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// Acks above a message that takes its time are sent all the same: else the broker
// would send no more.
func slowOneDoesNotHoldUpAcks(t *testing.T, s *server) {
	const n = 200
	r := newRig(t, s, "gap", classicQueue)
	r.publish(n)
	sub := r.subscribe(prefetch(5))
	slow := r.receive(sub, 1)
	for range n - 1 {
		r.settle(sub, brokers.Ack, r.receive(sub, 1))
	}
	poll(t, patience, "all acks arrive", func() bool {
		got, err := r.count(r.within(patience), r.queue)
		return err == nil && got == 1
	})
	r.settle(sub, brokers.Ack, slow)
	r.close(sub, nil)
	r.remains(r.queue, 0)
}

// A queue that goes with its last consumer is known as such, and a queue's kind is
// known whatever the spec says.
func autoDeleteIsTold(t *testing.T, s *server) {
	r := newRig(t, s, "plain", classicQueue)
	must(t, r.client(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare("auto", true, true, false, false, nil)
		return err
	}))
	sub := r.subscribe(func(_ *specT, in *sourceT) { in.Queue = "auto" })
	if p := sub.Capabilities().Pause; !strings.Contains(p, "deleted") {
		t.Errorf("pause of an auto-delete queue: %s", p)
	}
	r.close(sub, nil)
	sub = r.subscribe(nil) // says QUORUM
	if sub.Capabilities().GiveBackCounts {
		t.Error("the queue is a classic one")
	}
	r.close(sub, nil)
	_, err := r.conn.Subscribe(r.within(patience), r.plan(func(_ *specT, in *sourceT) { in.Queue = "auto" }).Source, nil)
	if brokers.ClassOf(err) != brokers.Missing {
		t.Errorf("the probe made the queue: %v", err)
	}
}

// A user who may only read consumes all the same, and a queue whose kind cannot be
// found out is taken for what the spec says.
func noRightToConfigure(t *testing.T, s *server) {
	r := newRig(t, s, "readonly", classicQueue)
	r.publish(1)
	must(t, s.Permit(r.within(patience), appUser, "/", "", "", ".*"))
	defer func() { must(t, s.Permit(r.within(patience), appUser, "/", ".*", ".*", ".*")) }()
	sub := r.subscribe(nil)
	if !sub.Capabilities().GiveBackCounts {
		t.Error("the spec says QUORUM, and nothing else is known")
	}
	r.close(sub, r.receive(sub, 1))
}

// Whatever one subscription asks for that the broker refuses, its neighbour on the
// connection goes on.
func oneFailsAlone(t *testing.T, s *server) {
	r := newRig(t, s, "neighbour", classicQueue)
	sub := r.subscribe(nil)
	for name, c := range map[string]struct {
		change func(*specT, *sourceT)
		want   brokers.Class
	}{
		"missing":   {func(_ *specT, in *sourceT) { in.Queue, in.Missing = "nosuch", missingFail }, brokers.Missing},
		"mismatch":  {func(_ *specT, in *sourceT) { in.Missing, in.Type = missingCreate, quorum }, brokers.Refused},
		"exclusive": {func(_ *specT, in *sourceT) { in.Exclusive = true }, brokers.Transient},
		"no binding": {func(_ *specT, in *sourceT) {
			in.Queue, in.Missing, in.Bindings = "bound", missingCreate, []*bindingT{{Exchange: "nosuch"}}
		}, brokers.Refused},
		"bad argument": {func(_ *specT, in *sourceT) {
			in.Queue, in.Missing, in.Arguments = "argued", missingCreate, arguments(t, map[string]any{"x-max-length": -1})
		}, brokers.Refused},
	} {
		_, err := r.conn.Subscribe(r.within(patience), r.plan(c.change).Source, nil)
		if got := brokers.ClassOf(err); got != c.want {
			t.Errorf("%s: class %v, want %v: %v", name, got, c.want, err)
		}
	}
	r.publish(1)
	r.settle(sub, brokers.Ack, r.receive(sub, 1))
	r.close(sub, nil)
}

// A consumer of a quorum queue with a delivery limit is paused again and again, at
// whatever moment, and finishes what it has taken each time: nothing is taken away
// unhandled. A message that the broker was about to send when it was told to cancel
// counts as delivered, and comes first when it goes on.
func pausesDoNotCount(t *testing.T, s *server) {
	const n, pauses = 400, 100
	must(t, s.client(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare("paused-dead", true, false, false, false, nil)
		return err
	}))
	r := newRig(t, s, "paused", amqp.Table{
		"x-queue-type": "quorum", "x-delivery-limit": 5, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "paused-dead",
	})
	r.publish(n)
	sub := r.subscribe(prefetch(50))
	shut, ok := sub.(brokers.Finisher)
	if !ok {
		t.Fatal("no Finisher")
	}
	got := map[string]int{}
	again := int32(0)
	handle := func(ds []brokers.Delivery) {
		for _, d := range ds {
			got[string(d.Body)]++
			again = max(again, d.Redelivered)
		}
		r.settle(sub, brokers.Ack, ds)
	}
	for i := range pauses {
		if i%3 == 0 && len(got) < n {
			handle(r.receive(sub, 1))
		}
		ds, err := shut.Shut(r.within(patience))
		must(t, err)
		handle(ds)
		_, err = sub.Hold(r.within(patience), nil)
		must(t, err)
		must(t, sub.Flow(r.within(patience)))
	}
	for len(got) < n {
		handle(r.receive(sub, 1))
	}
	r.close(sub, nil)
	t.Logf("a message was counted at most %d times in %d pauses", again, pauses)
	r.remains(r.queue, 0)
	r.remains("paused-dead", 0)
}
