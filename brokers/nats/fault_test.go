package nats

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// Acks that a cut connection may have lost are sent again by Close when it is
// back, so that nothing handled comes again; and what is unsettled comes at once,
// not after ack_wait.
func TestCutWithAcksUnderWay(t *testing.T) {
	r := newRig(t)
	r.publish(100, 10)
	wait := func(_ *supervisorv1.ConsumerSpec, n *supervisorv1.NatsSource) {
		n.AckWait = durationpb.New(2 * time.Minute)
	}
	sub := r.subscribe(wait)
	ds := r.receive(sub, 100)
	r.process.freeze() // so that the acks get no further than a buffer
	r.settle(sub, brokers.Ack, ds[:60])
	r.proxy.cut()
	r.process.thaw()
	r.breaks(sub)
	rep, err := sub.Close(r.within(patience), refs(ds[60:]))
	must(t, err)
	if rep.Returned != 40 || rep.Unconfirmed != 0 || !rep.Released {
		t.Errorf("got %+v", rep)
	}
	next := r.subscribe(wait)
	again := r.receive(next, 40)
	for i := range again {
		if again[i].Position != ds[60+i].Position || again[i].Redelivered != 1 {
			t.Errorf("delivery %d is %s, redelivered %d; want %s", i, again[i].ID(), again[i].Redelivered, ds[60+i].ID())
		}
	}
	r.settle(next, brokers.Ack, again)
	_, err = next.Close(r.within(patience), nil)
	must(t, err)
	r.clean()
}

// A pull that the server still has when the connection is back delivers to an
// epoch that is over. That is given back at once, not after ack_wait.
func TestPullOutlivesCut(t *testing.T) {
	const n = 20
	r := newRig(t)
	wait := func(_ *supervisorv1.ConsumerSpec, n *supervisorv1.NatsSource) {
		n.AckWait = durationpb.New(2 * time.Minute)
	}
	sub := r.subscribe(wait)
	_, err := sub.Receive(r.within(100*time.Millisecond), brokers.Credit{Messages: 100, Bytes: 1 << 20})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	r.proxy.cut()
	r.breaks(sub)
	r.up()
	r.publish(n, 10)
	next := r.subscribe(wait)
	r.settle(next, brokers.Ack, r.receive(next, n))
	for _, s := range []brokers.Subscription{next, sub} {
		rep, err := s.Close(r.within(patience), nil)
		must(t, err)
		if !rep.Released || rep.Unconfirmed != 0 {
			t.Errorf("got %+v", rep)
		}
	}
	r.clean()
}

// Messages whose bytes exceed what a client library buffers by default arrive
// without a drop, within the credit.
func TestLargeMessages(t *testing.T) {
	const n, size, budget = 100, 900_000, 8 << 20
	r := newRig(t)
	r.publish(n, size)
	sub := r.subscribe(func(s *supervisorv1.ConsumerSpec, _ *supervisorv1.NatsSource) {
		s.MaxInFlight = &supervisorv1.MaxInFlight{Messages: new(int32(500)), Bytes: new(int64(budget))}
	})
	inFlight := int64(0)
	var mine []brokers.Delivery
	for got := 0; got < n; {
		credit := brokers.Credit{Messages: 500 - len(mine), Bytes: budget - inFlight}
		if credit.Bytes < 1 { // full: settle the older half
			half := mine[:(len(mine)+1)/2]
			r.settle(sub, brokers.Ack, half)
			for i := range half {
				inFlight -= half[i].Size
			}
			mine = mine[len(half):]
			continue
		}
		ds, err := sub.Receive(r.within(patience), credit)
		must(t, err)
		for i := range ds {
			if ds[i].Redelivered != 0 || ds[i].Position != int64(got+i+1) {
				t.Fatalf("%s came as number %d, redelivered %d", ds[i].ID(), got+i+1, ds[i].Redelivered)
			}
			inFlight += ds[i].Size
		}
		if over := inFlight - budget; over > size+100 {
			t.Fatalf("%d bytes in flight, %d above the budget", inFlight, over)
		}
		mine, got = append(mine, ds...), got+len(ds)
	}
	r.settle(sub, brokers.Ack, mine)
	_, err := sub.Close(r.within(patience), nil)
	must(t, err)
	r.clean()
}

