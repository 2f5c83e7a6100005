//nolint:forbidigo // every test here runs in a bubble of virtual time
package supervisor_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"google.golang.org/protobuf/types/known/durationpb"
)

// inHandler runs f once, as the handler of one message.
func inHandler(t *testing.T, change func(*pb.ConsumerSpec), f func(ctx context.Context, r *rig) supervisor.Outcome, after func(r *rig)) {
	t.Helper()
	inBubble(t, func(r *rig) {
		r.handle = func(ctx context.Context, m *supervisor.Message) supervisor.Outcome {
			if m.Attempt > 1 {
				return supervisor.Ack()
			}
			return f(ctx, r)
		}
		r.publish("q", "m", 1)
		r.apply(newSpec("q", change))
		after(r)
	})
}

func timeout(d time.Duration) func(*pb.ConsumerSpec) {
	return func(s *pb.ConsumerSpec) { s.Handler.Timeout = durationpb.New(d) }
}

type keyType struct{}

func TestHandlerContextsEndWithTheirTimeout(t *testing.T) {
	derive := map[string]func(context.Context) (context.Context, context.CancelFunc){
		"own":        func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} },
		"WithCancel": context.WithCancel,
		"WithTimeout": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Hour)
		},
		"WithValue": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithValue(ctx, keyType{}, 1), func() {}
		},
		"a tree": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, a := context.WithCancel(context.WithValue(ctx, keyType{}, 1))
			ctx, b := context.WithTimeout(ctx, time.Hour)
			return ctx, func() { b(); a() }
		},
	}
	for name, f := range derive {
		t.Run(name, func(t *testing.T) {
			inHandler(t, timeout(time.Second), func(parent context.Context, _ *rig) supervisor.Outcome {
				ctx, cancel := f(parent)
				defer cancel()
				began := time.Now()
				if d, ok := ctx.Deadline(); !ok || d.Sub(began) > time.Second {
					t.Errorf("deadline in %v, %v", d.Sub(began), ok)
				}
				if ctx.Err() != nil || supervisor.CauseOf(ctx) != nil {
					t.Errorf("ended at once: %v", ctx.Err())
				}
				<-ctx.Done()
				if d := time.Since(began); d < time.Second || d > time.Second+20*time.Millisecond {
					t.Errorf("ended after %v", d)
				}
				if !errors.Is(ctx.Err(), context.DeadlineExceeded) || !errors.Is(supervisor.CauseOf(ctx), supervisor.ErrTimeout) {
					t.Errorf("error %v, cause %v", ctx.Err(), supervisor.CauseOf(ctx))
				}
				return supervisor.Retry(ctx.Err())
			}, func(r *rig) { wantAcked(r, "q", 1) })
		})
	}
}

func TestContextsThatEndByThemselvesSayWhy(t *testing.T) {
	errMine := errors.New("mine")
	inHandler(t, timeout(time.Minute), func(parent context.Context, _ *rig) supervisor.Outcome {
		ctx, cancel := context.WithCancelCause(parent)
		cancel(errMine)
		if got := supervisor.CauseOf(ctx); !errors.Is(got, errMine) {
			t.Errorf("cause %v", got)
		}
		if supervisor.CauseOf(parent) != nil || parent.Err() != nil {
			t.Error("the handler's own context ended with it")
		}
		return supervisor.Ack()
	}, func(r *rig) { wantAcked(r, "q", 1) })
}

func TestContextsSayWhoEndedThem(t *testing.T) {
	for want, verb := range map[error]pb.Verb{
		supervisor.ErrKilled: pb.Verb_VERB_KILL, supervisor.ErrStopping: pb.Verb_VERB_STOP,
	} {
		t.Run(verb.String(), func(t *testing.T) {
			cause := make(chan error, 1)
			entered := make(chan struct{})
			inHandler(t, shortLimits, func(ctx context.Context, _ *rig) supervisor.Outcome {
				close(entered)
				<-ctx.Done()
				cause <- supervisor.CauseOf(ctx)
				if !errors.Is(ctx.Err(), context.Canceled) && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
					t.Errorf("error %v", ctx.Err())
				}
				return supervisor.Retry(ctx.Err())
			}, func(r *rig) {
				<-entered
				time.Sleep(500 * time.Millisecond)
				r.do(verb, "q", func(c *supervisor.Command) {
					if verb == pb.Verb_VERB_STOP {
						c.Soft, c.Hard = 100*time.Millisecond, 300*time.Millisecond
					}
				})
				r.await("q", pb.State_STATE_STOPPED)
				if got := <-cause; !errors.Is(got, want) {
					t.Errorf("cause %v, want %v", got, want)
				}
				wantQueue(t, r, "q", 1, 0)
			})
		})
	}
}

