package main

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestWindow(t *testing.T) {
	w := newWindow()
	w.next = 11 // ten were delivered
	for _, step := range []struct {
		tag       uint64
		multiple  bool
		ok        bool
		unsettled int
	}{
		{tag: 0, multiple: true, ok: false, unsettled: 10},
		{tag: 3, ok: true, unsettled: 9},
		{tag: 3, ok: false, unsettled: 9},
		{tag: 1, ok: true, unsettled: 8},
		{tag: 2, ok: true, unsettled: 7},
		{tag: 3, multiple: true, ok: false, unsettled: 7},
		{tag: 8, ok: true, unsettled: 6},
		{tag: 7, multiple: true, ok: true, unsettled: 2},
		{tag: 11, ok: false, unsettled: 2},
		{tag: 10, multiple: true, ok: true, unsettled: 0},
	} {
		if ok := w.settle(step.tag, step.multiple); ok != step.ok || w.unsettled() != step.unsettled {
			t.Errorf("settle %d, multiple %v: %v with %d unsettled, want %v with %d",
				step.tag, step.multiple, ok, w.unsettled(), step.ok, step.unsettled)
		}
	}
}

// The stub delivers no more than the prefetch, and refuses as a broker does.
func TestStubHoldsItsWindowAndRefusesUnknownTags(t *testing.T) {
	const prefetch = 10
	conn, err := (rabbitServer{url: startStub(t).url(), user: "bench", password: "bench"}).dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // the stub is about to end
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	if err := ch.Qos(prefetch, 0, false); err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume(endlessQueue, "test", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	var last amqp.Delivery
	for want := range uint64(prefetch) {
		if last = <-deliveries; last.DeliveryTag != want+1 || len(last.Body) != amqpBody {
			t.Fatalf("delivery %d with %d bytes, want %d with %d", last.DeliveryTag, len(last.Body), want+1, amqpBody)
		}
	}
	// The answer comes behind whatever was delivered before.
	if _, err := ch.QueueDeclarePassive(endlessQueue, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	select {
	case d := <-deliveries:
		t.Errorf("delivery %d is beyond the prefetch", d.DeliveryTag)
	default:
	}
	if err := last.Ack(true); err != nil {
		t.Fatal(err)
	}
	if d := <-deliveries; d.DeliveryTag != prefetch+1 {
		t.Errorf("after the ack comes delivery %d, want %d", d.DeliveryTag, prefetch+1)
	}
	if err := last.Ack(false); err != nil {
		t.Fatal(err)
	}
	if err := <-closed; err == nil || err.Code != amqp.PreconditionFailed {
		t.Errorf("a second ack ended the channel with %v, want %d", err, amqp.PreconditionFailed)
	}
}
