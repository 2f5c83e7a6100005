//nolint:forbidigo // every test here runs in a bubble of virtual time
package supervisor_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

// watching collects what a watcher sees until the test ends.
type watching struct {
	mu   sync.Mutex
	seen []*pb.WatchResponse
	err  error
	stop func()
}

var errSeenEnough = errors.New("seen enough")

func watch(r *rig, since uint64) *watching {
	w := &watching{}
	ctx, cancel := context.WithCancelCause(r.ctx)
	done := make(chan struct{})
	s := r.s
	go func() {
		defer close(done)
		err := s.Watch(ctx, &pb.WatchRequest{SinceRevision: since}, func(m *pb.WatchResponse) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.seen = append(w.seen, m)
			return nil
		})
		w.mu.Lock()
		defer w.mu.Unlock()
		w.err = err
	}()
	w.stop = func() {
		cancel(errSeenEnough)
		<-done
	}
	return w
}

// all ends the watching and returns what it saw.
func (w *watching) all() []*pb.WatchResponse {
	synctest.Wait()
	w.stop()
	return w.seen
}

func TestNothingIsHeardOfADeletedConsumer(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.broker.RefuseCredentials("no such user")
		r.apply(newSpec("q"))
		r.await("q", pb.State_STATE_FAILED)
		uid := r.get("q").GetUid()
		w := watch(r, 0)
		synctest.Wait()
		r.do(pb.Verb_VERB_DELETE, "q")
		time.Sleep(time.Minute)
		r.broker.Heal()
		gone := false
		for _, m := range w.all() {
			if gone && m.GetBookmark() == nil {
				t.Errorf("after it was deleted: %v", m)
			}
			if d := m.GetDeleted(); d != nil {
				gone = true
				if d.GetUid() != uid {
					t.Errorf("uid %q, want %q", d.GetUid(), uid)
				}
			}
		}
		if !gone {
			t.Error("no word of the deletion")
		}
	})
}

func TestANameUsedAgainStartsAfresh(t *testing.T) {
	inBubble(t, func(r *rig) {
		for range 20 {
			g := newGated(r)
			r.publish("q", "m", 1)
			r.apply(newSpec("q"))
			<-g.entered
			r.do(pb.Verb_VERB_PAUSE, "q")
			res := r.do(pb.Verb_VERB_DELETE, "q", func(c *supervisor.Command) { c.Force = true })
			if res.GetReceipt().GetVerb() != pb.Verb_VERB_KILL {
				t.Errorf("result %v", res)
			}
			r.apply(newSpec("q", func(s *pb.ConsumerSpec) { s.Start = pb.DesiredState_DESIRED_STATE_STOPPED }))
			time.Sleep(time.Second)
			c := r.get("q")
			rows, err := r.s.Transitions(&pb.ListTransitionsRequest{Name: "q"})
			if err != nil {
				t.Fatal(err)
			}
			receipts, err := r.s.Receipts(&pb.ListReceiptsRequest{Name: "q"})
			if err != nil {
				t.Fatal(err)
			}
			if len(rows.GetTransitions()) > 0 || len(receipts.GetReceipts()) > 0 || c.GetStatus().GetCounters().GetReceived() > 0 ||
				len(c.GetDesired().GetHolds()) > 0 {
				t.Fatalf("of the one before: %v, %v, %v", rows, receipts, c)
			}
			r.do(pb.Verb_VERB_DELETE, "q")
			for len(g.entered) > 0 {
				<-g.entered
			}
		}
	})
}

// Verbs that meet a deletion are refused, and nothing of the consumer comes back.
func TestVerbsThatMeetADeletion(t *testing.T) {
	inBubble(t, func(r *rig) {
		for range 30 {
			r.apply(newSpec("q", func(s *pb.ConsumerSpec) { s.Start = pb.DesiredState_DESIRED_STATE_STOPPED }))
			var w sync.WaitGroup
			for _, v := range []pb.Verb{
				pb.Verb_VERB_PAUSE, pb.Verb_VERB_SCALE, pb.Verb_VERB_STOP, pb.Verb_VERB_RESUME, pb.Verb_VERB_KILL,
			} {
				w.Go(func() {
					if _, err := r.try(v, "q"); err != nil {
						wantReason(t, v.String(), err, pb.ErrorReason_ERROR_REASON_NOT_FOUND)
					}
				})
			}
			w.Go(func() { r.do(pb.Verb_VERB_DELETE, "q") })
			w.Wait()
			_, err := r.s.Get("", "q")
			wantReason(t, "get", err, pb.ErrorReason_ERROR_REASON_NOT_FOUND)
		}
		r.crash()
		r.open()
		_, err := r.s.Get("", "q")
		wantReason(t, "get after a restart", err, pb.ErrorReason_ERROR_REASON_NOT_FOUND)
	})
}

func TestDeleteIsRefusedWhileItRuns(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(newSpec("q"))
		r.await("q", pb.State_STATE_RUNNING)
		_, err := r.try(pb.Verb_VERB_DELETE, "q")
		wantReason(t, "delete", err, pb.ErrorReason_ERROR_REASON_INVALID_STATE_TRANSITION)
		var e *supervisor.Error
		if errors.As(err, &e) && (e.Metadata["state"] != "RUNNING" || e.Metadata["allowed"] == "") {
			t.Errorf("metadata %v", e.Metadata)
		}
	})
}
