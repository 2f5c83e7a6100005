//nolint:forbidigo // every test here runs in a bubble of virtual time
package supervisor_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

// kind makes handlers as the test says, in place of the rig's own.
type kind struct {
	make func(s *pb.ConsumerSpec) (supervisor.Handler, error)
}

func (kind) Kind() string                           { return "go" }
func (kind) Check(*pb.ConsumerSpec) []brokers.Fault { return nil }
func (k kind) New(s *pb.ConsumerSpec, _ supervisor.HandlerEnv) (supervisor.Handler, error) {
	return k.make(s)
}

// withKind reopens the supervisor with handlers made by f.
func (r *rig) withKind(f func(s *pb.ConsumerSpec) (supervisor.Handler, error)) {
	r.close()
	r.kind = kind{f}
	r.open()
}

// closing is a handler whose Close does what the test wants.
type closing struct {
	supervisor.HandlerFunc
	close func() error
}

func (c closing) Close() error { return c.close() }

// words are noted down from many goroutines.
type words struct {
	mu  sync.Mutex
	all []string
}

func (w *words) add(s string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, s)
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.all, " ")
}

func acks(context.Context, *supervisor.Message) supervisor.Outcome { return supervisor.Ack() }

func TestHandlersThatCannotBeMade(t *testing.T) {
	for name, f := range map[string]func() (supervisor.Handler, error){
		"error":  func() (supervisor.Handler, error) { return nil, errors.New("no such table") },
		"panic":  func() (supervisor.Handler, error) { panic("no such table") },
		"goexit": func() (supervisor.Handler, error) { runtime.Goexit(); return nil, nil },
		"hangs":  func() (supervisor.Handler, error) { time.Sleep(time.Hour); return nil, errors.New("gave up") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.withKind(func(*pb.ConsumerSpec) (supervisor.Handler, error) { return f() })
				r.apply(newSpec("q"))
				c := r.await("q", pb.State_STATE_FAILED)
				if !strings.Contains(c.GetStatus().GetReason(), "handler") {
					t.Errorf("reason %q", c.GetStatus().GetReason())
				}
				r.do(pb.Verb_VERB_START, "q")
				within(t, "kill", 2*time.Second, func() { r.do(pb.Verb_VERB_KILL, "q") })
				r.close()
				time.Sleep(time.Hour)
			})
		})
	}
}

func TestHandlersWhoseCloseHangsHoldUpNobody(t *testing.T) {
	inBubble(t, func(r *rig) {
		hang := make(chan struct{})
		r.withKind(func(*pb.ConsumerSpec) (supervisor.Handler, error) {
			return closing{acks, func() error { <-hang; return nil }}, nil
		})
		r.apply(newSpec("q"))
		r.await("q", pb.State_STATE_RUNNING)
		within(t, "stop", time.Second, func() {
			r.do(pb.Verb_VERB_STOP, "q")
			r.await("q", pb.State_STATE_STOPPED)
		})
		within(t, "shutdown", 3*time.Second, func() { r.close() })
		close(hang)
	})
}

// A handler made for a start that was overtaken is of a spec that may not be in
// force any more.
func TestHandlersOfOvertakenStartsAreClosed(t *testing.T) {
	inBubble(t, func(r *rig) {
		var made, closed words
		r.withKind(func(s *pb.ConsumerSpec) (supervisor.Handler, error) {
			name := s.GetHandler().GetGo().GetName()
			time.Sleep(5 * time.Second)
			made.add(name)
			return closing{acks, func() error { closed.add(name); return nil }}, nil
		})
		named := func(name string) func(*pb.ConsumerSpec) {
			return func(s *pb.ConsumerSpec) { s.Handler.Kind = &pb.Handler_Go{Go: &pb.GoHandler{Name: name}} }
		}
		r.apply(newSpec("q", named("old")))
		time.Sleep(time.Second)
		r.do(pb.Verb_VERB_KILL, "q")
		r.apply(newSpec("q", named("new")))
		time.Sleep(time.Minute)
		r.do(pb.Verb_VERB_START, "q")
		r.await("q", pb.State_STATE_RUNNING)
		if made.String() != "old new" || closed.String() != "old" {
			t.Errorf("made %v, closed %v", &made, &closed)
		}
		r.close()
		synctest.Wait()
		if closed.String() != "old new" {
			t.Errorf("closed %v in the end", &closed)
		}
	})
}

func TestHandlersThatEndTheirGoroutineOrPanicWithNil(t *testing.T) {
	for name, f := range map[string]func(){
		"goexit": runtime.Goexit,
		"nil":    func() { panic(nil) }, //nolint:govet // that is the case
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				var h handlings
				r.handle = func(_ context.Context, m *supervisor.Message) supervisor.Outcome {
					if h.add(m) == 1 {
						f()
					}
					return supervisor.Ack()
				}
				r.publish("q", "m", 20)
				r.apply(newSpec("q", byKey, slots(3)))
				r.until("all are handled", func() bool { return r.get("q").GetStatus().GetCounters().GetAcked() == 20 })
				for _, m := range r.broker.Acked("q") {
					if h.of(m) != 2 {
						t.Errorf("%s was handled %d times", m, h.of(m))
					}
				}
			})
		})
	}
}

