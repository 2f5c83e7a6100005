package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// put publishes n messages, each with a key of its own unless one is given.
func (w *world) put(name, key string, n int) (ids []string) {
	w.t.Helper()
	for i := range n {
		id, k := fmt.Sprintf("%s-put-%d", name, i), key
		if k == "" {
			k = id
		}
		if err := w.publish(w.ctx, name, k, id); err != nil {
			w.t.Fatalf("publish %s: %v", id, err)
		}
		ids = append(ids, id)
	}
	return ids
}

// once waits until the broker has nothing left, and demands one call of each.
func (w *world) once(name string, ids []string) {
	w.t.Helper()
	w.eventually("all are handled", 30*time.Second, func() bool {
		for _, id := range ids {
			if w.ledger.count(id) == 0 {
				return false
			}
		}
		return true
	})
	w.awaitLeft(name)
	for _, id := range ids {
		if n := w.ledger.count(id); n != 1 {
			w.t.Errorf("%s was handled %d times", id, n)
		}
	}
}

// TestStopStartsNothingMore: three messages, stop during the first. What had not
// started does not start, except where a give-back counts against the message.
func TestStopStartsNothingMore(t *testing.T) { //nolint:tparallel // scenarios one after another, brokers at once
	onEach(t, func(t *testing.T, f fixture) {
		w := newWorld(t, f, 2) // on RabbitMQ one of each kind of queue
		for _, name := range w.names {
			w.scale(name, 1)
			release := w.hangOne(name + "-put-0")
			ids := w.put(name, "k", 3)
			w.awaitHang(name + "-put-0")
			counts := w.get(name).GetStatus().GetCapabilities().GetGiveBackCounts()
			op := w.stop(name)
			release()
			rc := w.receipt(name, op, 10*time.Second)
			if rc.GetOutcome() != pb.ReceiptOutcome_RECEIPT_OUTCOME_CLEAN || !counts && rc.GetCompleted() != 1 {
				t.Errorf("%s: receipt %v", name, rc)
			}
			if n := w.handledOf(ids); n != int(rc.GetCompleted()) {
				t.Errorf("%s: %d were handled, the receipt says %d", name, n, rc.GetCompleted())
			}
			w.startAgain(name)
			w.once(name, ids)
		}
	})
}

// TestDrainEndsWithTheLastAck: twenty taken, drain. All are handled, and once the
// drain has ended none comes again.
func TestDrainEndsWithTheLastAck(t *testing.T) { //nolint:tparallel // scenarios one after another, brokers at once
	onEach(t, func(t *testing.T, f fixture) {
		w := newWorld(t, f, 2)
		for _, name := range w.names {
			w.setDelay(100 * time.Millisecond)
			w.scale(name, 20)
			ids := w.put(name, "", 20)
			w.eventually("all are taken or done", 20*time.Second, func() bool {
				return int(w.get(name).GetStatus().GetInFlight())+w.handledOf(ids) >= 20
			})
			out, err := w.api.Drain(w.ctx, &pb.DrainRequest{Target: target(name)})
			if err != nil {
				t.Fatal(err)
			}
			rc := w.receipt(name, out.GetResults()[0].GetOperation(), 10*time.Second)
			if rc.GetOutcome() != pb.ReceiptOutcome_RECEIPT_OUTCOME_CLEAN || rc.GetReturned() != 0 {
				t.Errorf("%s: receipt %v", name, rc)
			}
			if n := w.handledOf(ids); n != 20 {
				t.Errorf("%s: %d of 20 were handled when the drain had ended", name, n)
			}
			w.setDelay(0)
			w.startAgain(name)
			w.once(name, ids)
		}
	})
}

// TestStopOfADeafHandler: one that ignores its context is given up at the hard
// limit and named; what the broker keeps for the consumer is released all the
// same, its message comes again, and the late result has no effect.
func TestStopOfADeafHandler(t *testing.T) { //nolint:tparallel // scenarios one after another, brokers at once
	onEach(t, func(t *testing.T, f fixture) {
		w := newWorldWith(t, f, f.consumers(), deafHandler)
		const hung = "c00-7"
		p, release := w.hang(hung)
		began := time.Now()
		rc := w.receipt("c00", w.stop("c00"), 10*time.Second)
		if d := time.Since(began); d > 9*time.Second {
			t.Errorf("the stop took %v", d)
		}
		if !rc.GetHardFired() || len(rc.GetAbandoned()) != 1 || !strings.HasPrefix(rc.GetAbandoned()[0].GetId(), w.messages()) {
			t.Errorf("receipt %v", rc)
		}
		if rc.GetRelease() != pb.Release_RELEASE_CONFIRMED {
			t.Errorf("what the broker keeps was not released: %v", rc)
		}
		w.startAgain("c00")
		release()
		if n := w.account(p.stop(), time.Minute); n > 1+int(rc.GetWillRepeat()) {
			t.Errorf("%d were handled twice; one was abandoned, and the receipt told of %d", n, rc.GetWillRepeat())
		}
	})
}
