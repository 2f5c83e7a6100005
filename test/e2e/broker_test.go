package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// TestBrokerKilledAndRestarted: trouble is seen, verbs are answered meanwhile,
// and all goes on afterwards.
func TestBrokerKilledAndRestarted(t *testing.T) { //nolint:tparallel // scenarios one after another, brokers at once
	onEach(t, killBroker)
}

func killBroker(t *testing.T, f fixture) {
	w := newWorld(t, f, f.consumers())
	base := w.baseline()
	p := w.gentle()
	for range 5 {
		w.awaitCalls(300)
		w.kill()
		w.eventually("c00 knows that the broker is away", 15*time.Second, func() bool { return troubled(w.get("c00").GetStatus()) })
		w.verbsAnswer()
		w.up()
		w.resumeAll()
	}
	w.account(p.stop(), time.Minute)
	w.nothingLeft()
	w.backAt(base)
}

// TestBrokerFrozen: a broker that does not answer hangs no verb.
func TestBrokerFrozen(t *testing.T) { //nolint:tparallel // scenarios one after another, brokers at once
	onEach(t, freezeBroker)
}

func freezeBroker(t *testing.T, f fixture) {
	w := newWorld(t, f, f.consumers())
	base := w.baseline()
	p := w.gentle()
	w.awaitCalls(300)
	w.freeze()
	thaw := time.After(30 * time.Second)
	w.verbsAnswer()
	<-thaw
	w.thaw()
	w.resumeAll()
	w.awaitCalls(1000)
	w.account(p.stop(), 2*time.Minute)
	w.nothingLeft()
	w.backAt(base)
}

// TestConnectionsClosed: the broker's operators close the daemon's connections
// again and again, under load.
func TestConnectionsClosed(t *testing.T) { //nolint:tparallel // scenarios one after another, brokers at once
	onEach(t, closeConnections)
}

func closeConnections(t *testing.T, f fixture) {
	closer, ok := f.(closesConnections)
	if !ok {
		t.Log("this broker's operators cannot close connections")
		return
	}
	w := newWorld(t, f, f.consumers())
	base := w.baseline()
	p := w.gentle()
	w.awaitCalls(300)
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-tick.C {
		if err := closer.closeConnections(w.ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range w.names {
		w.await(n, pb.State_STATE_RUNNING, 30*time.Second)
	}
	w.account(p.stop(), time.Minute)
	w.nothingLeft()
	w.backAt(base)
}

// up starts a killed broker again.
func (w *world) up() {
	w.t.Helper()
	if err := w.restart(w.ctx); err != nil {
		w.t.Fatal(err)
	}
}

// awaitCalls waits for so many more.
func (w *world) awaitCalls(n int) {
	w.t.Helper()
	before := sum(w.ledger.calls())
	w.eventually(fmt.Sprintf("%d more calls", n), time.Minute, func() bool { return sum(w.ledger.calls())-before > n })
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
