package e2e

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// These are public reports of faults in other systems, acted out here.

func newNATS(t *testing.T, consumers int) *world {
	t.Helper()
	return newWorld(t, &natsFixture{}, consumers)
}

func (w *world) nats() *natsFixture {
	w.t.Helper()
	f, ok := w.fixture.(*natsFixture)
	if !ok {
		w.t.Fatalf("the broker is a %T", w.fixture)
	}
	return f
}

// give publishes n messages to a consumer and waits until they are confirmed.
func (w *world) give(name, prefix string, n int) []string {
	w.t.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%d", prefix, i)
		if _, err := w.nats().js.PublishAsync("e2e."+name, []byte(ids[i])); err != nil {
			w.t.Fatalf("publish: %v", err)
		}
		if i%1000 == 999 || i == n-1 {
			w.published()
		}
	}
	return ids
}

func (w *world) published() {
	w.t.Helper()
	select {
	case <-w.nats().js.PublishAsyncComplete():
	case <-time.After(time.Minute):
		w.t.Fatal("publishing took more than a minute")
	}
}

// durable asks the server about a consumer's durable.
func (w *world) durable(name string) *jetstream.ConsumerInfo {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
	defer cancel()
	c, err := w.nats().js.Consumer(ctx, "E2E", "default_"+name)
	if err != nil {
		w.t.Fatalf("durable of %s: %v", name, err)
	}
	return c.CachedInfo()
}

func (w *world) handledOf(ids []string) int {
	n := 0
	for _, id := range ids {
		n += w.ledger.count(id)
	}
	return n
}

func (w *world) stop(name string) string {
	w.t.Helper()
	out, err := w.api.Stop(w.ctx, &pb.StopRequest{Target: target(name)})
	if err != nil {
		w.t.Fatalf("stop: %v", err)
	}
	return out.GetResults()[0].GetOperation()
}

func (w *world) setDelay(d time.Duration) {
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	w.ledger.delay = d
}

// hangOne lets the call of one message hang until release.
func (w *world) hangOne(id string) (release func()) {
	gate := make(chan struct{})
	w.ledger.mu.Lock()
	w.ledger.hang[id] = gate
	w.ledger.mu.Unlock()
	return func() {
		w.ledger.mu.Lock()
		delete(w.ledger.hang, id)
		w.ledger.mu.Unlock()
		close(gate)
	}
}

func (w *world) awaitHang(id string) {
	w.t.Helper()
	select {
	case got := <-w.ledger.hanging:
		if got != id {
			w.t.Fatalf("%s hangs, not %s", got, id)
		}
	case <-time.After(30 * time.Second):
		w.t.Fatalf("%s was never delivered", id)
	}
}

// Three messages, stop during the first: nothing that had not started starts.
func TestStopDuringTheFirstMessageStartsNoOther(t *testing.T) {
	w := newNATS(t, 1)
	w.scale("c00", 1)
	release := w.hangOne("three-0")
	ids := w.give("c00", "three", 3)
	w.awaitHang("three-0")
	op := w.stop("c00")
	release()
	rc := w.receipt("c00", op, 10*time.Second)
	if rc.GetCompleted() != 1 || rc.GetReturned() != 2 || rc.GetOutcome() != pb.ReceiptOutcome_RECEIPT_OUTCOME_CLEAN {
		t.Errorf("receipt %v", rc)
	}
	if n := w.handledOf(ids); n != 1 {
		t.Errorf("%d were handled, want the first alone", n)
	}
	w.othersGet("c00", 2)
}

// othersGet checks that what was given back is there for others at once, not
// only when ack_wait (5s) is over.
func (w *world) othersGet(name string, n int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
	defer cancel()
	c, err := w.nats().js.Consumer(ctx, "E2E", "default_"+name)
	if err != nil {
		w.t.Fatalf("durable of %s: %v", name, err)
	}
	batch, err := c.Fetch(n, jetstream.FetchMaxWait(2*time.Second))
	if err != nil {
		w.t.Fatal(err)
	}
	got := 0
	for m := range batch.Messages() {
		got++
		if err := m.Nak(); err != nil {
			w.t.Error(err)
		}
	}
	if got != n {
		w.t.Errorf("another subscriber got %d of the %d messages given back", got, n)
	}
}

