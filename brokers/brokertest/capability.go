package brokertest

import (
	"bytes"
	"context"
	"fmt"
	"runtime"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

func capabilities() []behaviour {
	return []behaviour{
		{name: "CapabilitiesAreTold", run: capabilitiesAreTold},
		{name: "BoundsAreTold", run: boundsAreTold},
		{name: "GiveBackCounts", run: giveBackCounts, needs: func(f Features) bool { return f.DeliveryLimit }},
		{name: "MembershipWhileHeld", run: membershipWhileHeld, needs: func(f Features) bool { return f.Members }},
		{name: "Lag", run: lag},
		{name: "GoroutinesEnd", run: goroutinesEnd},
	}
}

// Capabilities are known from the start, and say in words what pausing does.
func capabilitiesAreTold(r *run) {
	i := r.subscribe(r.source(SourceOptions{}))
	c := i.Capabilities()
	if c.Pause == "" {
		r.Error("nothing is said of what pause does")
	}
	if c.Partitions {
		r.Errorf("a source with one partition claims several: %+v", c)
	}
	i.end()
}

// MessagesHard and BytesHard are true where the driver takes no more than the
// credit, and only there.
func boundsAreTold(r *run) {
	const n = 40
	s := r.source(SourceOptions{})
	ms := make([]Message, n)
	for k := range ms {
		ms[k].Body = bytes.Repeat([]byte{'.'}, 1000)
	}
	r.publishAll(s, ms)
	i := r.subscribe(s)
	c := i.Capabilities()
	taken := func(limit brokers.Credit) int {
		r.Helper()
		ctx, cancel := r.within(r.features.Patience)
		defer cancel()
		batch, err := i.Receive(ctx, limit)
		r.ok("receive", err)
		r.checkBatch(batch, limit)
		rep := i.hold(refs(batch)...)
		i.flow()
		return rep.Returned
	}
	// What Receive returned and what came after it is within the one credit.
	if all := taken(plenty(2)); c.MessagesHard && all > 2 {
		r.Errorf("the messages bound is claimed to be hard, but the driver took %d for a credit of 2", all)
	}
	if all := taken(brokers.Credit{Messages: n, Bytes: 2500}); c.BytesHard && all > 2 {
		r.Errorf("the bytes bound is claimed to be hard, but the driver took %d messages of 1000 bytes for 2500", all)
	}
	i.end()
	r.remains(s, n)
}

// GiveBackCounts is true where giving a message back often enough makes the
// broker take it away, and only there.
func giveBackCounts(r *run) {
	const limit = 3
	s := r.source(SourceOptions{DeliveryLimit: limit})
	r.publish(s, 0, 1)
	i := r.subscribe(s)
	counts := i.Capabilities().GiveBackCounts
	for range limit {
		i.hold(i.receive(1)...)
		i.flow()
	}
	if counts {
		i.quiet()
		i.end()
		return
	}
	i.settle(brokers.Ack, i.receive(1)...)
	i.end()
	r.settled(s)
}

// Membership is true where a held subscription is still a member, and only there.
func membershipWhileHeld(r *run) {
	s := r.source(SourceOptions{})
	i := r.subscribe(s)
	i.quiet()
	r.members(s, 1)
	i.hold()
	if i.Capabilities().Membership {
		i.quiet()
		r.members(s, 1)
	} else {
		r.members(s, 0)
	}
	i.flow()
	i.quiet()
	r.members(s, 1)
	i.end()
	r.members(s, 0)
}

// Lag tells what waits at the broker and nobody has taken, where it is known.
func lag(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 7)
	i := r.subscribe(s)
	ds := i.receive(2)
	i.hold()
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	got, err := i.Lag(ctx)
	if !i.Capabilities().Lag {
		if r.saw(err) == nil {
			r.Errorf("Lag is not known, but told as %+v", got)
		}
		return
	}
	r.ok("lag", err)
	// Some brokers count a little later.
	r.eventually("lag", func(ctx context.Context) error {
		if got, err = i.Lag(ctx); err == nil && !got.Approximate && got.Messages != 5 {
			err = fmt.Errorf("lag is %+v, want 5", got)
		}
		return err
	})
	if i.Capabilities().Positions {
		i.lagOfPositions(ds, got)
	} else {
		i.settle(brokers.Ack, ds...)
	}
	i.end()
}

// lagOfPositions: of seven messages two were taken, which gave lag. What is acked
// above them counts as before, until nothing below is unfinished.
func (i *intake) lagOfPositions(ds []*brokers.Delivery, lag brokers.Lag) {
	i.r.Helper()
	want := func(when string, got brokers.Lag, uncommitted, gap int64) {
		if got.Gap != gap || got.Uncommitted != uncommitted && got.Uncommitted != -1 {
			i.r.Errorf("%s: lag is %+v, want %d above the committed position and a gap of %d", when, got, uncommitted, gap)
		}
	}
	ask := func() brokers.Lag {
		ctx, cancel := i.r.within(i.r.features.Patience)
		defer cancel()
		got, err := i.Lag(ctx)
		i.r.ok("lag", err)
		return got
	}
	want("taken", lag, 7, 2)
	i.settle(brokers.Ack, ds[1])
	want("the second acked", ask(), 7, 2)
	i.settle(brokers.Ack, ds[0])
	i.hold() // which commits
	got := ask()
	if want("both acked", got, 5, 0); got.Uncommitted != 5 {
		i.r.Errorf("after a commit %d is above the committed position, want 5", got.Uncommitted)
	}
}

// Subscriptions that were closed leave no goroutine behind.
func goroutinesEnd(r *run) {
	const rounds = 20
	s := r.source(SourceOptions{})
	r.publish(s, 0, rounds)
	use := func() {
		i := r.subscribe(s)
		i.settle(brokers.Ack, i.receive(1)...)
		i.end()
	}
	use()
	before := runtime.NumGoroutine()
	for range rounds - 1 {
		use()
	}
	r.eventually("goroutines end", func(context.Context) error {
		if now := runtime.NumGoroutine(); now > before {
			return fmt.Errorf("%d goroutines after %d subscriptions, %d after the first", now, rounds, before)
		}
		return nil
	})
	r.settled(s)
}
