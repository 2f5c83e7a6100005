package e2e

import (
	"context"
	"syscall"
	"testing"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// TestBrokerKilledAndRestarted: BACKOFF and back, verbs answered meanwhile.
func TestBrokerKilledAndRestarted(t *testing.T) {
	w := newWorld(t, 20)
	p := w.load(10 * time.Millisecond)
	for range 3 {
		before := sum(w.ledger.calls())
		w.eventually("load", 30*time.Second, func() bool { return sum(w.ledger.calls())-before > 500 })
		w.broker.kill()
		w.await("c00", pb.State_STATE_BACKOFF, 15*time.Second)
		w.verbsAnswer()
		w.broker.start()
		w.resumeAll()
	}
	w.account(p.stop(), time.Minute)
}

// TestBrokerFrozen: a broker that does not answer hangs no verb.
func TestBrokerFrozen(t *testing.T) {
	w := newWorld(t, 20)
	p := w.load(10 * time.Millisecond)
	before := sum(w.ledger.calls())
	w.eventually("load", 30*time.Second, func() bool { return sum(w.ledger.calls())-before > 500 })
	w.broker.signal(syscall.SIGSTOP)
	thaw := time.After(30 * time.Second)
	w.verbsAnswer()
	<-thaw
	w.broker.signal(syscall.SIGCONT)
	w.resumeAll()
	before = sum(w.ledger.calls())
	w.eventually("load again", time.Minute, func() bool { return sum(w.ledger.calls())-before > 1000 })
	w.account(p.stop(), 2*time.Minute)
}

// verbsAnswer carries out verbs on a broker that is not there, each within its
// limits.
func (w *world) verbsAnswer() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, 30*time.Second)
	defer cancel()
	within := func(what string, limit time.Duration, f func() error) {
		w.t.Helper()
		began := time.Now()
		if err := f(); err != nil {
			w.t.Errorf("%s: %v", what, err)
		}
		if d := time.Since(began); d > limit {
			w.t.Errorf("%s took %v, at most %v", what, d, limit)
		}
	}
	within("kill", 3*time.Second, func() error {
		out, err := w.api.Kill(ctx, &pb.KillRequest{Target: target("c01")})
		if err == nil && out.GetResults()[0].GetState() != pb.State_STATE_STOPPED {
			w.t.Errorf("killed, but %v", out.GetResults()[0])
		}
		return err
	})
	within("pause", 2*time.Second, func() error {
		_, err := w.api.Pause(ctx, &pb.PauseRequest{Target: target("c02")})
		return err
	})
	within("stop", 2*time.Second, func() error {
		_, err := w.api.Stop(ctx, &pb.StopRequest{Target: target("c03")})
		return err
	})
	within("drain", 2*time.Second, func() error {
		_, err := w.api.Drain(ctx, &pb.DrainRequest{Target: target("c04")})
		return err
	})
	w.await("c02", pb.State_STATE_PAUSED, 15*time.Second)
	w.await("c03", pb.State_STATE_STOPPED, 15*time.Second)
	w.await("c04", pb.State_STATE_STOPPED, 15*time.Second)
}

func (w *world) resumeAll() {
	w.t.Helper()
	all := &pb.Target{Selector: "kind=e2e"}
	if _, err := w.api.Resume(w.ctx, &pb.ResumeRequest{Target: all, AllHolds: true}); err != nil {
		w.t.Fatalf("resume: %v", err)
	}
	if _, err := w.api.Start(w.ctx, &pb.StartRequest{Target: all}); err != nil {
		w.t.Fatalf("start: %v", err)
	}
	for _, n := range w.names {
		w.await(n, pb.State_STATE_RUNNING, 60*time.Second)
	}
}
