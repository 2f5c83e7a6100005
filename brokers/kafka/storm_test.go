package kafka

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// Members of both kinds of balancers come and go while two work: nothing is
// lost, and no position is above what was handled.
func TestRebalanceStorm(t *testing.T) {
	for name, change := range protocols() {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) { storm(r, r.topic("t", 12, change)) })
		})
	}
}

func storm(r *rig, s *supervisorv1.ConsumerSpec) {
	const total, rounds = 600, 12
	handled := newLedger(total)
	var stop atomic.Bool
	done := make(chan struct{})
	work := func(m *member) {
		for !stop.Load() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 200*time.Millisecond)
			ds, err := m.Receive(ctx, brokers.Credit{Messages: 7, Bytes: 1 << 20})
			cancel()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				r.Errorf("receive: %v", err)
				break
			}
			for i := range ds {
				handled.add(string(ds[i].Body), ds[i].Origin.Name, ds[i].Position)
				m.ack(&ds[i])
			}
		}
		done <- struct{}{}
	}
	steady := []*member{r.join(s), r.join(s)}
	for _, m := range steady {
		go work(m)
	}
	for k := range rounds {
		r.put(s, k*total/rounds, total/rounds)
		guest := r.join(s)
		for _, d := range guest.some(5, 2*time.Second) {
			handled.add(string(d.Body), d.Origin.Name, d.Position)
			guest.ack(d)
		}
		guest.close()
		for name, at := range r.committed(s) {
			if top := handled.below(name); at > top {
				r.Errorf("%s: %d is committed, but handled without a gap only up to %d", name, at, top)
			}
		}
	}
	r.eventually("all is handled", handled.all)
	r.eventually("all is committed", func() bool {
		c, err := r.Count(r.within(patience), s)
		return err == nil && c.Remaining == 0
	})
	stop.Store(true)
	for range steady {
		<-done
	}
	r.Logf("%d of %d were handled more than once", handled.twice(), total)
}
