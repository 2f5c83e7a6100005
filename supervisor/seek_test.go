//nolint:forbidigo // every test here runs in a bubble of virtual time
package supervisor_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func (r *rig) seek(name string, change func(*pb.SeekRequest)) (*pb.SeekResponse, error) {
	q := &pb.SeekRequest{Name: name, Options: &pb.VerbOptions{Reason: "again"}}
	change(q)
	return r.s.Seek(r.ctx, "ann", q)
}

func to(p pb.SeekTo) func(*pb.SeekRequest) {
	return func(r *pb.SeekRequest) { r.To = &pb.SeekRequest_Place{Place: p} }
}

// handled makes a consumer of one partition that handled n messages and is stopped.
func (r *rig) handled(n int) {
	r.t.Helper()
	if err := r.broker.Create("c0", memory.QueueOptions{Partitions: 1}); err != nil {
		r.t.Fatal(err)
	}
	r.publish("c0", "c0", n)
	r.apply(newSpec("c0"))
	r.until("all is handled", func() bool { return r.broker.Committed("c0")[0] == int64(n) })
	r.do(pb.Verb_VERB_STOP, "c0")
	r.await("c0", pb.State_STATE_STOPPED)
}

func TestSeekMovesAndPreviousTakesItBack(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.handled(10)
		dry, err := r.seek("c0", func(q *pb.SeekRequest) { to(pb.SeekTo_SEEK_TO_EARLIEST)(q); q.Options.DryRun = true })
		if err != nil || len(dry.GetChanges()) != 1 || r.broker.Committed("c0")[0] != 10 || r.get("c0").GetLastSeek() != nil {
			t.Fatalf("dry run: %v, %v, committed %v", dry, err, r.broker.Committed("c0"))
		}
		out, err := r.seek("c0", func(q *pb.SeekRequest) {
			q.To = &pb.SeekRequest_Positions{Positions: &pb.Positions{Positions: []*pb.Position{{Origin: "0", Position: 4}}}}
		})
		if err != nil || len(out.GetChanges()) != 1 {
			t.Fatalf("seek: %v, %v", out, err)
		}
		ch := out.GetChanges()[0]
		if ch.GetBefore() != 10 || ch.GetAfter() != 4 || r.broker.Committed("c0")[0] != 4 {
			t.Errorf("moved %v, committed %v", ch, r.broker.Committed("c0"))
		}
		last := r.get("c0").GetLastSeek()
		if last.GetActor() != "ann" || last.GetReason() != "again" || len(last.GetChanges()) != 1 || r.get("c0").GetEtag() != out.GetEtag() {
			t.Errorf("kept %v, etag %s of %s", last, r.get("c0").GetEtag(), out.GetEtag())
		}
		// The undo survives a restart of the daemon.
		r.close()
		r.open()
		if _, err := r.seek("c0", to(pb.SeekTo_SEEK_TO_PREVIOUS)); err != nil || r.broker.Committed("c0")[0] != 10 {
			t.Errorf("undo: %v, committed %v", err, r.broker.Committed("c0"))
		}
		if _, err := r.seek("c0", func(q *pb.SeekRequest) {
			q.To = &pb.SeekRequest_Time{Time: timestamppb.New(time.Now().Add(-time.Hour))}
		}); err != nil {
			t.Error(err)
		}
		if at := r.broker.Committed("c0")[0]; at != 0 {
			t.Errorf("an hour ago is offset %d", at)
		}
		r.do(pb.Verb_VERB_START, "c0")
		r.until("all is handled again", func() bool { return r.broker.Committed("c0")[0] == 10 })
		if n := slices.Max(slices.Collect(mapsValues(r.broker.Deliveries("c0")))); n != 2 {
			t.Errorf("a message was delivered %d times", n)
		}
	})
}

func mapsValues(m map[string]int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for _, n := range m {
			if !yield(n) {
				return
			}
		}
	}
}

func reasonOf(err error) pb.ErrorReason {
	e, _ := errors.AsType[*supervisor.Error](err)
	if e == nil {
		return 0
	}
	return e.Reason
}

