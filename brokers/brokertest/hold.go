package brokertest

import (
	"sync"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

func holding() []behaviour {
	return []behaviour{
		{name: "HoldGivesBack", run: holdGivesBack},
		{name: "HoldGivesBackBuffered", run: holdGivesBackBuffered},
		{name: "HoldConfirms", run: holdConfirms},
		{name: "HoldTwice", run: holdTwice},
		{name: "ShutHandsOver", run: shutHandsOver, needs: func(f Features) bool { return f.Finishes }},
		{name: "HoldWhileReceiveBlocks", run: holdWhileReceiveBlocks},
		{name: "HoldRacesReceive", run: holdRacesReceive},
		{name: "HoldRacesSettle", run: holdRacesSettle},
		{name: "FlowFetchesAtOnce", run: flowFetchesAtOnce},
		{name: "FlowOnOpenIntake", run: flowOnOpenIntake},
	}
}

// returned demands that a report counts what was given back: n by the caller, and
// no more of the driver's own than it can have held.
func (i *intake) returned(rep brokers.Report, n, rest int) {
	i.r.Helper()
	if i.Capabilities().MessagesHard {
		rest = 0
	}
	if rep.Returned < n || rep.Returned > n+rest {
		i.r.Errorf("%d were given back and the driver held at most %d, but the report is %+v", n, rest, rep)
	}
}

// Hold gives back what has not started, at the caller and in the driver; what
// runs stays settleable; after Flow everything unsettled comes exactly once, and
// what was handled does not come again.
func holdGivesBack(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 20)
	i := r.subscribe(s)
	ds := i.receive(10)
	i.settle(brokers.Ack, ds[0], ds[1], ds[2], ds[5])
	running := ds[3]
	rep := i.hold(ds[4], ds[6], ds[7], ds[8], ds[9])
	i.returned(rep, 5, 10)
	left := r.count(s).Remaining
	if left != 16 && !(i.Capabilities().Positions && left == 17) { // a position cannot tell an ack above a gap
		r.Errorf("%d messages remain at the broker, want 16", left)
	}
	i.quiet()
	i.settle(brokers.Ack, running)
	i.flow()
	again := i.receive(15)
	r.same("what comes after the hold", texts(again), append([]string{body(4)}, bodies(6, 14)...))
	i.settle(brokers.Ack, again...)
	i.quiet()
	i.end()
	r.settled(s)
}

// What the driver has taken and not returned goes back too, and to others, where
// the broker does not keep it for this member.
func holdGivesBackBuffered(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 20)
	i := r.subscribe(s)
	first := i.receive(1)
	rep := i.hold()
	i.returned(rep, 0, 19)
	i.settle(brokers.Ack, first...)
	if i.Capabilities().Positions {
		i.end()
	} else {
		defer i.end()
	}
	r.drained(s, bodies(1, 19))
}

// When Hold returns with Released, all that was settled before has arrived.
func holdConfirms(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 30)
	i := r.subscribe(s)
	for k := range 3 {
		ds := i.receive(10)
		i.settle(brokers.Ack, ds...)
		i.hold()
		r.remains(s, int64(20-10*k))
		i.flow()
	}
	i.end()
	r.settled(s)
}

// Held twice it gives back what is new.
func holdTwice(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 3)
	i := r.subscribe(s)
	ds := i.receive(3)
	i.returned(i.hold(ds[2]), 1, 0)
	i.returned(i.hold(), 0, 0)
	i.returned(i.hold(ds[1]), 1, 0)
	i.settle(brokers.Ack, ds[0])
	i.quiet()
	i.flow()
	again := i.receive(2)
	r.same("what comes after two holds", texts(again), bodies(1, 2))
	i.settle(brokers.Ack, again...)
	i.end()
	r.settled(s)
}

// Shut hands over what the driver has taken instead of giving it back, nothing comes
// after it, and what was handed over is settled like the rest.
func shutHandsOver(r *run) {
	const n = 50
	s := r.source(SourceOptions{})
	r.publish(s, 0, n)
	i := r.subscribe(s)
	f, ok := i.Subscription.(brokers.Finisher)
	if !ok {
		r.Fatal("it cannot hand over what it has taken")
	}
	ds := i.receive(1)
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	rest, err := f.Shut(ctx)
	r.ok("shut", err)
	ds = append(ds, refs(rest)...)
	r.inOrder("what was taken", texts(ds), bodies(0, len(ds)))
	i.quiet()
	i.settle(brokers.Ack, ds...)
	if rep := i.hold(); rep.Returned != 0 {
		r.Errorf("after Shut nothing is left to give back, but the report is %+v", rep)
	}
	r.remains(s, int64(n-len(ds)))
	i.flow()
	i.end()
	r.drained(s, bodies(len(ds), n-len(ds)))
}

