package brokertest

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

func closing() []behaviour {
	return []behaviour{
		{name: "CloseGivesBack", run: closeGivesBack},
		{name: "CloseHeld", run: closeHeld},
		{name: "CloseTwice", run: closeTwice},
		{name: "CloseTellsRepeats", run: closeTellsRepeats},
		{name: "CloseEndsReceive", run: closeEndsReceive},
		{name: "ClosedIsFenced", run: closedIsFenced},
		{name: "CloseRacesSettle", run: closeRacesSettle},
		{name: "CloseKeepsOrder", run: closeKeepsOrder, needs: func(f Features) bool { return f.Order }},
		{name: "CloseSparesOthers", run: closeSparesOthers},
		{name: "CloseWithoutTime", run: closeWithoutTime},
		{name: "SubscribeAgain", run: subscribeAgain},
		{name: "SubscribeMany", run: subscribeMany},
		{name: "SubscribeCancelled", run: subscribeCancelled},
	}
}

// Close gives back what is not settled, confirms what is, and keeps the position.
func closeGivesBack(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 20)
	i := r.subscribe(s)
	ds := i.receive(10)
	i.settle(brokers.Ack, ds[:4]...)
	rep := i.end(ds[4:]...)
	i.returned(rep, 6, 10)
	r.remains(s, 16)
	r.drained(s, bodies(4, 16))
}

// Close of a held intake gives back what was left running.
func closeHeld(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 6)
	i := r.subscribe(s)
	ds := i.receive(6)
	i.settle(brokers.Ack, ds[0])
	i.returned(i.hold(ds[3:]...), 3, 0)
	i.settle(brokers.Ack, ds[1])
	i.returned(i.end(ds[2]), 1, 0)
	r.drained(s, bodies(2, 4))
}

// Closed twice it reports nothing.
func closeTwice(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 2)
	i := r.subscribe(s)
	ds := i.receive(2)
	i.end(ds...)
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	rep, err := i.Close(ctx, ds)
	r.ok("close again", err)
	rep.Released = false // either answer is true
	if rep != (brokers.Report{}) {
		r.Errorf("closed twice it reports %+v", rep)
	}
	r.drained(s, bodies(0, 2))
}

// What was acked above a gap is told as repeating where the broker keeps a
// position, and does not come again where it keeps single acks.
func closeTellsRepeats(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 6)
	i := r.subscribe(s)
	ds := i.receive(6)
	i.settle(brokers.Ack, ds[0], ds[4], ds[5])
	rep := i.end(ds[1:4]...)
	i.returned(rep, 3, 0)
	want, again := 0, bodies(1, 3)
	if i.Capabilities().Positions {
		want, again = 2, bodies(1, 5)
	}
	if rep.WillRepeat != want {
		r.Errorf("WillRepeat is %d, want %d", rep.WillRepeat, want)
	}
	r.drained(s, again)
}

// A Receive that blocks ends when the subscription is closed.
func closeEndsReceive(r *run) {
	s := r.source(SourceOptions{})
	i := r.subscribe(s)
	i.quiet()
	ended := make(chan error, 1)
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	go func() {
		_, err := i.Receive(ctx, plenty(1))
		ended <- err
	}()
	i.end()
	r.class("Receive of a closed subscription", <-ended, brokers.Fenced)
}

// After Close nothing is delivered or settled, and what the new epoch has is not
// touched by what the old one says of the same messages.
func closedIsFenced(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 6)
	i := r.subscribe(s)
	old := i.receive(3)
	i.end(old...)
	next := r.subscribe(s)
	ds := next.receive(3)
	r.class("settle on a closed subscription", i.trySettle(brokers.Ack, old...), brokers.Fenced)
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	_, err := i.Receive(ctx, plenty(1))
	r.class("receive on a closed subscription", err, brokers.Fenced)
	r.class("flow on a closed subscription", i.Flow(ctx), brokers.Fenced)
	_, err = i.Hold(ctx, nil)
	r.class("hold on a closed subscription", err, brokers.Fenced)
	next.end(ds...)
	r.remains(s, 6)
	r.drained(s, bodies(0, 6))
}

// A Settle beside Close is confirmed by it, or Fenced and without effect.
func closeRacesSettle(r *run) {
	const n = 100
	s := r.source(SourceOptions{})
	r.publish(s, 0, n)
	i := r.subscribe(s)
	ds := i.receive(n)
	settled := make(chan int, 1)
	fenced := make(chan error, 1)
	go func() {
		k := 0
		for ; k < n/2; k += 5 {
			if err := i.trySettle(brokers.Ack, ds[k:k+5]...); err != nil {
				fenced <- err
				break
			}
		}
		settled <- k
	}()
	i.end(ds[n/2:]...)
	k := <-settled
	select {
	case err := <-fenced:
		r.class("settle beside close", err, brokers.Fenced)
	default:
	}
	r.remains(s, int64(n-k))
	r.drained(s, bodies(k, n-k))
}

