package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestRebalances: members join and leave every second for a minute, while one
// consumer of the group is paused and one drains again and again. Nothing is
// lost, no position is ever above what was handled or goes back, and the paused
// one handles nothing.
func TestRebalances(t *testing.T) { //nolint:tparallel // scenarios one after another, balancers at once
	for balancer, foreign := range map[string]kgo.GroupBalancer{
		"COOPERATIVE_STICKY": kgo.CooperativeStickyBalancer(), "RANGE": kgo.RangeBalancer(),
	} {
		t.Run(balancer, func(t *testing.T) {
			t.Parallel()
			rebalances(t, balancer, foreign)
		})
	}
}

func rebalances(t *testing.T, balancer string, foreign kgo.GroupBalancer) {
	f := &kafkaFixture{together: true, balancer: balancer}
	w := newWorld(t, f, 5)
	p := w.gentle()
	w.awaitCalls(300)
	w.pauseOnly("c00")
	w.ledger.setClosed("c00", true)

	ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
	defer cancel()
	churned, watched := make(chan churn, 1), make(chan []string, 1)
	go func() { churned <- f.churn(ctx, foreign) }()
	go func() { watched <- w.watchPositions(ctx, f) }()
	drains := 0
	for ; ctx.Err() == nil; drains++ {
		w.drainStart("c01")
	}
	c, faults := <-churned, <-watched
	for _, fault := range slices.Concat(c.faults, faults) {
		t.Error(fault)
	}
	t.Logf("%d members joined, %d of them got partitions; %d drains", c.joined, c.owned, drains)
	if c.owned < 20 || drains < 5 {
		t.Error("too few rebalances to prove anything")
	}
	w.ledger.setClosed("c00", false)
	w.resumeAll()
	w.account(p.stop(), time.Minute)
	w.nothingLeft()
}

// churn tells what the foreign members met.
type churn struct {
	joined, owned int
	faults        []string
}

// churn lets a member that handles nothing join the group every second, and
// leave it as soon as it has been given what it gets, until ctx ends.
func (f *kafkaFixture) churn(ctx context.Context, balancer kgo.GroupBalancer) (c churn) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return c
		}
		owned, err := f.visit(ctx, balancer)
		switch {
		case ctx.Err() != nil:
			return c
		case err != nil:
			c.faults = append(c.faults, fmt.Sprintf("a foreign member: %v", err))
			return c
		}
		c.joined++
		if owned > 0 {
			c.owned++
		}
	}
}

// visit is one membership; it returns how many partitions the member was given.
func (f *kafkaFixture) visit(ctx context.Context, balancer kgo.GroupBalancer) (owned int, err error) {
	assigned := make(chan int, 100)
	c, err := kgo.NewClient(kgo.SeedBrokers(f.node.Broker()), kgo.ConsumerGroup(f.topic("")), kgo.ConsumeTopics(f.topic("")),
		kgo.Balancers(balancer), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, got map[string][]int32) {
			assigned <- len(got[f.topic("")])
		}))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	c.PauseFetchTopics(f.topic(""))
	// A cooperative member joins with nothing, and is given its share when others
	// have let go of it.
	patience := time.After(3 * time.Second)
	for {
		select {
		case n := <-assigned:
			if n > 0 {
				return n, nil
			}
		case <-patience:
			return 0, nil
		case <-ctx.Done():
			return 0, nil
		}
	}
}

// watchPositions looks at the group's positions again and again, until ctx ends:
// all below one has been handled, and none goes back.
func (w *world) watchPositions(ctx context.Context, f *kafkaFixture) (faults []string) {
	last := map[int32]int64{}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for looks := 0; ; looks++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			if looks < 100 {
				faults = append(faults, fmt.Sprintf("the positions were seen %d times only", looks))
			}
			return faults
		}
		now, err := f.node.Committed(ctx, f.topic(""), f.topic(""))
		if err != nil {
			if ctx.Err() == nil {
				faults = append(faults, err.Error())
			}
			continue
		}
		for partition, at := range now {
			if before := last[partition]; at < before {
				faults = append(faults, fmt.Sprintf("the position of partition %d went back from %d to %d", partition, before, at))
			}
			faults = append(faults, w.unhandledBelow(f, partition, last[partition], at)...)
			last[partition] = at
		}
	}
}

// unhandledBelow names what of a partition's records from one offset up to
// another was not handled.
func (w *world) unhandledBelow(f *kafkaFixture, partition int32, from, to int64) (faults []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for o := from; o < to; o++ {
		id, ok := f.at[place{partition, o}]
		if ok && w.ledger.count(id) == 0 {
			faults = append(faults, fmt.Sprintf("partition %d is committed to %d, but %s at %d was not handled", partition, to, id, o))
		}
	}
	return faults
}
