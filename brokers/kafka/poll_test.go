package kafka

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

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

// A poll that was under way when the intake was held may still bring records:
// none is delivered, and all are fetched again when it flows.
func TestRecordsThatComeWhileHeldAreFetchedAgain(t *testing.T) {
	s := &subscription{src: &source{group: "g"}, held: true}
	tr := newTracker(s, "t", 0, 0, "m")
	tr.begin(5)
	got := s.bookPartition(make([]brokers.Delivery, 0, 2), tr, []*kgo.Record{{Offset: 5}, {Offset: 6}})
	if len(got) > 0 || tr.rewind != 5 {
		t.Errorf("held: %d delivered, to be fetched again from %d, want none and 5", len(got), tr.rewind)
	}
	s.held = false
	if got := s.bookPartition(make([]brokers.Delivery, 0, 2), tr, []*kgo.Record{{Offset: 7}}); len(got) > 0 {
		t.Error("a record was delivered before the client was told to go back")
	}
	tr.rewound()
	if got := s.bookPartition(make([]brokers.Delivery, 0, 2), tr, []*kgo.Record{{Offset: 5}, {Offset: 6}}); len(got) != 2 {
		t.Errorf("%d of 2 were delivered when it flowed again", len(got))
	}
}
