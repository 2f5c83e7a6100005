package kafka

import (
	"context"
	"testing"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// The poller rests while a batch waits for Receive. When a revocation takes the
// batch away before Receive had it, it goes on: nobody else would wake it.
func TestRevokedBatchLetsThePollerGoOn(t *testing.T) {
	s := &subscription{
		src: &source{group: "g"}, steer: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		trackers: map[string]map[int32]*tracker{"t": {}}, life: context.Background(),
	}
	tr := newTracker(s, "t", 0, 0, "m")
	s.trackers["t"][0] = tr
	tr.begin(0)
	tr.places.push(place{offset: 0})
	tr.next = 1
	s.want = 10 // of a Receive that waits
	s.buffer = []brokers.Delivery{{Origin: tr.origin, Ref: tr}}
	if _, what, _ := s.chore(false); what != rest {
		t.Fatalf("with a batch waiting the poller does %d, not rest", what)
	}
	s.revoke(map[string][]int32{"t": {0}})
	select {
	case <-s.steer:
	default:
		t.Fatal("the batch was taken away, and nothing wakes the poller")
	}
	if _, what, _ := s.chore(false); what != fetch {
		t.Errorf("the poller does %d, not fetch", what)
	}
}
