package brokertest

import (
	"context"
	"errors"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

func breaking() []behaviour {
	survives := func(f Features) bool { return f.Survives }
	breaks := func(f Features) bool { return !f.Survives }
	return []behaviour{
		{name: "CutEndsReceive", run: cutEndsReceive, faults: []Fault{Cut}, needs: breaks},
		{name: "CutIsSurvived", run: cutIsSurvived, faults: []Fault{Cut}, needs: survives},
		{name: "CutKeepsWhatWasConfirmed", run: cutKeepsWhatWasConfirmed, faults: []Fault{Cut}},
		{name: "CutFencesOldTags", run: cutFencesOldTags, faults: []Fault{Cut}, needs: breaks},
		{name: "CutWhileHeld", run: cutWhileHeld, faults: []Fault{Cut}, needs: breaks},
		{name: "CutIsSurvivedWhileHeld", run: cutIsSurvivedWhileHeld, faults: []Fault{Cut}, needs: survives},
		{name: "FrozenCallsEnd", run: frozenCallsEnd, faults: []Fault{Freeze, Thaw}},
		{name: "FrozenSettlesAreUnconfirmed", run: frozenSettlesAreUnconfirmed, faults: []Fault{Freeze, Thaw}},
		{name: "FrozenCloseGoesOn", run: frozenCloseGoesOn, faults: []Fault{Freeze, Thaw}},
		{name: "FrozenCloseSparesOthers", run: frozenCloseSparesOthers, faults: []Fault{Freeze, Thaw}},
		{name: "KilledAndRestarted", run: killedAndRestarted, faults: []Fault{Kill, Restart}},
		{name: "LostConnection", run: lostConnection, faults: []Fault{Lose}},
	}
}

// gone are the classes of a broker that went away.
func gone() []brokers.Class { return []brokers.Class{brokers.Unreachable, brokers.Transient} }

// A Receive that blocks returns a classified error when the connection breaks,
// the subscription stays broken, and a new one gets everything unsettled.
func cutEndsReceive(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 5)
	i := r.subscribe(s)
	ds := i.receive(5)
	i.settle(brokers.Ack, ds[0])
	i.hold()
	i.flow()
	ended := make(chan error, 1)
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	go func() {
		_, err := i.Receive(ctx, plenty(1))
		ended <- err
	}()
	r.disturb(Cut, s)
	r.class("Receive of a cut connection", <-ended, gone()...)
	_, err := i.Receive(ctx, plenty(1))
	r.class("Receive after that", err, append(gone(), brokers.Fenced)...)
	r.class("settle after that", i.trySettle(brokers.Ack, ds[1]), brokers.Fenced)
	i.abandon(ds[1:]...)
	r.connected()
	r.drained(s, bodies(1, 4))
}

// Where a cut is survived, a Receive that blocks goes on, what was taken before is
// settled after, and nothing comes twice.
func cutIsSurvived(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 5)
	i := r.subscribe(s)
	ds := i.receive(5)
	i.settle(brokers.Ack, ds[0])
	i.quiet()
	r.disturb(Cut, s)
	r.publish(s, 5, 5)
	ds = append(ds, i.receive(5)...)
	r.inOrder("deliveries around the cut", texts(ds), bodies(0, 10))
	i.settle(brokers.Ack, ds[1:]...)
	i.hold()
	r.remains(s, 0)
	i.flow()
	i.quiet()
	i.end()
	r.settled(s)
}

// So it is while the intake is held: what was given back comes after Flow, and
// what ran is settled.
func cutIsSurvivedWhileHeld(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 5)
	i := r.subscribe(s)
	ds := i.receive(5)
	i.hold(ds[1:]...)
	r.disturb(Cut, s)
	i.quiet()
	i.settle(brokers.Ack, ds[0])
	i.flow()
	again := i.receive(4)
	r.inOrder("what was given back", texts(again), bodies(1, 4))
	i.settle(brokers.Ack, again...)
	i.end()
	r.settled(s)
}

// What a Hold confirmed before the cut does not come again; what it did not may.
func cutKeepsWhatWasConfirmed(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 20)
	i := r.subscribe(s)
	ds := i.receive(10)
	i.settle(brokers.Ack, ds[:6]...)
	i.hold(ds[6:]...)
	r.disturb(Cut, s)
	i.abandon()
	r.connected()
	r.drained(s, bodies(6, 14))
}