func (w *world) scale(name string, n int32) {
	w.t.Helper()
	_, err := w.api.Scale(w.ctx, &pb.ScaleRequest{Target: target(name), To: &pb.ScaleRequest_Concurrency{Concurrency: n}})
	if err != nil {
		w.t.Fatalf("scale: %v", err)
	}
}

// Twenty taken, half a second each, drain: all are acknowledged, none comes
// again. And the drain has ended only when the last acks have arrived.
func TestDrainAcknowledgesAllThatWasTaken(t *testing.T) {
	w := newNATS(t, 1)
	w.scale("c00", 20)
	w.setDelay(500 * time.Millisecond)
	ids := w.give("c00", "twenty", 20)
	w.eventually("all are taken", 10*time.Second, func() bool { return w.get("c00").GetStatus().GetInFlight() == 20 })
	out, err := w.api.Drain(w.ctx, &pb.DrainRequest{Target: target("c00")})
	if err != nil {
		t.Fatal(err)
	}
	rc := w.receipt("c00", out.GetResults()[0].GetOperation(), 10*time.Second)
	if rc.GetCompleted() != 20 || rc.GetOutcome() != pb.ReceiptOutcome_RECEIPT_OUTCOME_CLEAN {
		t.Errorf("receipt %v", rc)
	}
	if i := w.durable("c00"); i.NumAckPending != 0 || i.NumRedelivered != 0 {
		t.Errorf("STOPPED, but %d are unacknowledged and %d were redelivered", i.NumAckPending, i.NumRedelivered)
	}
	w.setDelay(0)
	if _, err := w.api.Start(w.ctx, &pb.StartRequest{Target: target("c00")}); err != nil {
		t.Fatal(err)
	}
	w.await("c00", pb.State_STATE_RUNNING, 10*time.Second)
	last := w.give("c00", "after", 1)
	w.eventually("a later message is handled", 10*time.Second, func() bool { return w.handledOf(last) == 1 })
	if n := w.handledOf(ids); n != 20 {
		t.Errorf("%d calls for 20 messages", n)
	}
}

// A backlog of 20,000, pause: once it is PAUSED the server waits for nothing.
// All calls hang at the pause, so that something is taken and has not started.
func TestPausedHoldsNothing(t *testing.T) {
	const slots = 20
	w := newNATS(t, 1)
	w.scale("c00", slots)
	w.setDelay(0)
	ids := w.give("c00", "many", 20000)
	w.eventually("some are handled", 30*time.Second, func() bool { return w.ledger.calls()["c00"] > 100 })
	release := w.ledger.hold()
	taken := 0
	w.eventually("all slots hang, all else is settled, and more is taken than can start", 10*time.Second, func() bool {
		s := w.get("c00").GetStatus()
		taken = int(s.GetInFlight())
		return s.GetRunning() == slots && int(s.GetCounters().GetAcked()) == w.ledger.calls()["c00"] && taken > slots
	})
	op := w.pause("c00")
	release()
	rc := w.receipt("c00", op, 15*time.Second)
	w.ledger.setClosed("c00", true)
	returned := int(rc.GetReturned())
	if returned < taken-slots {
		t.Errorf("%d were given back; %d had not started", returned, taken-slots)
	}
	// Until others take it, the server counts what was given back as pending.
	if i := w.durable("c00"); i.NumAckPending != returned {
		t.Errorf("PAUSED; %d were given back, but the server waits for %d", returned, i.NumAckPending)
	}
	w.othersGet("c00", returned)
	w.ledger.setClosed("c00", false)
	if _, err := w.api.Resume(w.ctx, &pb.ResumeRequest{Target: target("c00")}); err != nil {
		t.Fatal(err)
	}
	if n := w.account(ids, 2*time.Minute); n != 0 {
		t.Errorf("%d were handled twice", n)
	}
}

func (w *world) pauseOnly(name string) *pb.Receipt {
	w.t.Helper()
	return w.receipt(name, w.pause(name), 15*time.Second)
}

// pause returns the operation whose receipt tells how it ended.
func (w *world) pause(name string) string {
	w.t.Helper()
	out, err := w.api.Pause(w.ctx, &pb.PauseRequest{Target: target(name), Options: &pb.VerbOptions{Reason: "ERP down"}})
	if err != nil {
		w.t.Fatalf("pause: %v", err)
	}
	return out.GetResults()[0].GetOperation()
}

