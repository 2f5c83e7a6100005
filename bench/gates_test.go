package main

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What a message may cost in the core, driver included (which itself allocates
// nothing per message): allocations, and bytes of what the collector must free.
const (
	allocationsPerMessage = 0.1
	bytesPerMessage       = 128

	// idleHeap is an idle consumer's own, in bytes. How large stacks have grown
	// depends on timing: they are measured, and not held here.
	idleHeap = 12 << 10

	spanWarm, spanLength = 20_000, 100_000
)

// span counts handler calls, and tells when the first and when the second
// number of them is reached.
type span struct {
	handler     supervisor.Handler
	first, last int64
	n           atomic.Int64
	began, over chan struct{}
}

func newSpan(h supervisor.Handler, first, last int64) *span {
	return &span{handler: h, first: first, last: last, began: make(chan struct{}), over: make(chan struct{})}
}

func (s *span) Handle(ctx context.Context, m *supervisor.Message) supervisor.Outcome {
	s.hit()
	return s.handler.Handle(ctx, m)
}

func (s *span) hit() {
	switch s.n.Add(1) {
	case s.first:
		close(s.began)
	case s.last:
		close(s.over)
	}
}

// perMessage returns what one message of the span allocates.
func (s *span) perMessage() (allocations, bytes float64) {
	var before, after runtime.MemStats
	<-s.began
	runtime.ReadMemStats(&before)
	from := s.n.Load()
	<-s.over
	handled := float64(s.n.Load() - from)
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / handled, float64(after.TotalAlloc-before.TotalAlloc) / handled
}

func TestMessagesCostNoAllocations(t *testing.T) {
	for _, c := range coreCases() {
		t.Run(c.name, func(t *testing.T) {
			s := newSpan(c.handler, spanWarm, spanWarm+spanLength)
			c.handler = s
			h, err := c.supervised(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer closeHost(t, h)
			if _, err := h.verb(t.Context(), pb.Verb_VERB_RESUME, "core"); err != nil {
				t.Fatal(err)
			}
			allocations, bytes := s.perMessage()
			t.Logf("%.3f allocations, %.0f bytes per message", allocations, bytes)
			most, mostBytes := allocationsPerMessage, float64(bytesPerMessage)
			if c.done { // a channel of its own for whoever asks
				most, mostBytes = most+2, mostBytes+200
			}
			if allocations > most {
				t.Errorf("%.3f allocations per message, want at most %.1f", allocations, most)
			}
			if bytes > mostBytes {
				t.Errorf("%.0f bytes allocated per message, want at most %.0f", bytes, mostBytes)
			}
		})
	}
}

func TestIdleConsumersAreSmall(t *testing.T) {
	const n = 500
	for _, kind := range []struct {
		name  string
		setup func(t *testing.T) idleSetup
	}{{"memory", memoryGate(n)}, {"rabbitmq", rabbitGate(n)}} {
		t.Run(kind.name, func(t *testing.T) {
			bare, err := kind.setup(t).bare(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			hosted, err := kind.setup(t).hosted(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			own := hosted.minus(bare)
			t.Logf("supervised: %d bytes (%d heap), %.2f goroutines each; own share %d bytes",
				hosted.live()/n, hosted.Heap/n, float64(hosted.Goroutines)/n, own.live()/n)
			if got := own.Heap / n; got > idleHeap {
				t.Errorf("an idle consumer's own share of the heap is %d bytes, want at most %d", got, idleHeap)
			}
			if got := hosted.Goroutines; got/n > ownGoroutinesGoal {
				t.Errorf("%d idle consumers have %d goroutines, want at most %d each", n, got, ownGoroutinesGoal)
			}
		})
	}
}

func memoryGate(n int) func(*testing.T) idleSetup {
	return func(t *testing.T) idleSetup {
		s, err := memoryIdle(n+1, "")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// rabbitGate has the stub in this process: it has a goroutine for each of its
// connections, of which there is one.
func rabbitGate(n int) func(*testing.T) idleSetup {
	return func(t *testing.T) idleSetup {
		s, err := rabbitIdle(n+1, startStub(t).url())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

func startStub(t *testing.T) *amqpStub {
	t.Helper()
	stub, err := newAMQPStub(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stub.close(); err != nil {
			t.Error(err)
		}
	})
	return stub
}

func closeHost(t *testing.T, h *host) {
	t.Helper()
	if err := h.close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}
