package brokertest

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

func settling() []behaviour {
	return []behaviour{
		{name: "SettleOutOfOrder", run: settleOutOfOrder},
		{name: "SettleArrives", run: settleArrives},
		{name: "SettleBesideReceive", run: settleBesideReceive},
		{name: "ReleaseComesAgain", run: releaseComesAgain},
		{name: "RetryComesAgain", run: retryComesAgain},
		{name: "RetryWaits", run: retryWaits, needs: func(f Features) bool { return f.Delay }},
		{name: "RedeliveryCounts", run: redeliveryCounts, needs: func(f Features) bool { return f.Redelivery != NotCounted }},
		{name: "KeptAlive", run: keptAlive, needs: func(f Features) bool { return f.AckDeadline > 0 }},
		{name: "OwnershipLost", run: ownershipLost, faults: []Fault{Redeliver}},
	}
}

// Settle takes outcomes in any order, and each counts.
func settleOutOfOrder(r *run) {
	const n = 40
	seed := rand.Uint64()
	r.Logf("seed %d", seed)
	s := r.source(SourceOptions{})
	r.publish(s, 0, n)
	i := r.subscribe(s)
	ds := i.receive(n)
	rand.New(rand.NewPCG(seed, 1)).Shuffle(n, func(a, b int) { ds[a], ds[b] = ds[b], ds[a] })
	for part := range slices.Chunk(ds, 3) {
		i.settle(brokers.Ack, part...)
	}
	i.hold()
	r.remains(s, 0)
	if rep := i.end(); rep.Returned != 0 || rep.WillRepeat != 0 {
		r.Errorf("all is settled, but closing reports %+v", rep)
	}
	r.settled(s)
}

// What Settle took arrives soon, without a Hold or Close that asks for it.
func settleArrives(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 10)
	i := r.subscribe(s)
	ds := i.receive(10)
	began := time.Now()
	i.settle(brokers.Ack, ds...)
	r.settled(s)
	if took := time.Since(began); took > r.features.Prompt {
		r.Errorf("the acks arrived after %v, want at most %v", took, r.features.Prompt)
	}
	i.end()
}

// Settle may be called by several goroutines beside Receive.
func settleBesideReceive(r *run) {
	const n, settlers = 300, 4
	s := r.source(SourceOptions{})
	r.publish(s, 0, n)
	i := r.subscribe(s)
	work, failed := make(chan []*brokers.Delivery, n), make(chan error, n)
	var wg sync.WaitGroup
	for range settlers {
		wg.Go(func() {
			for ds := range work {
				if err := i.trySettle(brokers.Ack, ds...); err != nil {
					failed <- err
				}
			}
		})
	}
	var got []string
	for len(got) < n {
		ds := i.receive(1)
		got = append(got, texts(ds)...)
		work <- ds
	}
	close(work)
	wg.Wait()
	close(failed)
	for err := range failed {
		r.ok("settle", err)
	}
	r.inOrder("deliveries", got, bodies(0, n))
	i.end()
	r.settled(s)
}

// Release gives back single messages, and what was acked beside them stays so.
func releaseComesAgain(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 10)
	i := r.subscribe(s)
	ds := i.receive(10)
	released := ds[2:5]
	i.settle(brokers.Ack, append(slices.Clone(ds[:2]), ds[5:]...)...)
	i.settle(brokers.Release, released...)
	again := i.receive(3)
	r.same("what was released", texts(again), bodies(2, 3))
	if i.Capabilities().Positions {
		r.same("the ids of what was released", ids(again), ids(released))
	}
	i.settle(brokers.Ack, again...)
	i.quiet()
	i.end()
	r.settled(s)
}

// Retry delivers again.
func retryComesAgain(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 3)
	i := r.subscribe(s)
	ds := i.receive(3)
	i.settle(brokers.Ack, ds[0], ds[2])
	i.settle(brokers.Retry, ds[1])
	again := i.receive(1)
	r.same("what is retried", texts(again), bodies(1, 1))
	i.settle(brokers.Ack, again...)
	i.end()
	r.settled(s)
}

// Retry with After delivers again after that time and not before, and holds up
// nothing else.
func retryWaits(r *run) {
	after := max(r.features.Quiet, 100*time.Millisecond)
	s := r.source(SourceOptions{})
	r.publish(s, 0, 1)
	i := r.subscribe(s)
	ds := i.receive(1)
	began := time.Now()
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	r.ok("settle", i.Settle(ctx, []brokers.Settlement{
		{Delivery: ds[0], Outcome: brokers.Retry, AfterMillis: after.Milliseconds()},
	}))
	r.publish(s, 1, 1)
	other := i.receive(1)
	r.inOrder("what comes meanwhile", texts(other), bodies(1, 1))
	again := i.receive(1)
	if took := time.Since(began); took < after*9/10 {
		r.Errorf("retried after %v, want %v", took, after)
	}
	r.inOrder("what is retried", texts(again), bodies(0, 1))
	i.settle(brokers.Ack, other[0], again[0])
	i.end()
	r.settled(s)
}

// Redelivered counts earlier deliveries as the broker does.
func redeliveryCounts(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 1)
	i := r.subscribe(s)
	for earlier := range int32(3) {
		d := i.receive(1)[0]
		want := earlier
		if r.features.Redelivery == Flagged {
			want = min(want, 1)
		}
		if d.Redelivered != want {
			r.Errorf("delivery %d tells %d earlier ones, want %d", earlier+1, d.Redelivered, want)
		}
		if earlier < 2 {
			i.settle(brokers.Retry, d)
		} else {
			i.settle(brokers.Ack, d)
		}
	}
	i.end()
	r.settled(s)
}

// What is held, by the caller or by the driver for a later Receive, does not time
// out at the broker.
func keptAlive(r *run) {
	s := r.source(SourceOptions{AckDeadline: r.features.AckDeadline})
	r.publish(s, 0, 4)
	i := r.subscribe(s)
	ds := i.receive(2)
	other := r.subscribe(s)
	ctx, cancel := r.within(r.features.AckDeadline * 5 / 2)
	defer cancel()
	for {
		batch, err := other.Receive(ctx, plenty(4))
		if err != nil {
			break
		}
		ds = append(ds, refs(batch)...)
		other.settle(brokers.Ack, refs(batch)...)
	}
	if ctx.Err() == nil {
		r.Fatal("Receive ended before its context")
	}
	mine := ds[:2]
	if missing := 4 - len(ds); missing > 0 {
		more := i.receive(missing)
		mine, ds = append(slices.Clone(mine), more...), append(ds, more...)
	}
	r.same("deliveries over two and a half ack deadlines", texts(ds), bodies(0, 4))
	i.settle(brokers.Ack, mine...)
	other.end()
	i.end()
	r.settled(s)
}

// A settlement that comes after the broker took the message away has no effect,
// is no error, and is counted.
func ownershipLost(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 3)
	i := r.subscribe(s)
	old := i.receive(3)
	r.disturb(Redeliver, s)
	again := i.receive(3)
	r.same("redelivered", texts(again), bodies(0, 3))
	i.settle(brokers.Ack, old...)
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	rep, err := i.Hold(ctx, nil)
	r.ok("hold", err)
	if rep.OwnershipLost != 3 {
		r.Errorf("3 settlements came too late, but the report is %+v", rep)
	}
	r.remains(s, 3)
	i.settle(brokers.Ack, again...)
	i.end()
	r.settled(s)
}