// What a handler left behind learns that it returned.
func TestContextsEndWhenTheHandlerReturns(t *testing.T) {
	for name, ask := range map[string]bool{"asked for Done before": true, "asks after": false} {
		t.Run(name, func(t *testing.T) {
			kept := make(chan context.Context, 1)
			inHandler(t, timeout(time.Minute), func(ctx context.Context, _ *rig) supervisor.Outcome {
				if ask {
					_ = ctx.Done()
				}
				kept <- ctx
				return supervisor.Ack()
			}, func(r *rig) {
				wantAcked(r, "q", 1)
				ctx := <-kept
				<-ctx.Done()
				if !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(supervisor.CauseOf(ctx), supervisor.ErrReturned) {
					t.Errorf("error %v, cause %v", ctx.Err(), supervisor.CauseOf(ctx))
				}
			})
		})
	}
}

func TestAfterFuncsOfHandlerContexts(t *testing.T) {
	ran := make(chan string, 10)
	inHandler(t, timeout(time.Second), func(ctx context.Context, r *rig) supervisor.Outcome {
		// It may call the supervisor: no lock is held over it.
		context.AfterFunc(ctx, func() { ran <- r.get("q").GetSpec().GetName() })
		own, ok := ctx.(interface{ AfterFunc(f func()) func() bool })
		if !ok {
			t.Fatal("contexts derived from it would need a goroutine each")
		}
		own.AfterFunc(func() { ran <- r.get("q").GetSpec().GetName() })
		stopped := context.AfterFunc(ctx, func() { ran <- "stopped" })
		if !stopped() || stopped() {
			t.Error("stop is to tell true once")
		}
		<-ctx.Done()
		late := context.AfterFunc(ctx, func() { ran <- "late" })
		synctest.Wait()
		if late() {
			t.Error("stopped what has run")
		}
		return supervisor.Ack()
	}, func(r *rig) {
		wantAcked(r, "q", 1)
		synctest.Wait()
		close(ran)
		n := map[string]int{}
		for s := range ran {
			n[s]++
		}
		if n["q"] != 2 || n["late"] != 1 || n["stopped"] != 0 {
			t.Errorf("ran %v", n)
		}
	})
}

func TestDerivedContextsNeedNoGoroutines(t *testing.T) {
	inHandler(t, timeout(time.Minute), func(parent context.Context, _ *rig) supervisor.Outcome {
		before := runtime.NumGoroutine()
		var cancels []context.CancelFunc
		for range 100 {
			_, cancel := context.WithCancel(parent)
			cancels = append(cancels, cancel)
		}
		if n := runtime.NumGoroutine(); n > before+5 {
			t.Errorf("%d goroutines more", n-before)
		}
		for _, c := range cancels {
			c()
		}
		return supervisor.Ack()
	}, func(r *rig) { wantAcked(r, "q", 1) })
}

func TestContextsAreNeverUsedForAnotherMessage(t *testing.T) {
	inBubble(t, func(r *rig) {
		var mu sync.Mutex
		seen := map[context.Context]string{}
		r.handle = func(ctx context.Context, m *supervisor.Message) supervisor.Outcome {
			mu.Lock()
			defer mu.Unlock()
			if other, ok := seen[ctx]; ok {
				t.Errorf("%s got the context of %s", m.ID(), other)
			}
			seen[ctx] = m.ID()
			if m.Attempt == 1 {
				return supervisor.Retry(errors.New("once"))
			}
			return supervisor.Ack()
		}
		r.publish("q", "m", 300)
		r.apply(newSpec("q", slots(4)))
		wantAcked(r, "q", 300)
		if len(seen) != 600 {
			t.Errorf("%d contexts for 600 calls", len(seen))
		}
	})
}