// An old delivery settled after a reconnect does not settle whatever has its tag
// now: six messages, three held while the connection is cut, another consumer
// holds three of them, and the old acks come late.
func cutFencesOldTags(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 6)
	i := r.subscribe(s)
	old := i.receive(3)
	r.disturb(Cut, s)
	i.fails(gone()...)
	r.connected()
	next := r.subscribe(s)
	ds := next.receive(6)
	r.class("settle of the old epoch", i.trySettle(brokers.Ack, old...), brokers.Fenced)
	i.abandon(old...)
	next.end(ds...)
	r.remains(s, 6)
	r.drained(s, bodies(0, 6))
}

// A connection that breaks while the intake is held ends the subscription, and
// what was held comes to the next.
func cutWhileHeld(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 5)
	i := r.subscribe(s)
	ds := i.receive(5)
	i.hold(ds[1:]...)
	r.disturb(Cut, s)
	i.fails(gone()...)
	r.class("settle of what ran", i.trySettle(brokers.Ack, ds[0]), brokers.Fenced)
	i.abandon(ds[0])
	r.connected()
	r.drained(s, bodies(0, 5))
}

// soon calls f with a context that ends soon, demands that it returns by then,
// and returns its error.
func (r *run) soon(what string, f func(context.Context) error) error {
	r.Helper()
	d := r.features.Quiet
	ctx, cancel := r.within(d)
	defer cancel()
	began := time.Now()
	err := r.saw(f(ctx))
	if took := time.Since(began); took > d+r.features.Prompt {
		r.Errorf("%s took %v on a frozen broker, its context ended after %v", what, took, d)
	}
	return err
}

// soonDone is soon for calls that may succeed or not.
func (r *run) soonDone(what string, f func(context.Context) error) {
	r.Helper()
	_ = r.soon(what, f) // either is right
}

// soonFails is soon for calls that cannot succeed.
func (r *run) soonFails(what string, f func(context.Context) error) {
	r.Helper()
	if r.soon(what, f) == nil {
		r.Errorf("%s returned nil though the broker does not answer", what)
	}
}

// Every call returns within its context while the broker does not answer, and
// after it does all is well.
func frozenCallsEnd(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 10)
	p := r.plan(s)
	i := r.subscribe(s)
	ds := i.receive(5)
	r.disturb(Freeze, s)
	thawed := false
	defer func() {
		if !thawed {
			r.disturb(Thaw, s)
		}
	}()
	r.soonDone("Settle", func(ctx context.Context) error {
		return i.Settle(ctx, []brokers.Settlement{{Delivery: ds[0], Outcome: brokers.Ack}})
	})
	r.soonDone("Lag", func(ctx context.Context) error { _, err := i.Lag(ctx); return err })
	r.soonDone("Hold", func(ctx context.Context) error { _, err := i.Hold(ctx, ds[1:]); return err })
	r.soonDone("Flow", i.Flow)
	r.soonFails("Publish", func(ctx context.Context) error {
		return r.conn.Publish(ctx, []brokers.Publication{{Target: p.DeadLetter, Body: []byte("x")}})
	})
	r.soonFails("Subscribe", func(ctx context.Context) error {
		sub, err := r.conn.Subscribe(ctx, p.Source, &observer{})
		if err == nil {
			sub.Close(ctx, nil) //nolint:errcheck // reported below
		}
		return err
	})
	rep := brokers.Report{}
	r.soonDone("Close", func(ctx context.Context) error {
		var err error
		rep, err = i.Close(ctx, nil)
		return err
	})
	i.closed = true
	if rep.Released {
		r.Error("Close says that a frozen broker confirmed")
	}
	r.disturb(Thaw, s)
	thawed = true
	r.connected()
	r.nobody(s)
	r.leftover(s, 10, 1)
}

// leftover drains a source of whose n messages those below from may have been
// acked or not, for their acks were not confirmed.
func (r *run) leftover(s *supervisorv1.ConsumerSpec, n, from int) {
	r.Helper()
	i := r.subscribe(s)
	ds := i.receive(n - from)
	got := make(map[string]int)
	for {
		for _, d := range ds {
			got[string(d.Body)]++
		}
		i.settle(brokers.Ack, ds...)
		ctx, cancel := r.within(r.features.Quiet)
		batch, err := i.Receive(ctx, plenty(n))
		cancel()
		if err != nil {
			break
		}
		ds = refs(batch)
	}
	for _, b := range bodies(from, n-from) {
		if got[b] != 1 {
			r.Errorf("%s came %d times, want once", b, got[b])
		}
	}
	i.end()
	r.settled(s)
}

