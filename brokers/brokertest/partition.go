package brokertest

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

func partitions() []behaviour {
	several := func(f Features) bool { return f.Partitions }
	return []behaviour{
		{name: "PartitionsKeepOrder", run: partitionsKeepOrder, needs: several},
		{name: "RevokeHandsOver", run: revokeHandsOver, needs: several},
		{name: "RevokedIsFenced", run: revokedIsFenced, needs: several},
		{name: "AssignedAgainIsNew", run: assignedAgainIsNew, needs: several},
	}
}

// keyed adds n messages with keys that spread over the partitions.
func (r *run) keyed(s *supervisorv1.ConsumerSpec, first, n int) {
	r.Helper()
	ms := make([]Message, n)
	for k := range ms {
		ms[k] = Message{Key: fmt.Appendf(nil, "key-%d", k%16), Body: []byte(body(first + k))}
	}
	r.publishAll(s, ms)
}

// Each partition is an origin of its own, with an index from 0, and keeps its
// order.
func partitionsKeepOrder(r *run) {
	s := r.source(SourceOptions{Partitions: 4})
	r.keyed(s, 0, 100)
	i := r.subscribe(s)
	if !i.Capabilities().Partitions {
		r.Error("the source has 4 partitions, but the capability is not told")
	}
	ds := i.receive(100)
	last := make(map[*brokers.Origin]*brokers.Delivery)
	names, indexes := make(map[string]bool), make(map[int]bool)
	for _, d := range ds {
		if before := last[d.Origin]; before != nil && before.Position >= d.Position {
			r.Errorf("%s: position %d follows %d", d.Origin.Name, d.Position, before.Position)
		}
		last[d.Origin] = d
		names[d.Origin.Name], indexes[d.Origin.Index] = true, true
		if d.Origin.Index < 0 || d.Origin.Index > 3 {
			r.Errorf("the index of %s is %d", d.Origin.Name, d.Origin.Index)
		}
	}
	if len(last) < 2 || len(names) != len(last) || len(indexes) != len(last) {
		r.Errorf("%d origins with %d names and %d indexes", len(last), len(names), len(indexes))
	}
	i.settle(brokers.Ack, ds...)
	i.end()
	r.settled(s)
}

// Before partitions move Revoke is called, and what is settled by its return
// stays so: each message is handled once.
func revokeHandsOver(r *run) {
	s := r.source(SourceOptions{Partitions: 4})
	r.keyed(s, 0, 40)
	i := r.subscribe(s)
	ds := i.receive(40)
	revoked := make(chan []string, 16)
	i.observer.onRevoke(func(_ context.Context, origins []*brokers.Origin) {
		mine := of(ds, origins)
		if err := i.trySettle(brokers.Ack, mine...); err == nil {
			revoked <- texts(mine)
		} else {
			r.Errorf("settle within Revoke: %v", r.saw(err))
		}
	})
	next := r.subscribe(s)
	done := r.untilRevoked(i, next, revoked)
	i.observer.onRevoke(nil)
	r.keyed(s, 40, 40)
	theirs := r.both(i, next, 40)
	r.same("what came after the hand-over", theirs, bodies(40, 40))
	i.settle(brokers.Ack, slices.DeleteFunc(ds, func(d *brokers.Delivery) bool { return slices.Contains(done, string(d.Body)) })...)
	next.end()
	i.end()
	r.settled(s)
}

// untilRevoked keeps both members going until something was revoked; nothing may
// be delivered meanwhile.
func (r *run) untilRevoked(i, next *intake, revoked <-chan []string) []string {
	r.Helper()
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	for ctx.Err() == nil {
		for _, in := range []*intake{i, next} {
			in.quiet()
		}
		select {
		case done := <-revoked:
			return done
		default:
		}
	}
	r.Fatal("a second member joined, but nothing was revoked")
	return nil
}

// of are the deliveries of some origins.
func of(ds []*brokers.Delivery, origins []*brokers.Origin) []*brokers.Delivery {
	return slices.DeleteFunc(slices.Clone(ds), func(d *brokers.Delivery) bool { return !slices.Contains(origins, d.Origin) })
}

// both receives n messages on two members together, and acks them.
func (r *run) both(a, b *intake, n int) []string {
	r.Helper()
	var got []string
	all, cancel := r.within(r.features.Patience)
	defer cancel()
	for len(got) < n && all.Err() == nil {
		for _, i := range []*intake{a, b} {
			ctx, cancel := r.within(r.features.Quiet / 4)
			batch, err := i.Receive(ctx, plenty(n))
			cancel()
			if err != nil {
				continue
			}
			i.settle(brokers.Ack, refs(batch)...)
			got = append(got, texts(refs(batch))...)
		}
	}
	return got
}

// Settlements of a partition that has moved have no effect, are counted, and its
// messages come to the new owner.
func revokedIsFenced(r *run) {
	s := r.source(SourceOptions{Partitions: 4})
	r.keyed(s, 0, 40)
	i := r.subscribe(s)
	ds := i.receive(40)
	revoked := make(chan []*brokers.Delivery, 16)
	i.observer.onRevoke(func(_ context.Context, origins []*brokers.Origin) { revoked <- of(ds, origins) })
	next := r.subscribe(s)
	first := next.receive(1)
	late := <-revoked
	i.settle(brokers.Ack, late...)
	// Where all partitions are given up at each rebalance, some come back.
	rest := r.both(i, next, len(late)-1)
	r.same("what the new owners get", append(texts(first), rest...), texts(late))
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	rep, err := i.Hold(ctx, nil)
	r.ok("hold", err)
	if rep.OwnershipLost != len(late) {
		r.Errorf("%d settlements came too late, but the report is %+v", len(late), rep)
	}
	next.settle(brokers.Ack, first...)
	i.settle(brokers.Ack, slices.DeleteFunc(ds, func(d *brokers.Delivery) bool { return slices.Contains(late, d) })...)
	next.end()
	i.end()
	r.settled(s)
}

// A partition that comes back is a new origin.
func assignedAgainIsNew(r *run) {
	s := r.source(SourceOptions{Partitions: 2})
	r.keyed(s, 0, 20)
	i := r.subscribe(s)
	ds := i.receive(20)
	i.settle(brokers.Ack, ds...)
	i.hold()
	i.flow()
	old := make(map[string]*brokers.Origin)
	revoked := make(chan []*brokers.Origin, 16)
	for _, d := range ds {
		old[d.Origin.Name] = d.Origin
	}
	i.observer.onRevoke(func(_ context.Context, origins []*brokers.Origin) { revoked <- origins })
	next := r.subscribe(s)
	r.keyed(s, 20, 20)
	r.same("what both get", r.both(i, next, 20), bodies(20, 20))
	moved := <-revoked
	i.observer.onRevoke(nil)
	next.end()
	i.quiet() // what is taken before all is assigned would come again, where all is given up
	r.keyed(s, 40, 20)
	again := i.receive(20)
	r.same("what comes after the other left", texts(again), bodies(40, 20))
	for _, d := range again {
		if was := old[d.Origin.Name]; slices.Contains(moved, was) == (was == d.Origin) {
			r.Errorf("%s moved: %v, but its origin is the same: %v", d.Origin.Name, slices.Contains(moved, was), was == d.Origin)
		}
	}
	i.settle(brokers.Ack, again...)
	i.end()
	r.settled(s)
}
