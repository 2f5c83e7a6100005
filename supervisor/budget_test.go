//nolint:forbidigo // every test here runs in a bubble of virtual time
package supervisor_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

// publishSized puts messages of these sizes, in bytes, into a queue.
func (r *rig) publishSized(queue string, sizes ...int) {
	r.t.Helper()
	_ = r.broker.Create(queue, memory.QueueOptions{}) // there already is as good
	for i, n := range sizes {
		if err := r.broker.Publish(queue, memory.Message{ID: strconv.Itoa(i), Body: make([]byte, n)}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// peaks follows the most bytes and messages that a consumer held when a call began.
type peaks struct{ bytes, messages atomic.Int64 }

func (p *peaks) handler(r *rig, d time.Duration) supervisor.HandlerFunc {
	return func(_ context.Context, m *supervisor.Message) supervisor.Outcome {
		st := r.get(m.Subject).GetStatus()
		raise(&p.bytes, st.GetInFlightBytes())
		raise(&p.messages, int64(st.GetInFlight()))
		time.Sleep(d)
		return supervisor.Ack()
	}
}

func raise(to *atomic.Int64, n int64) {
	for old := to.Load(); n > old && !to.CompareAndSwap(old, n); old = to.Load() {
		continue
	}
}

func bytesBound(n int64) func(*pb.ConsumerSpec) {
	return func(s *pb.ConsumerSpec) { s.MaxInFlight = &pb.MaxInFlight{Messages: new(int32(100)), Bytes: new(n)} }
}

func TestBytesInFlightKeepTheirBound(t *testing.T) {
	for _, size := range []int{1, 9, 30, 45, 60, 99, 100} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				var p peaks
				r.handle = p.handler(r, time.Millisecond)
				sizes := make([]int, 300)
				for i := range sizes {
					sizes[i] = size
				}
				r.publishSized("q", sizes...)
				r.apply(newSpec("q", bytesBound(100), slots(3)))
				wantAcked(r, "q", int64(len(sizes)))
				// The first batch is asked for before any size is known.
				if got := p.bytes.Load(); got > 100 {
					t.Errorf("%d bytes in flight, at most 100", got)
				}
				if got := p.messages.Load(); size < 30 && got < 2 {
					t.Errorf("%d messages at a time", got)
				}
			})
		})
	}
}

func TestAMessageLargerThanTheBoundPassesAlone(t *testing.T) {
	inBubble(t, func(r *rig) {
		var alone atomic.Int64
		r.handle = func(_ context.Context, m *supervisor.Message) supervisor.Outcome {
			if st := r.get("q").GetStatus(); m.Size > 100 {
				alone.Add(1)
				if st.GetInFlight() != 1 {
					t.Errorf("%d messages in flight beside one of %d bytes", st.GetInFlight()-1, m.Size)
				}
			}
			time.Sleep(time.Millisecond)
			return supervisor.Ack()
		}
		r.publishSized("q", 500, 500, 20, 20, 20, 20, 20, 500)
		r.apply(newSpec("q", bytesBound(100), slots(3)))
		wantAcked(r, "q", 8)
		if alone.Load() != 3 {
			t.Errorf("%d large ones handled", alone.Load())
		}
	})
}

func TestConsumersShareTheBudgetAndNoneStarves(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.close()
		r.limits = &pb.Limits{BytesInFlight: new(int64(1000)), BytesInFlightPerNamespace: new(int64(800))}
		r.open()
		var most atomic.Int64
		r.handle = func(context.Context, *supervisor.Message) supervisor.Outcome {
			raise(&most, r.s.BytesInFlight())
			time.Sleep(time.Millisecond)
			return supervisor.Ack()
		}
		const n = 20
		sizes := make([]int, 100)
		for i := range sizes {
			sizes[i] = 50
		}
		for i := range n {
			name := fmt.Sprintf("c%d", i)
			r.publishSized(name, sizes...)
			r.apply(newSpec(name, bytesBound(1<<20)))
		}
		for i := range n {
			wantAcked(r, fmt.Sprintf("c%d", i), int64(len(sizes)))
		}
		// What n consumers asked for at the same moment may come on top.
		if got := most.Load(); got > 800+n*50 {
			t.Errorf("%d bytes in flight", got)
		}
		if got := r.s.BytesInFlight(); got != 0 {
			t.Errorf("%d bytes in flight in the end", got)
		}
	})
}

// Whatever ends it, a consumer gives back what it took of the budget.
func TestTheBudgetIsWholeAgainAfterEveryEnd(t *testing.T) {
	for _, v := range []pb.Verb{pb.Verb_VERB_PAUSE, pb.Verb_VERB_STOP, pb.Verb_VERB_DRAIN, pb.Verb_VERB_KILL} {
		t.Run(v.String(), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				entered, release := deaf(r)
				defer close(release)
				r.publish("q", "m", 50)
				r.apply(newSpec("q", shortLimits, slots(2)))
				<-entered
				<-entered
				if r.s.BytesInFlight() == 0 {
					t.Error("nothing was charged")
				}
				r.receipt("q", r.do(v, "q").GetOperation())
				if got := r.s.BytesInFlight(); got != 0 {
					t.Errorf("%d bytes are still charged", got)
				}
			})
		})
	}
}