// What was settled while the broker does not answer is told as unconfirmed, and
// arrives when it does.
func frozenSettlesAreUnconfirmed(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 5)
	i := r.subscribe(s)
	ds := i.receive(5)
	i.hold()
	r.disturb(Freeze, s)
	rep := brokers.Report{}
	r.soonDone("Settle", func(ctx context.Context) error {
		return i.Settle(ctx, []brokers.Settlement{
			{Delivery: ds[0], Outcome: brokers.Ack}, {Delivery: ds[1], Outcome: brokers.Ack}, {Delivery: ds[2], Outcome: brokers.Ack},
		})
	})
	r.soonDone("Hold", func(ctx context.Context) error {
		var err error
		rep, err = i.Hold(ctx, nil)
		return err
	})
	r.disturb(Thaw, s)
	if rep.Unconfirmed != 3 || rep.Released {
		r.Errorf("3 settlements are unconfirmed, but the report is %+v", rep)
	}
	r.connected()
	i.abandon(ds[3:]...)
	r.leftover(s, 5, 3)
}

// A Close whose context ends gives back in the background once the broker answers.
func frozenCloseGoesOn(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 5)
	i := r.subscribe(s)
	ds := i.receive(5)
	r.disturb(Freeze, s)
	i.closed = true
	rep := brokers.Report{}
	r.soonDone("Close", func(ctx context.Context) error {
		var err error
		rep, err = i.Close(ctx, ds)
		return err
	})
	r.disturb(Thaw, s)
	if rep.Released {
		r.Error("Close says that a frozen broker confirmed")
	}
	r.connected()
	r.drained(s, bodies(0, 5))
}

// Closing one subscription of a frozen broker does not cut the connection that
// others share: theirs go on.
func frozenCloseSparesOthers(r *run) {
	s, other := r.source(SourceOptions{}), r.source(SourceOptions{})
	r.publish(s, 0, 5)
	r.publish(other, 100, 5)
	i, neighbour := r.subscribe(s), r.subscribe(other)
	ds, theirs := i.receive(5), neighbour.receive(5)
	r.disturb(Freeze, s)
	i.closed = true
	r.soonDone("Close", func(ctx context.Context) error { _, err := i.Close(ctx, ds); return err })
	r.disturb(Thaw, s)
	neighbour.settle(brokers.Ack, theirs...)
	r.publish(other, 105, 5)
	neighbour.settle(brokers.Ack, neighbour.receive(5)...)
	neighbour.end()
	r.settled(other)
	r.drained(s, bodies(0, 5))
}

// When the broker dies Receive says so, Err too, and Subscribe fails with a class;
// after its restart everything that was not confirmed is there.
func killedAndRestarted(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 20)
	p := r.plan(s)
	i := r.subscribe(s)
	ds := i.receive(10)
	i.settle(brokers.Ack, ds[:4]...)
	i.hold(ds[8:]...)
	i.flow()
	r.disturb(Kill, s)
	i.fails(gone()...)
	r.eventually("Err is set", func(context.Context) error {
		if r.conn.Err() == nil {
			return errors.New("the broker is dead, but Err is nil")
		}
		return nil
	})
	ctx, cancel := r.within(r.features.Prompt)
	sub, err := r.conn.Subscribe(ctx, p.Source, &observer{})
	cancel()
	if err == nil {
		r.Errorf("Subscribe to a dead broker returned %v", sub)
	} else if c := brokers.ClassOf(r.saw(err)); c != brokers.Unreachable && c != brokers.Transient {
		r.Errorf("Subscribe to a dead broker: class %v: %v", c, err)
	}
	i.abandon(ds[4:8]...)
	r.disturb(Restart, s)
	r.connected()
	r.drained(s, bodies(4, 16))
}

// Lost is closed when a connection is of no more use, its subscriptions have
// ended, and a new one works.
func lostConnection(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 5)
	i := r.subscribe(s)
	ds := i.receive(2)
	r.disturb(Lose, s)
	patience := time.NewTimer(r.features.Patience)
	defer patience.Stop()
	select {
	case <-r.conn.Lost():
	case <-patience.C:
		r.Fatal("Lost is not closed")
	}
	if r.conn.Err() == nil {
		r.Error("Err of a lost connection is nil")
	}
	p := r.plan(s)
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	_, err := r.conn.Subscribe(ctx, p.Source, &observer{})
	r.class("subscribe on a lost connection", err, append(gone(), brokers.Fenced)...)
	err = r.conn.Publish(ctx, []brokers.Publication{{Target: p.DeadLetter, Body: []byte("x")}})
	r.class("publish on a lost connection", err, append(gone(), brokers.Fenced)...)
	i.fails(gone()...)
	i.abandon(ds...)
	r.connected()
	r.drained(s, bodies(0, 5))
}