// A frozen server whose sockets are full holds up no call beyond its context.
func TestFrozenAndFull(t *testing.T) {
	r := newRig(t)
	must(t, r.client(func(_ *nats.Conn, js jetstream.JetStream) error {
		return makeStream(t.Context(), js, "D", "dead")
	}))
	r.publish(50, 10)
	sub := r.subscribe(nil)
	ds := r.receive(sub, 50)
	plan := r.plan(func(s *supervisorv1.ConsumerSpec, _ *supervisorv1.NatsSource) {
		s.DeadLetter = &supervisorv1.DeadLetter{Target: &supervisorv1.DeadLetter_Subject{Subject: "dead"}}
	})
	r.process.freeze()
	defer r.process.thaw()

	var wg sync.WaitGroup
	for range 40 { // far more than sockets and proxy can take
		wg.Go(func() {
			ctx := r.within(time.Second)
			r.prompt("Publish", ctx, func() error {
				return r.conn.Publish(ctx, []brokers.Publication{{Target: plan.DeadLetter, Body: make([]byte, 1_000_000)}})
			})
		})
	}
	for i := range ds[:40] {
		ctx := r.within(time.Second)
		r.prompt("Settle", ctx, func() error { return errors.Join(sub.Settle(ctx, settlements(brokers.Ack, ds[i:i+1])), errAny) })
	}
	ctx := r.within(time.Second)
	r.prompt("Lag", ctx, func() error { _, err := sub.Lag(ctx); return err })
	var rep brokers.Report
	r.prompt("Close", ctx, func() (err error) { rep, err = sub.Close(ctx, refs(ds[40:])); return errors.Join(err, errAny) })
	if rep.Released || rep.Unconfirmed != 40 || rep.Returned != 10 {
		t.Errorf("got %+v", rep)
	}
	wg.Wait()
	r.process.thaw()
	r.up()
	next := r.subscribe(nil)
	again := r.receive(next, 10) // the rest goes on in the background
	r.settle(next, brokers.Ack, again)
	_, err := next.Close(r.within(patience), nil)
	must(t, err)
	poll(t, patience, "all is settled", func() bool { return r.info().NumAckPending == 0 })
}

// errAny marks a call that may succeed.
var errAny = errors.New("any")

// prompt demands that a call fails, and about when its context ends.
func (r *rig) prompt(what string, ctx context.Context, f func() error) { //nolint:revive // the context is the subject
	r.Helper()
	err := f()
	if err == nil {
		r.Errorf("%s: no error", what)
	}
	end, _ := ctx.Deadline()
	if late := time.Since(end); late > time.Second {
		r.Errorf("%s returned %v after its context had ended", what, late)
	}
}

// Pulls that the server knows nothing of (any more) are replaced when it is silent
// for two heartbeats, and bring nothing twice.
func TestSilentPullsAreReplaced(t *testing.T) {
	r := newRig(t)
	sub := r.subscribe(func(_ *supervisorv1.ConsumerSpec, n *supervisorv1.NatsSource) {
		n.PullExpiry = durationpb.New(time.Second)
	})
	s, ok := sub.(*subscription)
	if !ok {
		t.Fatalf("%T", sub)
	}
	first := inboxOf(s)
	s.mu.Lock()
	s.pulls.start(100, 64<<20, s.c.now()) // and nothing is sent
	s.heard = s.c.now() - int64(time.Minute)
	s.mu.Unlock()
	r.publish(1, 10)
	ds := r.receive(sub, 1)
	if inboxOf(s) == first {
		t.Error("the inbox is still the first")
	}
	if len(ds) != 1 || ds[0].Redelivered != 0 {
		t.Fatalf("got %v", ds)
	}
	r.settle(sub, brokers.Ack, ds)
	rep, err := sub.Close(r.within(patience), nil)
	must(t, err)
	if !rep.Released {
		t.Errorf("got %+v", rep)
	}
	r.clean()
}

func inboxOf(s *subscription) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inbox
}

