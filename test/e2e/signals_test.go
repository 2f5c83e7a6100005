package e2e

import (
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// budget is shutdown.hard of the configuration and the two seconds beyond it.
const budget = 8 * time.Second

func TestSIGTERMUnderLoad(t *testing.T) { //nolint:tparallel // scenarios one after another, brokers at once
	onEach(t, terminate)
}

func terminate(t *testing.T, f fixture) {
	w := newWorld(t, f, f.consumers())
	p := w.gentle()
	w.awaitCalls(1000)
	w.daemon.signal(syscall.SIGTERM)
	if code := w.daemon.end(budget); code != 0 {
		t.Errorf("exit code %d, want 0\n%s", code, w.daemon.tail())
	}
	w.daemon.start()
	for _, n := range w.names {
		w.await(n, pb.State_STATE_RUNNING, 30*time.Second)
	}
	if n := w.account(p.stop(), time.Minute); n != 0 {
		t.Errorf("%d messages were handled twice after a clean shutdown", n)
	}
}

// hang lets one message's call hang, and waits until it does, under load.
func (w *world) hang(id string) (p *publisher, release func()) {
	w.t.Helper()
	gate := make(chan struct{})
	w.ledger.mu.Lock()
	w.ledger.hang[id] = gate
	w.ledger.mu.Unlock()
	p = w.gentle()
	select {
	case <-w.ledger.hanging:
	case <-time.After(30 * time.Second):
		w.t.Fatalf("%s, which is to hang, was never delivered", id)
	}
	w.awaitCalls(1000)
	return p, func() {
		w.ledger.mu.Lock()
		delete(w.ledger.hang, id)
		w.ledger.mu.Unlock()
		close(gate)
	}
}

// TestSIGTERMWithASlowHandler: a handler that heeds its context is waited for
// until soft, then its message goes back; that is a clean end. Where the broker
// keeps a position, what was handled above that message comes again, and the
// receipt says so.
func TestSIGTERMWithASlowHandler(t *testing.T) { //nolint:tparallel // scenarios one after another, brokers at once
	onEach(t, terminateSlow)
}

func terminateSlow(t *testing.T, f fixture) {
	w := newWorld(t, f, f.consumers())
	p, release := w.hang("c00-7")
	began := time.Now()
	w.daemon.signal(syscall.SIGTERM)
	if code := w.daemon.end(budget); code != 0 {
		t.Errorf("exit code %d, want 0\n%s", code, w.daemon.tail())
	}
	if d := time.Since(began); d < 2*time.Second {
		t.Errorf("it did not wait for the handler until soft: %v", d)
	}
	will := w.daemon.willRepeat()
	release()
	w.daemon.start()
	if n := w.account(p.stop(), time.Minute); n > will {
		t.Errorf("%d messages were handled twice; the receipts told of %d", n, will)
	}
}

// TestSIGTERMWithAHungHandler: one that ignores its context is given up at the
// hard limit, named, and its message comes again, once.
func TestSIGTERMWithAHungHandler(t *testing.T) { //nolint:tparallel // scenarios one after another, brokers at once
	onEach(t, terminateHung)
}

func terminateHung(t *testing.T, f fixture) {
	w := newWorldWith(t, f, f.consumers(), deafHandler)
	const hung = "c00-7"
	p, release := w.hang(hung)
	w.daemon.signal(syscall.SIGTERM)
	if code := w.daemon.end(budget); code != 1 {
		t.Errorf("exit code %d, want 1\n%s", code, w.daemon.tail())
	}
	out := w.daemon.tail()
	if !strings.Contains(out, "abandoned_message="+w.messages()) || !strings.Contains(out, "hard_limit_fired") {
		t.Errorf("the log does not name what was abandoned:\n%s", out)
	}
	will := w.daemon.willRepeat()
	release() // its caller is gone: the call ends without an effect
	w.daemon.start()
	w.eventually("the abandoned message comes again", 30*time.Second, func() bool { return w.ledger.count(hung) > 0 })
	if n := w.account(p.stop(), time.Minute); n > will {
		t.Errorf("%d messages were handled twice; the receipts told of %d", n, will)
	}
}

// TestKillTheDaemon kills -9 under load, again and again: nothing is lost, and
// every consumer comes back where the last acknowledged verb put it.
func TestKillTheDaemon(t *testing.T) { //nolint:tparallel // scenarios one after another, brokers at once
	onEach(t, killDaemon)
}

func killDaemon(t *testing.T, f fixture) {
	w := newWorld(t, f, f.consumers())
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	p := w.gentle()
	paused := map[string]bool{}
	const kills = 20
	for range kills {
		victim := w.names[rnd.IntN(len(w.names))]
		if paused[victim] {
			w.ledger.setClosed(victim, false)
			if _, err := w.api.Resume(w.ctx, &pb.ResumeRequest{Target: target(victim)}); err != nil {
				t.Fatalf("resume: %v", err)
			}
		} else if _, err := w.api.Pause(w.ctx, &pb.PauseRequest{Target: target(victim)}); err != nil {
			t.Fatalf("pause: %v", err)
		}
		paused[victim] = !paused[victim]
		before := w.ledger.calls()
		w.eventually("load between two kills", 30*time.Second, func() bool {
			now := w.ledger.calls()
			return sum(now)-sum(before) > 200+rnd.IntN(200)
		})
		w.daemon.kill()
		for n := range paused {
			w.ledger.setClosed(n, paused[n])
		}
		w.daemon.start()
		for n := range paused {
			if paused[n] {
				w.await(n, pb.State_STATE_PAUSED, 30*time.Second)
			}
		}
	}
	for n := range paused {
		w.ledger.setClosed(n, false)
		if _, err := w.api.Resume(w.ctx, &pb.ResumeRequest{Target: target(n)}); err != nil {
			t.Fatalf("resume: %v", err)
		}
	}
	repeated := w.account(p.stop(), 2*time.Minute)
	if limit := kills * len(w.names) * 32; repeated > limit {
		t.Errorf("%d messages were handled twice, at most %d were in flight at the kills", repeated, limit)
	}
}

func sum(m map[string]int) int {
	n := 0
	for _, v := range m {
		n += v
	}
	return n
}

func TestASecondDaemonOnTheSameDataIsRefused(t *testing.T) {
	w := newNATS(t, 1)
	second := &process{t: t, make: w.daemon.make}
	second.start()
	if code := second.end(10 * time.Second); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if out := second.tail(); !strings.Contains(out, "in use") {
		t.Errorf("it says: %s", out)
	}
	w.await(w.names[0], pb.State_STATE_RUNNING, time.Second)
}
