package e2e

import (
	"testing"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// TestVerbsUnderLoad moves one consumer after another by each verb while its
// neighbours run: nothing is lost, a clean verb repeats nothing, and the
// neighbours keep their rates.
func TestVerbsUnderLoad(t *testing.T) { onEachAlone(t, verbsUnderLoad) }

func verbsUnderLoad(t *testing.T, f fixture) {
	w := newWorld(t, f, f.consumers())
	p := w.load(30 * time.Millisecond)
	verbs := map[string]func(string) *pb.Receipt{
		"pause": w.pauseResume, "drain": w.drainStart, "stop": w.stopStart, "kill": w.killStart, "restart": w.restartOne,
	}
	n, unclean := 0, 0
	neighbours := &rates{w: w, p: p}
	for name, verb := range verbs {
		for range 2 * f.consumers() {
			victim := w.names[n%len(w.names)]
			n++
			neighbours.begin()
			rc := verb(victim)
			neighbours.end(victim)
			switch {
			case name == "kill": // it says what comes again; and the calls that it cancelled may have had their effect
				unclean += 4 + len(rc.GetAbandoned()) + int(rc.GetUnconfirmed()+rc.GetWillRepeat()+rc.GetOwnershipLost())
			case rc.GetOutcome() != pb.ReceiptOutcome_RECEIPT_OUTCOME_CLEAN:
				t.Errorf("%s of %s: %v", name, victim, rc)
			}
		}
	}
	repeated := w.account(p.stop(), time.Minute)
	if repeated > unclean {
		t.Errorf("%d messages were handled twice; the kills explain at most %d", repeated, unclean)
	}
	neighbours.check()
	w.nothingLeft()
}

func (w *world) pauseResume(name string) *pb.Receipt {
	w.t.Helper()
	out, err := w.api.Pause(w.ctx, &pb.PauseRequest{Target: target(name)})
	if err != nil {
		w.t.Fatalf("pause: %v", err)
	}
	rc := w.receipt(name, out.GetResults()[0].GetOperation(), 10*time.Second)
	w.ledger.setClosed(name, true)
	w.await(name, pb.State_STATE_PAUSED, 10*time.Second)
	w.ledger.setClosed(name, false)
	if _, err := w.api.Resume(w.ctx, &pb.ResumeRequest{Target: target(name)}); err != nil {
		w.t.Fatalf("resume: %v", err)
	}
	w.await(name, pb.State_STATE_RUNNING, 10*time.Second)
	return rc
}

func (w *world) startAgain(name string) {
	w.t.Helper()
	w.ledger.setClosed(name, true)
	w.await(name, pb.State_STATE_STOPPED, 10*time.Second)
	w.ledger.setClosed(name, false)
	if _, err := w.api.Start(w.ctx, &pb.StartRequest{Target: target(name)}); err != nil {
		w.t.Fatalf("start: %v", err)
	}
	w.await(name, pb.State_STATE_RUNNING, 10*time.Second)
}

func (w *world) drainStart(name string) *pb.Receipt {
	w.t.Helper()
	out, err := w.api.Drain(w.ctx, &pb.DrainRequest{Target: target(name)})
	if err != nil {
		w.t.Fatalf("drain: %v", err)
	}
	rc := w.receipt(name, out.GetResults()[0].GetOperation(), 10*time.Second)
	w.startAgain(name)
	return rc
}

func (w *world) stopStart(name string) *pb.Receipt {
	w.t.Helper()
	out, err := w.api.Stop(w.ctx, &pb.StopRequest{Target: target(name)})
	if err != nil {
		w.t.Fatalf("stop: %v", err)
	}
	rc := w.receipt(name, out.GetResults()[0].GetOperation(), 10*time.Second)
	w.startAgain(name)
	return rc
}

func (w *world) killStart(name string) *pb.Receipt {
	w.t.Helper()
	out, err := w.api.Kill(w.ctx, &pb.KillRequest{Target: target(name)})
	if err != nil {
		w.t.Fatalf("kill: %v", err)
	}
	w.startAgain(name)
	return out.GetResults()[0].GetReceipt()
}

func (w *world) restartOne(name string) *pb.Receipt {
	w.t.Helper()
	out, err := w.api.Restart(w.ctx, &pb.RestartRequest{Target: target(name)})
	if err != nil {
		w.t.Fatalf("restart: %v", err)
	}
	rc := w.receipt(name, out.GetResults()[0].GetOperation(), 10*time.Second)
	w.await(name, pb.State_STATE_RUNNING, 10*time.Second)
	return rc
}

// rates adds up, over all verbs, what the neighbours of the victim were given
// and what they handled meanwhile.
type rates struct {
	w              *world
	p              *publisher
	given, handled map[string]int
	sumGiven       int
	sumHandled     int
}

func (r *rates) begin() { r.given, r.handled = r.p.published(), r.w.ledger.calls() }

func (r *rates) end(victim string) {
	handled, given := r.w.ledger.calls(), r.p.published()
	for _, n := range r.w.names {
		if n != victim {
			r.sumGiven += given[n] - r.given[n]
			r.sumHandled += handled[n] - r.handled[n]
		}
	}
}

func (r *rates) check() {
	r.w.t.Logf("neighbours were given %d messages during the verbs and handled %d", r.sumGiven, r.sumHandled)
	if r.sumGiven < 1000 || float64(r.sumHandled) < 0.9*float64(r.sumGiven) {
		r.w.t.Errorf("neighbours handled %d of the %d messages that came during the verbs", r.sumHandled, r.sumGiven)
	}
}