// Hold takes effect beside a Receive that blocks, which goes on blocking until
// Flow.
func holdWhileReceiveBlocks(r *run) {
	s := r.source(SourceOptions{})
	i := r.subscribe(s)
	i.quiet()
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	came, failed := make(chan []*brokers.Delivery, 1), make(chan error, 1)
	go func() {
		batch, err := i.Receive(ctx, plenty(5))
		if err != nil {
			failed <- err
			return
		}
		came <- refs(batch)
	}()
	i.hold()
	r.publish(s, 0, 1)
	silence := time.NewTimer(r.features.Quiet)
	defer silence.Stop()
	select {
	case ds := <-came:
		r.Fatalf("a held intake delivered %v", texts(ds))
	case err := <-failed:
		r.Fatalf("a held Receive returned: %v", r.saw(err))
	case <-silence.C:
	}
	i.flow()
	select {
	case ds := <-came:
		i.settle(brokers.Ack, ds...)
	case err := <-failed:
		r.Fatalf("Receive after Flow: %v", r.saw(err))
	}
	i.end()
	r.settled(s)
}

// Whatever the moment of a Hold, each message is delivered once or given back.
func holdRacesReceive(r *run) {
	const n, rounds = 200, 20
	s := r.source(SourceOptions{})
	i := r.subscribe(s)
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	var wg sync.WaitGroup
	failed := make(chan error, 3)
	wg.Go(func() {
		for k := 0; k < n; k += 4 {
			ms := make([]Message, 4)
			for j := range ms {
				ms[j].Body = []byte(body(k + j))
			}
			if err := r.h.Publish(ctx, s, ms); err != nil {
				failed <- err
				return
			}
		}
	})
	var got []string
	wg.Go(func() {
		for len(got) < n {
			batch, err := i.Receive(ctx, plenty(5))
			if err == nil {
				err = i.trySettle(brokers.Ack, refs(batch)...)
			}
			if err != nil {
				failed <- err
				return
			}
			got = append(got, texts(refs(batch))...)
		}
	})
	for range rounds {
		i.hold()
		i.flow()
	}
	wg.Wait()
	close(failed)
	for err := range failed {
		r.ok("publish, receive or settle", err)
	}
	r.same("deliveries around holds", got, bodies(0, n))
	i.end()
	r.settled(s)
}

// A Settle beside Hold counts as settled, and what Hold gives back comes again.
func holdRacesSettle(r *run) {
	const n = 100
	s := r.source(SourceOptions{})
	r.publish(s, 0, n)
	i := r.subscribe(s)
	ds := i.receive(n)
	settled := make(chan error, 1)
	go func() {
		var err error
		for k := 0; k < n/2 && err == nil; k += 5 {
			err = i.trySettle(brokers.Ack, ds[k:k+5]...)
		}
		settled <- err
	}()
	rep := i.hold(ds[n/2:]...)
	i.returned(rep, n/2, 0)
	r.ok("settle beside hold", <-settled)
	i.flow()
	again := i.receive(n / 2)
	r.same("what comes after the hold", texts(again), bodies(n/2, n/2))
	i.settle(brokers.Ack, again...)
	i.end()
	r.settled(s)
}

// Flow fetches at once, without waiting for a poll to end.
func flowFetchesAtOnce(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 1)
	i := r.subscribe(s)
	i.settle(brokers.Ack, i.receive(1)...)
	i.hold()
	i.quiet()
	r.publish(s, 1, 1)
	began := time.Now()
	i.flow()
	ds := i.receive(1)
	if took := time.Since(began); took > r.features.Prompt {
		r.Errorf("the first delivery came %v after Flow, want at most %v", took, r.features.Prompt)
	}
	i.settle(brokers.Ack, ds...)
	i.end()
	r.settled(s)
}

// Flow on an open intake does nothing.
func flowOnOpenIntake(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 4)
	i := r.subscribe(s)
	i.flow()
	ds := i.receive(2)
	i.flow()
	ds = append(ds, i.receive(2)...)
	r.inOrder("deliveries", texts(ds), bodies(0, 4))
	i.quiet()
	i.settle(brokers.Ack, ds...)
	i.end()
	r.settled(s)
}