// Given back, a message comes again at once: the two must not go round as fast
// as they can.
func TestAHandlerThatAlwaysReleasesDoesNotSpin(t *testing.T) {
	inBubble(t, func(r *rig) {
		var h handlings
		r.handle = func(_ context.Context, m *supervisor.Message) supervisor.Outcome {
			h.add(m)
			return supervisor.Release()
		}
		r.publish("q", "m", 1)
		r.apply(newSpec("q"))
		time.Sleep(10 * time.Second)
		if n := h.of("m-0"); n < 10 || n > 100 {
			t.Errorf("handled %d times in 10 s", n)
		}
		res := r.do(pb.Verb_VERB_STOP, "q")
		within(t, "stop", time.Second, func() { r.await("q", pb.State_STATE_STOPPED) })
		clean(t, r.receipt("q", res.GetOperation()))
		wantQueue(t, r, "q", 1, 0)
	})
}

func TestRetryAfterIsHonoured(t *testing.T) {
	inBubble(t, func(r *rig) {
		var at []time.Time
		r.handle = func(context.Context, *supervisor.Message) supervisor.Outcome {
			at = append(at, time.Now())
			if len(at) == 1 {
				return supervisor.RetryAfter(errors.New("busy"), time.Minute)
			}
			return supervisor.Ack()
		}
		r.publish("q", "m", 1)
		r.apply(newSpec("q"))
		wantAcked(r, "q", 1)
		if d := at[1].Sub(at[0]); d < time.Minute || d > time.Minute+time.Second {
			t.Errorf("tried again after %v", d)
		}
	})
}

func TestCancellingOneMessageBurnsNoAttempt(t *testing.T) {
	inBubble(t, func(r *rig) {
		var attempts []int32
		var causes []error
		r.handle = func(ctx context.Context, m *supervisor.Message) supervisor.Outcome {
			attempts = append(attempts, m.Attempt)
			if len(attempts) > 3 {
				return supervisor.Ack()
			}
			<-ctx.Done()
			causes = append(causes, supervisor.CauseOf(ctx))
			return supervisor.DeadLetter(ctx.Err())
		}
		create(r, "q", memory.QueueOptions{})
		r.publish("q", "m", 1)
		r.apply(newSpec("q", func(s *pb.ConsumerSpec) {
			s.Retry = &pb.Retry{Attempts: new(int32(1))}
			s.DeadLetter = &pb.DeadLetter{Target: &pb.DeadLetter_Topic{Topic: "dead"}}
		}))
		for range 3 {
			r.until("it runs", func() bool { return r.get("q").GetStatus().GetRunning() == 1 })
			out, err := r.s.CancelInFlight(r.ctx, "alice", &pb.CancelInFlightRequest{Name: "q", MessageId: "m-0"})
			if err != nil || !out.GetWasRunning() {
				t.Errorf("%v, %v", out, err)
			}
			time.Sleep(time.Second)
		}
		wantAcked(r, "q", 1)
		for i, n := range attempts {
			if n != 1 {
				t.Errorf("call %d is attempt %d", i, n)
			}
		}
		for _, c := range causes {
			if !errors.Is(c, supervisor.ErrCancelled) {
				t.Errorf("cause %v", c)
			}
		}
		if n := len(r.broker.Waiting("dead")); n != 0 {
			t.Errorf("%d dead letters", n)
		}
	})
}

func wantAcked(r *rig, queue string, n int64) {
	r.t.Helper()
	r.until("all are acked", func() bool { return r.get(queue).GetStatus().GetCounters().GetAcked() == n })
}

// One that waits for its call is given back, whatever it waits for.
func TestCancellingAWaitingMessageGivesItBack(t *testing.T) {
	for _, ordering := range []pb.Ordering{pb.Ordering_ORDERING_NONE, pb.Ordering_ORDERING_KEY} {
		t.Run(ordering.String(), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				var h handlings
				busy := make(chan struct{})
				r.handle = func(_ context.Context, m *supervisor.Message) supervisor.Outcome {
					if n := h.add(m); m.ID() == "m-0" && n == 1 {
						return supervisor.RetryAfter(errors.New("much later"), time.Hour)
					}
					<-busy
					return supervisor.Ack()
				}
				create(r, "q", memory.QueueOptions{})
				for _, id := range []string{"m-0", "m-1", "m-2", "m-3"} {
					if err := r.broker.Publish("q", memory.Message{ID: id, Key: []byte("k")}); err != nil {
						t.Fatal(err)
					}
				}
				r.apply(newSpec("q", timeout(time.Hour), func(s *pb.ConsumerSpec) { s.Ordering = ordering }))
				r.until("it waits", func() bool { return h.of("m-0") == 1 })
				cancel := func(id string) {
					t.Helper()
					out, err := r.s.CancelInFlight(r.ctx, "alice", &pb.CancelInFlightRequest{Name: "q", MessageId: id})
					if err != nil || out.GetWasRunning() {
						t.Errorf("%v, %v", out, err)
					}
				}
				cancel("m-3") // in a lane
				cancel("m-0") // between two attempts: it comes again at once
				time.Sleep(time.Second)
				close(busy)
				wantAcked(r, "q", 4)
				if n := r.get("q").GetStatus().GetCounters().GetReturned(); n != 2 {
					t.Errorf("%d returned", n)
				}
				wantQueue(t, r, "q", 0, 0)
			})
		})
	}
}
