package supervisor_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

func TestConsumesAll(t *testing.T) {
	inBubble(t, func(r *rig) {
		var n atomic.Int64
		r.handle = func(context.Context, *supervisor.Message) supervisor.Outcome {
			n.Add(1)
			return supervisor.Ack()
		}
		r.publish("q", "m", 1000)
		r.apply(newSpec("q"))
		r.until("all handled", func() bool { return n.Load() == 1000 })
		r.until("all settled", func() bool { return r.get("q").GetStatus().GetInFlight() == 0 })
		if got := r.get("q").GetStatus().GetCounters().GetAcked(); got != 1000 {
			t.Errorf("acked %d, want 1000", got)
		}
	})
}

func TestPauseStartsNothingAndGivesBack(t *testing.T) {
	inBubble(t, func(r *rig) {
		var started atomic.Int64
		r.handle = func(context.Context, *supervisor.Message) supervisor.Outcome {
			started.Add(1)
			time.Sleep(500 * time.Millisecond)
			return supervisor.Ack()
		}
		r.publish("q", "m", 20000)
		r.apply(newSpec("q", func(s *pb.ConsumerSpec) { s.Concurrency = new(int32(4)) }))
		r.until("some run", func() bool { return started.Load() >= 4 })
		res := r.do(pb.Verb_VERB_PAUSE, "q")
		before := started.Load()
		r.await("q", pb.State_STATE_PAUSED)
		if n := started.Load(); n != before {
			t.Errorf("%d handler calls started after the pause", n-before)
		}
		rc := r.receipt("q", res.GetOperation())
		if rc.GetOutcome() != pb.ReceiptOutcome_RECEIPT_OUTCOME_CLEAN || rc.GetCompleted() != 4 || rc.GetReturned() != 96 {
			t.Errorf("receipt %v", rc)
		}
		r.do(pb.Verb_VERB_RESUME, "q")
		r.until("it goes on", func() bool { return started.Load() > before+8 })
	})
}