// The durable is deleted on the server: FAILED and said so, busy or idle.
func TestDurableDeletedIsSeen(t *testing.T) {
	w := newNATS(t, 2)
	w.stop("c01")
	w.await("c01", pb.State_STATE_STOPPED, 10*time.Second)
	if err := w.nats().js.DeleteConsumer(w.ctx, "E2E", "default_c00"); err != nil {
		t.Fatal(err)
	}
	w.eventually("c00 is not healthy and silent", 45*time.Second, func() bool {
		s := w.get("c00").GetStatus()
		return s.GetState() == pb.State_STATE_FAILED && s.GetReason() != ""
	})
	// Stop works on what has failed.
	if w.stop("c00") == "" {
		t.Error("a stop of what has failed has no receipt")
	}
	w.await("c00", pb.State_STATE_STOPPED, 5*time.Second)
}

// Paused, then the connection drops and comes back, the specs are applied
// again, the daemon restarts: still paused, and says by whom and why.
func TestPausedOutlivesEverything(t *testing.T) {
	w := newNATS(t, 1)
	w.pauseOnly("c00")
	w.ledger.setClosed("c00", true)
	ids := w.give("c00", "later", 10)
	w.kill()
	w.up()
	w.daemon.signal(syscall.SIGTERM)
	if code := w.daemon.end(budget); code != 0 {
		t.Errorf("exit code %d", code)
	}
	w.daemon.start() // applies the specs again
	w.await("c00", pb.State_STATE_PAUSED, 15*time.Second)
	holds := w.get("c00").GetDesired().GetHolds()
	if len(holds) != 1 || holds[0].GetReason() != "ERP down" || holds[0].GetActor() == "" {
		t.Errorf("holds %v", holds)
	}
	w.daemon.kill()
	w.daemon.start()
	w.await("c00", pb.State_STATE_PAUSED, 15*time.Second)
	w.ledger.setClosed("c00", false)
	if _, err := w.api.Resume(w.ctx, &pb.ResumeRequest{Target: target("c00")}); err != nil {
		t.Fatal(err)
	}
	w.eventually("it goes on", 30*time.Second, func() bool { return w.handledOf(ids) == len(ids) })
	for _, f := range w.ledger.faults {
		t.Error(f)
	}
}

// Delete with force returns in time although the broker cannot be reached.
func TestDeleteWhileTheBrokerIsAway(t *testing.T) {
	w := newNATS(t, 1)
	w.kill()
	w.await("c00", pb.State_STATE_BACKOFF, 15*time.Second)
	began := time.Now()
	if _, err := w.api.Delete(w.ctx, &pb.DeleteRequest{Target: target("c00"), Force: true}); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > 6*time.Second {
		t.Errorf("it took %v, at most stop.hard", d)
	}
	if c := w.get("c00"); c != nil {
		t.Errorf("still there: %v", c.GetStatus())
	}
}

// Twenty drained at once: one deadline for all, and no call starts anywhere
// after its drain has ended.
func TestDrainTwentyAtOnce(t *testing.T) {
	w := newNATS(t, 20)
	w.setDelay(50 * time.Millisecond)
	p := w.load(5 * time.Millisecond)
	w.eventually("load", 30*time.Second, func() bool { return sum(w.ledger.calls()) > 1000 })
	began := time.Now()
	out, err := w.api.Drain(w.ctx, &pb.DrainRequest{Target: &pb.Target{Selector: "kind=e2e", ExpectedCount: new(int32(20))}})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range out.GetResults() {
		rc := w.receipt(r.GetName(), r.GetOperation(), 10*time.Second)
		if rc.GetOutcome() != pb.ReceiptOutcome_RECEIPT_OUTCOME_CLEAN {
			t.Errorf("%s: %v", r.GetName(), rc)
		}
		w.ledger.setClosed(r.GetName(), true)
	}
	if d := time.Since(began); d > 8*time.Second {
		t.Errorf("all took %v, each has 6s", d)
	}
	confirmed := p.stop()
	for _, n := range w.names {
		w.ledger.setClosed(n, false)
	}
	if _, err := w.api.Start(w.ctx, &pb.StartRequest{Target: &pb.Target{All: true}}); err != nil {
		t.Fatal(err)
	}
	w.setDelay(0)
	if n := w.account(confirmed, time.Minute); n != 0 {
		t.Errorf("%d were handled twice after clean drains", n)
	}
}