func TestSeekIsRefused(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.handled(3)
		for name, c := range map[string]struct {
			change func(*pb.SeekRequest)
			reason pb.ErrorReason
			says   string
		}{
			"nowhere":          {func(*pb.SeekRequest) {}, pb.ErrorReason_ERROR_REASON_INVALID_ARGUMENT, "say where to"},
			"no previous":      {to(pb.SeekTo_SEEK_TO_PREVIOUS), pb.ErrorReason_ERROR_REASON_INVALID_ARGUMENT, "no seek"},
			"another etag":     {func(q *pb.SeekRequest) { to(pb.SeekTo_SEEK_TO_LATEST)(q); q.Options.Etag = "x" }, pb.ErrorReason_ERROR_REASON_ETAG_MISMATCH, "changed"},
			"unknown consumer": {func(q *pb.SeekRequest) { to(pb.SeekTo_SEEK_TO_LATEST)(q); q.Name = "x" }, pb.ErrorReason_ERROR_REASON_NOT_FOUND, "no consumer"},
			"twice": {func(q *pb.SeekRequest) {
				q.To = &pb.SeekRequest_Positions{Positions: &pb.Positions{Positions: []*pb.Position{{Origin: "0"}, {Origin: "0"}}}}
			}, pb.ErrorReason_ERROR_REASON_INVALID_ARGUMENT, "twice"},
			"no such partition": {func(q *pb.SeekRequest) {
				q.To = &pb.SeekRequest_Positions{Positions: &pb.Positions{Positions: []*pb.Position{{Origin: "9"}}}}
			}, pb.ErrorReason_ERROR_REASON_BROKER_REFUSED, `no partition "9"`},
		} {
			_, err := r.seek("c0", c.change)
			if reasonOf(err) != c.reason || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v (%v), want %v and %q", name, err, reasonOf(err), c.reason, c.says)
			}
		}
		r.do(pb.Verb_VERB_START, "c0")
		r.await("c0", pb.State_STATE_RUNNING)
		for _, v := range []pb.Verb{pb.Verb_VERB_START, pb.Verb_VERB_PAUSE} {
			r.do(v, "c0")
			_, err := r.seek("c0", to(pb.SeekTo_SEEK_TO_EARLIEST))
			if reasonOf(err) != pb.ErrorReason_ERROR_REASON_INVALID_STATE_TRANSITION {
				t.Errorf("after %v: %v", v, err)
			}
		}
		if at := r.broker.Committed("c0")[0]; at != 3 {
			t.Errorf("what was refused moved the position to %d", at)
		}
		r.apply(newSpec("acks"))
		r.await("acks", pb.State_STATE_RUNNING)
		r.do(pb.Verb_VERB_STOP, "acks")
		r.await("acks", pb.State_STATE_STOPPED)
		if _, err := r.seek("acks", to(pb.SeekTo_SEEK_TO_EARLIEST)); reasonOf(err) != pb.ErrorReason_ERROR_REASON_BROKER_REFUSED {
			t.Errorf("a queue without positions: %v", err)
		}
	})
}

// A broker that does not answer neither hangs a seek for ever nor a pause at
// all, and what was not moved for certain can be taken back.
func TestSeekOnAFrozenBroker(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.handled(5)
		r.broker.Freeze()
		began := time.Now()
		seek := make(chan error, 1)
		go func() {
			_, err := r.seek("c0", to(pb.SeekTo_SEEK_TO_EARLIEST))
			seek <- err
		}()
		time.Sleep(time.Second)
		r.do(pb.Verb_VERB_PAUSE, "c0")
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("the pause waited %v", d)
		}
		if err := <-seek; reasonOf(err) != pb.ErrorReason_ERROR_REASON_BROKER_UNAVAILABLE || !strings.Contains(err.Error(), "did not wait") {
			t.Errorf("the seek that the pause cut: %v", err)
		}
		began = time.Now()
		_, err := r.seek("c0", to(pb.SeekTo_SEEK_TO_EARLIEST))
		if d := time.Since(began); reasonOf(err) != pb.ErrorReason_ERROR_REASON_BROKER_UNAVAILABLE || d > time.Minute {
			t.Errorf("a seek that nobody cut: %v after %v", err, d)
		}
		r.broker.Thaw()
		if at := r.broker.Committed("c0")[0]; at != 5 {
			t.Errorf("committed %d", at)
		}
	})
}

// The positions before are durable before anything moves; an answer that never
// came can be taken back.
func TestSeekThatMayHaveMovedIsTakenBack(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.handled(5)
		// The first call of the driver asks what there is to move, the second moves.
		r.broker.Fail(memory.Failure{Op: memory.OpSeek, After: 1, Times: 1, Class: brokers.Transient, Done: true})
		_, err := r.seek("c0", to(pb.SeekTo_SEEK_TO_EARLIEST))
		if reasonOf(err) != pb.ErrorReason_ERROR_REASON_BROKER_UNAVAILABLE || !strings.Contains(err.Error(), "PREVIOUS") {
			t.Fatalf("a seek whose answer was lost: %v", err)
		}
		if at := r.broker.Committed("c0")[0]; at != 0 {
			t.Fatalf("the fault did not happen: committed %d", at)
		}
		if _, err := r.seek("c0", to(pb.SeekTo_SEEK_TO_PREVIOUS)); err != nil || r.broker.Committed("c0")[0] != 5 {
			t.Errorf("undo: %v, committed %v", err, r.broker.Committed("c0"))
		}
	})
}