// A held subscription leaves no pull behind: nothing is delivered to it, and what
// comes meanwhile is there for others at once.
func TestHoldLeavesNoPull(t *testing.T) {
	r := newRig(t)
	sub := r.subscribe(nil)
	ctx := r.within(100 * time.Millisecond)
	if _, err := sub.Receive(ctx, brokers.Credit{Messages: 50, Bytes: 1 << 20}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if n := r.info().NumWaiting; n != 1 {
		t.Fatalf("%d pulls are open, want 1", n)
	}
	rep, err := sub.Hold(r.within(patience), nil)
	must(t, err)
	if !rep.Released {
		t.Errorf("got %+v", rep)
	}
	r.publish(20, 10)
	if i := r.info(); i.NumPending != 20 || i.NumAckPending != 0 || i.NumRedelivered != 0 {
		t.Errorf("after a hold %d wait, %d are out, %d came twice; want 20, 0, 0", i.NumPending, i.NumAckPending, i.NumRedelivered)
	}
	_, err = sub.Close(r.within(patience), nil)
	must(t, err)
}

// A durable deleted while nothing is pulled but something is being handled is
// noticed when that is acknowledged.
func TestDurableDeletedBehindAcks(t *testing.T) {
	r := newRig(t)
	r.publish(2, 10)
	sub := r.subscribe(nil)
	ds := r.receive(sub, 2)
	must(t, r.client(func(_ *nats.Conn, js jetstream.JetStream) error {
		return js.DeleteConsumer(r.within(patience), "S", "worker")
	}))
	r.settle(sub, brokers.Ack, ds[:1])
	s, ok := sub.(*subscription)
	if !ok {
		t.Fatalf("%T", sub)
	}
	select {
	case <-s.broken:
	case <-r.within(patience).Done():
		t.Fatal("not noticed")
	}
	_, err := sub.Receive(r.within(patience), brokers.Credit{Messages: 1, Bytes: 1})
	r.class("Receive", err, brokers.Missing)
	rep, err := sub.Close(r.within(patience), refs(ds[1:]))
	must(t, err)
	if rep.Unconfirmed != 1 {
		t.Errorf("the ack went nowhere, but the report is %+v", rep)
	}
}

// Close does not wait for proofs of a durable that is gone.
func TestDurableDeletedBeforeClose(t *testing.T) {
	r := newRig(t)
	r.publish(2, 10)
	sub := r.subscribe(nil)
	ds := r.receive(sub, 2)
	must(t, r.client(func(_ *nats.Conn, js jetstream.JetStream) error {
		return js.DeleteConsumer(r.within(patience), "S", "worker")
	}))
	began := time.Now()
	rep, err := sub.Close(r.within(patience), refs(ds))
	must(t, err)
	if took := time.Since(began); took > patience/2 {
		t.Errorf("Close took %v", took)
	}
	if rep.Released {
		t.Errorf("nobody confirmed, but the report is %+v", rep)
	}
}

// Wrong credentials are refused at once, in the server's words, without the secret.
func TestWrongPassword(t *testing.T) {
	r := newRig(t)
	began := time.Now()
	_, err := r.open(r.Connection(false))
	r.class("Open", err, brokers.Refused)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if text := strings.ToLower(err.Error()); !strings.Contains(text, "authorization violation") || strings.Contains(text, "canary") {
		t.Errorf("got %v", err)
	}
}

// A secret that is rotated is taken up at the next dial; until then the state
// tells what the server says.
func TestRotatedPassword(t *testing.T) {
	r := newRig(t)
	sub := r.subscribe(nil)
	r.process.password("rotated-canary")
	r.proxy.cut()
	poll(t, patience, "the refusal is told", func() bool { return brokers.ClassOf(r.conn.Err()) == brokers.Refused })
	_, err := r.conn.Subscribe(r.within(patience), r.plan(nil).Source, nil)
	r.class("Subscribe", err, brokers.Refused)
	r.mu.Lock()
	r.secrets[passwordRef] = "rotated-canary"
	r.mu.Unlock()
	r.up()
	_, err = sub.Close(r.within(patience), nil)
	must(t, err)
	next := r.subscribe(nil)
	_, err = next.Close(r.within(patience), nil)
	must(t, err)
	if strings.Contains(r.log.String(), "canary") {
		t.Error("a secret is in the log")
	}
}

// A secret that goes missing is told as what it is, not as a wrong password.
func TestSecretGoesMissing(t *testing.T) {
	r := newRig(t)
	r.mu.Lock()
	saved := r.secrets[passwordRef]
	delete(r.secrets, passwordRef)
	r.mu.Unlock()
	r.proxy.cut()
	poll(t, patience, "the reason is told", func() bool {
		err := r.conn.Err()
		return err != nil && errors.Is(err, errSecret) && brokers.ClassOf(err) == brokers.Refused
	})
	r.mu.Lock()
	r.secrets[passwordRef] = saved
	r.mu.Unlock()
	r.up()
}

// A user that may not have inboxes is refused at once: without them nothing could
// be proven.
func TestInboxRefused(t *testing.T) {
	r := newRig(t)
	r.process.reload(`, permissions: { subscribe: { deny: "_INBOX.>" } }`)
	defer r.process.reload("")
	_, err := r.open(r.Connection(true))
	r.class("Open", err, brokers.Refused)
}
