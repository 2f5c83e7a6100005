package brokertest

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

func receiving() []behaviour {
	return []behaviour{
		{name: "ReceiveWithinMessages", run: receiveWithinMessages},
		{name: "ReceiveWithinBytes", run: receiveWithinBytes},
		{name: "ReceiveLargeAlone", run: receiveLargeAlone},
		{name: "ReceiveWakes", run: receiveWakes},
		{name: "ReceiveCancelled", run: receiveCancelled},
		{name: "DeliveryFields", run: deliveryFields},
		{name: "DeliveryIdentity", run: deliveryIdentity},
	}
}

// A batch never has more than max.Messages, and deliveries of one origin come in
// the broker's order.
func receiveWithinMessages(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 50)
	i := r.subscribe(s)
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	var got []*brokers.Delivery
	for len(got) < 50 {
		batch, err := i.Receive(ctx, plenty(7))
		r.ok("receive", err)
		r.checkBatch(batch, plenty(7))
		got = append(got, refs(batch)...)
	}
	r.inOrder("deliveries", texts(got), bodies(0, 50))
	i.settle(brokers.Ack, got...)
	i.end()
	r.settled(s)
}

// A batch never has more than max.Bytes.
func receiveWithinBytes(r *run) {
	s := r.source(SourceOptions{})
	ms := make([]Message, 20)
	for k := range ms {
		ms[k].Body = append([]byte(body(k)), bytes.Repeat([]byte{'.'}, 1000)...)
	}
	r.publishAll(s, ms)
	i := r.subscribe(s)
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	limit := brokers.Credit{Messages: 100, Bytes: 3500}
	var got []*brokers.Delivery
	for len(got) < len(ms) {
		batch, err := i.Receive(ctx, limit)
		r.ok("receive", err)
		r.checkBatch(batch, limit)
		got = append(got, refs(batch)...)
	}
	i.settle(brokers.Ack, got...)
	i.end()
	r.settled(s)
}

// A single message larger than max.Bytes passes, and alone.
func receiveLargeAlone(r *run) {
	s := r.source(SourceOptions{})
	large := bytes.Repeat([]byte{'x'}, 5000)
	r.publishAll(s, []Message{{Body: []byte("a")}, {Body: large}, {Body: []byte("b")}})
	i := r.subscribe(s)
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	limit := brokers.Credit{Messages: 10, Bytes: 1000}
	var got []*brokers.Delivery
	for len(got) < 3 {
		batch, err := i.Receive(ctx, limit)
		r.ok("receive", err)
		r.checkBatch(batch, limit)
		got = append(got, refs(batch)...)
	}
	r.inOrder("deliveries", texts(got), []string{"a", string(large), "b"})
	i.settle(brokers.Ack, got...)
}

// Receive blocks while there is nothing, and returns at once when a message is
// published.
func receiveWakes(r *run) {
	s := r.source(SourceOptions{})
	i := r.subscribe(s)
	i.quiet()
	came := make(chan error, 1)
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	go func() {
		batch, err := i.Receive(ctx, plenty(10))
		if err == nil {
			err = i.trySettle(brokers.Ack, refs(batch)...)
		}
		came <- err
	}()
	r.publish(s, 0, 1)
	published := time.Now()
	r.ok("receive what was published meanwhile", <-came)
	if took := time.Since(published); took > r.features.Prompt {
		r.Errorf("Receive returned %v after the publication, want at most %v", took, r.features.Prompt)
	}
	i.end()
	r.settled(s)
}

// When ctx ends, Receive returns its error, the subscription goes on, and what
// arrives in that moment is neither lost nor delivered twice.
func receiveCancelled(r *run) {
	const n = 60
	s := r.source(SourceOptions{})
	i := r.subscribe(s)
	all, cancel := r.within(r.features.Patience)
	defer cancel()
	published := make(chan error, 1)
	go func() {
		var err error
		for k := 0; k < n && err == nil; k++ {
			err = r.h.Publish(all, s, []Message{{Body: []byte(body(k))}})
		}
		published <- err
	}()
	var got []*brokers.Delivery
	for len(got) < n && all.Err() == nil {
		ctx, cancel := context.WithTimeout(all, time.Millisecond)
		batch, err := i.Receive(ctx, plenty(3))
		cancel()
		if err != nil && !timedOut(r.saw(err)) {
			r.Fatalf("a Receive whose context ended returned %v", err)
		}
		got = append(got, refs(batch)...)
	}
	r.ok("publish", <-published)
	r.inOrder("deliveries over many contexts", texts(got), bodies(0, n))
	i.settle(brokers.Ack, got...)
	i.quiet()
	i.end()
	r.settled(s)
}

// A delivery carries what was published: key, headers, id, and a size that counts
// them.
func deliveryFields(r *run) {
	s := r.source(SourceOptions{})
	m := Message{ID: "id-1", Key: []byte("k"), Body: []byte("v"), Headers: []brokers.Header{{Name: "tenant", Value: "shop"}}}
	r.publishAll(s, []Message{m})
	i := r.subscribe(s)
	d := i.receive(1)[0]
	if string(d.Body) != "v" || d.Attempt != 0 || d.Redelivered != 0 || d.Subject == "" {
		r.Errorf("the first delivery is %+v", d)
	}
	if r.features.Keys && string(d.Key) != "k" {
		r.Errorf("key %q", d.Key)
	}
	if r.features.Names && d.Name != "id-1" {
		r.Errorf("name %q", d.Name)
	}
	if _, ok := d.Headers.Get("absent"); ok {
		r.Error("a header that was not published is there")
	}
	if r.features.Headers {
		if v, ok := d.Headers.Get("tenant"); !ok || v != "shop" {
			r.Errorf("header %q, %v", v, ok)
		}
		found := false
		for name, value := range d.Headers.All() {
			found = found || name == "tenant" && value == "shop"
		}
		if !found {
			r.Error("All does not yield the header")
		}
		if d.Size < int64(len("v")+len("tenant")+len("shop")) {
			r.Errorf("size %d does not count the headers", d.Size)
		}
	}
	i.settle(brokers.Ack, d)
}

// Deliveries of one origin share one Origin with rising positions, and body and
// headers stay readable after settlement.
func deliveryIdentity(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 10)
	i := r.subscribe(s)
	ds := i.receive(10)
	for k, d := range ds {
		if d.Origin != ds[0].Origin || d.Origin.Index != 0 {
			r.Errorf("origins %+v and %+v", d.Origin, ds[0].Origin)
		}
		if k > 0 && d.Position <= ds[k-1].Position {
			r.Errorf("position %d follows %d", d.Position, ds[k-1].Position)
		}
	}
	if names := slices.Sorted(slices.Values(ids(ds))); len(slices.Compact(names)) != len(ds) {
		r.Errorf("ids are not distinct: %v", ids(ds))
	}
	i.settle(brokers.Ack, ds...)
	i.end()
	r.inOrder("bodies after settlement", texts(ds), bodies(0, 10))
	r.settled(s)
}
