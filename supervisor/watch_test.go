//nolint:forbidigo // every test here runs in a bubble of virtual time
package supervisor_test

import (
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

// chain checks that the moves shown are in order, none is left out, and each
// snapshot is in the state that its move leads to.
func chain(t *testing.T, from pb.State, seen []*pb.WatchResponse) pb.State {
	t.Helper()
	last, seq := uint64(0), uint64(0)
	for _, m := range seen {
		if m.GetRevision() < last || m.GetRevision() == last && m.GetReceipt() == nil && m.GetConsumer() == nil && m.GetBookmark() == nil && m.GetSynced() == nil {
			t.Errorf("revision %d after %d", m.GetRevision(), last)
		}
		last = m.GetRevision()
		tr := m.GetTransition()
		if tr == nil {
			continue
		}
		if tr.GetFrom() != from {
			t.Errorf("a move from %v, but it was %v: %v", tr.GetFrom(), from, tr)
		}
		if seq > 0 && tr.GetSequence() != seq+1 {
			t.Errorf("move %d after %d", tr.GetSequence(), seq)
		}
		if st := m.GetConsumer().GetStatus().GetState(); st != tr.GetTo() {
			t.Errorf("shown as %v after %v", st, tr)
		}
		from, seq = tr.GetTo(), tr.GetSequence()
	}
	return from
}

func TestWatchShowsEveryMove(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(newSpec("q", func(s *pb.ConsumerSpec) { s.Start = pb.DesiredState_DESIRED_STATE_STOPPED }))
		w := watch(r, 0)
		synctest.Wait()
		for range 5 {
			r.do(pb.Verb_VERB_START, "q")
			r.do(pb.Verb_VERB_PAUSE, "q")
			r.do(pb.Verb_VERB_RESUME, "q")
			r.do(pb.Verb_VERB_RESTART, "q")
			r.do(pb.Verb_VERB_DRAIN, "q")
			r.await("q", pb.State_STATE_STOPPED)
		}
		if last := chain(t, pb.State_STATE_STOPPED, w.all()); last != pb.State_STATE_STOPPED {
			t.Errorf("the last shown is %v", last)
		}
	})
}

func TestWatchResumesWhereItWasCut(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(newSpec("q"))
		r.await("q", pb.State_STATE_RUNNING)
		whole := watch(r, 0)
		synctest.Wait()
		var pieces []*pb.WatchResponse
		since := uint64(0)
		for range 10 {
			w := watch(r, since)
			r.do(pb.Verb_VERB_PAUSE, "q")
			synctest.Wait()
			for _, m := range w.all() {
				since = m.GetRevision()
				pieces = append(pieces, m)
			}
			r.do(pb.Verb_VERB_RESUME, "q") // while nobody watches
			r.await("q", pb.State_STATE_RUNNING)
		}
		w := watch(r, since)
		time.Sleep(time.Second)
		pieces = append(pieces, w.all()...)
		all := whole.all()
		if len(pieces) != len(all) {
			t.Errorf("%d events in pieces, %d as a whole", len(pieces), len(all))
		}
		for i := range min(len(all), len(pieces)) {
			if all[i].GetRevision() != pieces[i].GetRevision() {
				t.Fatalf("event %d has revision %d in pieces, %d as a whole", i, pieces[i].GetRevision(), all[i].GetRevision())
			}
		}
		err := r.s.Watch(r.ctx, &pb.WatchRequest{SinceRevision: since + 1e6}, func(*pb.WatchResponse) error { return nil })
		wantReason(t, "a revision that is not yet there", err, pb.ErrorReason_ERROR_REASON_REVISION_COMPACTED)
		err = r.s.Watch(r.ctx, &pb.WatchRequest{SinceRevision: 1}, func(*pb.WatchResponse) error { return nil })
		wantReason(t, "a revision of another boot", err, pb.ErrorReason_ERROR_REASON_REVISION_COMPACTED)
	})
}

func TestHistorySaysWhoDidIt(t *testing.T) {
	inBubble(t, func(r *rig) {
		by := func(who string) func(*supervisor.Command) {
			return func(c *supervisor.Command) { c.Actor = who }
		}
		r.apply(newSpec("q"))
		r.await("q", pb.State_STATE_RUNNING)
		r.do(pb.Verb_VERB_PAUSE, "q", by("alice"))
		r.await("q", pb.State_STATE_PAUSED)
		r.do(pb.Verb_VERB_RESUME, "q", by("bob"))
		r.await("q", pb.State_STATE_RUNNING)
		r.do(pb.Verb_VERB_STOP, "q", by("carol"))
		r.await("q", pb.State_STATE_STOPPED)
		r.do(pb.Verb_VERB_START, "q", by("dave"))
		r.await("q", pb.State_STATE_RUNNING)
		want := map[pb.State]string{}
		out, err := r.s.Transitions(&pb.ListTransitionsRequest{Name: "q"})
		if err != nil {
			t.Fatal(err)
		}
		var starts []string
		for _, tr := range out.GetTransitions() {
			want[tr.GetTo()] = tr.GetActor()
			if tr.GetEvent() == "start" {
				starts = append(starts, tr.GetActor())
			}
		}
		if want[pb.State_STATE_PAUSING] != "alice" || len(starts) != 3 || starts[1] != "bob" || starts[2] != "dave" ||
			want[pb.State_STATE_STOPPING] != "carol" {
			t.Errorf("history %v", out)
		}
		last := out.GetTransitions()[len(out.GetTransitions())-1].GetSequence()
		time.Sleep(time.Second)
		r.close()
		r.open()
		r.await("q", pb.State_STATE_RUNNING)
		out, err = r.s.Transitions(&pb.ListTransitionsRequest{Name: "q"})
		if err != nil {
			t.Fatal(err)
		}
		for i, tr := range out.GetTransitions() {
			if i > 0 && tr.GetSequence() <= out.GetTransitions()[i-1].GetSequence() {
				t.Errorf("after a restart: move %d after %d", tr.GetSequence(), last)
			}
		}
	})
}