// Order survives a hand-over: the next subscription gets what was given back
// first, in its old order.
func closeKeepsOrder(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 20)
	i := r.subscribe(s)
	ds := i.receive(10)
	i.settle(brokers.Ack, ds[:3]...)
	i.end(ds[3:]...)
	next := r.subscribe(s)
	again := next.receive(17)
	r.inOrder("after the hand-over", texts(again), bodies(3, 17))
	next.settle(brokers.Ack, again...)
	next.end()
	r.settled(s)
}

// Closing one subscription leaves those of other sources on its connection alone.
func closeSparesOthers(r *run) {
	s, other := r.source(SourceOptions{}), r.source(SourceOptions{})
	r.publish(s, 0, 5)
	r.publish(other, 100, 5)
	i, neighbour := r.subscribe(s), r.subscribe(other)
	ds, theirs := i.receive(5), neighbour.receive(5)
	i.end(ds...)
	neighbour.settle(brokers.Ack, theirs...)
	r.publish(other, 105, 5)
	neighbour.settle(brokers.Ack, neighbour.receive(5)...)
	neighbour.end()
	r.settled(other)
	r.drained(s, bodies(0, 5))
}

// Close whose context has ended gives back all the same, in the background.
func closeWithoutTime(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 5)
	i := r.subscribe(s)
	ds := i.receive(5)
	i.settle(brokers.Ack, ds[0])
	i.hold()
	ctx, cancel := context.WithCancelCause(r.Context())
	cancel(nil)
	i.closed = true
	rep, err := i.Close(ctx, ds[1:])
	r.note(err)
	i.returned(rep, 4, 0)
	r.class("settle after that", i.trySettle(brokers.Ack, ds[1]), brokers.Fenced)
	r.drained(s, bodies(1, 4))
}

// Subscribing and closing again and again loses nothing.
func subscribeAgain(r *run) {
	const rounds = 20
	s := r.source(SourceOptions{})
	r.publish(s, 0, rounds+10)
	var got []string
	for range rounds {
		i := r.subscribe(s)
		ds := i.receive(3)
		i.settle(brokers.Ack, ds[0])
		got = append(got, texts(ds[:1])...)
		i.end(ds[1:]...)
	}
	r.same("acked so far, each once", slices.Compact(slices.Sorted(slices.Values(got))), got)
	i := r.subscribe(s)
	rest := i.receive(10)
	i.settle(brokers.Ack, rest...)
	r.same("all of it", append(got, texts(rest)...), bodies(0, rounds+10))
	i.end()
	r.settled(s)
}

// Many subscriptions share a connection, each with a source of its own.
func subscribeMany(r *run) {
	const n = 20
	specs, intakes := make([]*supervisorv1.ConsumerSpec, n), make([]*intake, n)
	for k := range n {
		specs[k] = r.source(SourceOptions{})
		intakes[k] = r.subscribe(specs[k])
	}
	for k := range n {
		r.publish(specs[k], 10*k, 3)
	}
	for k, i := range intakes {
		ds := i.receive(3)
		r.inOrder("deliveries", texts(ds), bodies(10*k, 3))
		i.settle(brokers.Ack, ds...)
	}
	for k, i := range intakes {
		i.end()
		r.settled(specs[k])
	}
}

// Subscribe whose context has ended returns an error and leaves nothing behind.
func subscribeCancelled(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 5)
	ctx, cancel := context.WithCancelCause(r.Context())
	cancel(nil)
	if sub, err := r.conn.Subscribe(ctx, r.plan(s).Source, &observer{}); r.saw(err) == nil {
		r.Fatalf("Subscribe with an ended context returned %v", sub)
	}
	r.nobody(s)
	r.drained(s, bodies(0, 5))
}

// nobody waits until the broker knows no subscription, where that can be counted.
func (r *run) nobody(s *supervisorv1.ConsumerSpec) {
	r.Helper()
	if r.features.Members {
		r.members(s, 0)
	}
}

// members waits until the broker knows n subscriptions.
func (r *run) members(s *supervisorv1.ConsumerSpec, n int) {
	r.Helper()
	r.eventually("count the members", func(ctx context.Context) error {
		c, err := r.h.Count(ctx, s)
		if err == nil && c.Members != n {
			err = fmt.Errorf("the broker knows %d members, want %d", c.Members, n)
		}
		return err
	})
}
