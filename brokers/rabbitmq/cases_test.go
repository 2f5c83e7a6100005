package rabbitmq

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// stopLimit is how long a stop may take whatever the broker does.
const stopLimit = 2 * time.Second

// TestCases are faults that users of other clients reported, as far as a driver
// alone can have them. Those of a whole daemon stand in test/e2e.
func TestCases(t *testing.T) {
	s := startServer(t)
	for _, c := range []struct {
		name string
		run  func(*testing.T, *server)
	}{
		{"LateAckAfterForcedReconnect", lateAckAfterForcedReconnect},
		{"StopBelowTheDeliveryLimit", stopBelowTheDeliveryLimit},
		{"CutAgainBeforeConsuming", cutAgainBeforeConsuming},
		{"AbortedIsNotDeadLettered", abortedIsNotDeadLettered},
		{"HoldWithALargePrefetch", holdWithALargePrefetch},
		{"ServerClosesDuringClose", serverClosesDuringClose},
		{"AlarmDuringClose", alarmDuringClose},
		{"StalledWhileSubscribing", stalledWhileSubscribing},
		{"ConsumerTimeout", consumerTimeout},
		{"DeletedAndMadeAgain", deletedAndMadeAgain},
		{"DeadLetterQueueFull", deadLetterQueueFull},
		{"GapsAreNotAcked", gapsAreNotAcked},
		{"ASlowOneDoesNotHoldUpAcks", slowOneDoesNotHoldUpAcks},
		{"PausesDoNotCount", pausesDoNotCount},
		{"ConnectionsAreShared", connectionsAreShared},
		{"FailoverInOrder", failoverInOrder},
		{"PasswordIsRotated", passwordIsRotated},
		{"NothingIsLeftBehind", nothingIsLeftBehind},
		{"AutoDeleteIsTold", autoDeleteIsTold},
		{"NoRightToConfigure", noRightToConfigure},
		{"OneFailsAlone", oneFailsAlone},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, s) })
	}
}

var classicQueue = amqp.Table{"x-queue-type": "classic"} //nolint:gochecknoglobals // never written

// Six messages, prefetch 3; the server closes the connection while 1-3 are being
// handled; another worker holds 1-3 and we get 4-6; the old ack of 3 comes late.
// Nothing but what is acked in its own epoch goes.
func lateAckAfterForcedReconnect(t *testing.T, s *server) {
	r := newRig(t, s, "forced", amqp.Table{"x-queue-type": "classic"})
	r.publish(6)
	sub := r.subscribe(prefetch(3))
	old := r.receive(sub, 3)
	must(t, s.CloseConnectionsOf(r.within(patience), appUser))
	err := r.broke(sub, brokers.Unreachable)
	if !strings.Contains(err.Error(), "CONNECTION_FORCED") {
		t.Errorf("not in the broker's words: %v", err)
	}
	conn, err := r.open(r.Connection(true))
	must(t, err)
	defer func() { must(t, conn.Close(r.within(patience))) }()
	other, err := conn.Subscribe(r.within(patience), r.plan(prefetch(3)).Source, nil)
	must(t, err)
	theirs := r.receive(other, 3)
	next, err := conn.Subscribe(r.within(patience), r.plan(prefetch(3)).Source, nil)
	must(t, err)
	ours := r.receive(next, 3)
	if err := sub.Settle(r.within(patience), settlements(brokers.Ack, old)); brokers.ClassOf(err) != brokers.Fenced {
		t.Errorf("settled in an old epoch: %v", err)
	}
	_, err = sub.Close(r.within(patience), nil)
	must(t, err)
	r.close(next, ours)
	r.close(other, theirs)
	r.remains(r.queue, 6)
}

// A stop with prefetched messages far below the delivery limit dead-letters none.
func stopBelowTheDeliveryLimit(t *testing.T, s *server) {
	must(t, s.client(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare("limit-dead", true, false, false, false, nil)
		return err
	}))
	r := newRig(t, s, "limit", amqp.Table{
		"x-queue-type": "quorum", "x-delivery-limit": 20, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "limit-dead",
	})
	r.publish(30)
	sub := r.subscribe(prefetch(30))
	if !sub.Capabilities().GiveBackCounts {
		t.Error("give-backs count here")
	}
	ds := r.receive(sub, 30)
	r.settle(sub, brokers.Ack, ds[1:3])
	_, err := sub.Hold(r.within(patience), pointers(ds[3:]))
	must(t, err)
	r.settle(sub, brokers.Ack, ds[:1])
	r.close(sub, nil)
	r.remains(r.queue, 27)
	r.remains("limit-dead", 0)
}

// The connection breaks again before anything is consumed: an error that is tried
// again, and then it works.
func cutAgainBeforeConsuming(t *testing.T, s *server) {
	r := newRig(t, s, "again", classicQueue)
	r.publish(1)
	r.proxy.cutAtNext()
	_, err := r.conn.Subscribe(r.within(patience), r.plan(nil).Source, nil)
	if brokers.ClassOf(err) != brokers.Unreachable {
		t.Errorf("class %v, want unreachable: %v", brokers.ClassOf(err), err)
	}
	poll(t, patience, "the connection is lost", func() bool {
		select {
		case <-r.conn.Lost():
			return r.conn.Err() != nil
		default:
			return false
		}
	})
	conn, err := r.open(r.Connection(true))
	must(t, err)
	defer func() { must(t, conn.Close(r.within(patience))) }()
	sub, err := conn.Subscribe(r.within(patience), r.plan(nil).Source, nil)
	must(t, err)
	r.close(sub, r.receive(sub, 1))
}

// What a handler gave up because of a shutdown goes back to the queue and not to
// the dead letter exchange, however it goes back.
func abortedIsNotDeadLettered(t *testing.T, s *server) {
	must(t, s.client(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare("aborted-dead", true, false, false, false, nil)
		return err
	}))
	r := newRig(t, s, "aborted", amqp.Table{
		"x-queue-type": "classic", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "aborted-dead",
	})
	r.publish(4)
	sub := r.subscribe(prefetch(4))
	ds := r.receive(sub, 4)
	_, err := sub.Hold(r.within(patience), pointers(ds[3:]))
	must(t, err)
	r.settle(sub, brokers.Release, ds[:1])
	r.settle(sub, brokers.Retry, ds[1:2])
	r.close(sub, ds[2:3])
	r.remains(r.queue, 4)
	r.remains("aborted-dead", 0)
}

// A pause with thousands of messages on their way leaves none unacknowledged with a
// consumer that is not there.
func holdWithALargePrefetch(t *testing.T, s *server) {
	const n = 20000
	r := newRig(t, s, "large", classicQueue)
	r.publish(n)
	sub := r.subscribe(prefetch(5000))
	r.receive(sub, 1)
	rep, err := sub.Hold(r.within(patience), nil)
	must(t, err)
	if !rep.Released {
		t.Errorf("report %+v", rep)
	}
	// The queue may still have give-backs before it; a count is answered first.
	poll(t, patience, "all but the one that runs is ready, and no consumer is there", func() bool {
		q := r.inspect()
		return q.Messages == n-1 && q.Consumers == 0
	})
	r.close(sub, nil)
	r.remains(r.queue, n)
}

func (r *rig) inspect() (q amqp.Queue) {
	r.Helper()
	must(r, r.client(func(ch *amqp.Channel) (err error) {
		q, err = inspect(ch, r.queue)
		return err
	}))
	return q
}

// The server closes the connection while we close the subscription.
func serverClosesDuringClose(t *testing.T, s *server) {
	r := newRig(t, s, "both", classicQueue)
	r.publish(5)
	sub := r.subscribe(nil)
	ds := r.receive(sub, 5)
	closed := make(chan error, 1)
	go func() { closed <- s.CloseConnectionsOf(r.within(patience), appUser) }()
	began := time.Now()
	_, err := sub.Close(r.within(stopLimit), pointers(ds))
	must(t, err)
	if took := time.Since(began); took > stopLimit+time.Second {
		t.Errorf("closing took %v", took)
	}
	must(t, <-closed)
	poll(t, patience, "all is ready again", func() bool { return r.inspect().Messages == 5 })
}

// A memory alarm holds up dead letters, and closing takes no longer for it.
func alarmDuringClose(t *testing.T, s *server) {
	r := newRig(t, s, "alarm", classicQueue)
	r.publish(3)
	sub := r.subscribe(nil)
	ds := r.receive(sub, 3)
	pub := []brokers.Publication{{Target: target{queue: r.queue}, Body: []byte("dead")}}
	must(t, s.alarm(r.within(patience), true))
	raised := true
	defer func() {
		if raised {
			must(t, s.alarm(r.within(patience), false))
		}
	}()
	for range 3 {
		err := r.conn.Publish(r.within(300*time.Millisecond), pub)
		if err == nil {
			t.Fatal("published in spite of the alarm")
		}
	}
	err := r.conn.Publish(r.within(300*time.Millisecond), pub)
	if brokers.ClassOf(err) != brokers.Transient || !strings.Contains(err.Error(), "low on memory") {
		t.Errorf("the alarm is not told: %v", err)
	}
	began := time.Now()
	r.settle(sub, brokers.Ack, ds[:1])
	r.close(sub, ds[1:])
	if took := time.Since(began); took > stopLimit {
		t.Errorf("closing took %v", took)
	}
	must(t, s.alarm(r.within(patience), false))
	raised = false
	must(t, r.conn.Publish(r.within(patience), pub))
}

// The network swallows what is sent between dialling and opening a channel: the
// start ends with its context, and the next one works.
func stalledWhileSubscribing(t *testing.T, s *server) {
	r := newRig(t, s, "stalled", classicQueue)
	r.publish(1)
	r.proxy.stall()
	began := time.Now()
	_, err := r.conn.Subscribe(r.within(300*time.Millisecond), r.plan(nil).Source, nil)
	if took := time.Since(began); err == nil || took > stopLimit {
		t.Errorf("after %v: %v", took, err)
	}
	r.proxy.unstall()
	sub := r.subscribe(nil)
	r.close(sub, r.receive(sub, 1))
	poll(t, patience, "nothing is left behind", func() bool { return r.inspect().Consumers == 0 })
}

// A message is held for longer than the broker allows: the reason is told, the late
// ack is dropped, and the next subscription gets the message.
func consumerTimeout(t *testing.T, s *server) {
	ctx := func() context.Context { return r30(t) }
	set := func(timeout, tick string) {
		_, err := s.Eval(ctx(), "application:set_env(rabbit, consumer_timeout, "+timeout+"), application:set_env(rabbit, channel_tick_interval, "+tick+").")
		must(t, err)
	}
	set("500", "200")
	defer set("1800000", "60000")
	r := newRig(t, s, "slow", classicQueue)
	r.publish(1)
	sub := r.subscribe(nil)
	neighbour := r.subscribe(func(_ *specT, in *sourceT) { in.Queue = "limit" })
	ds := r.receive(sub, 1)
	err := r.broke(sub, brokers.Transient)
	if !strings.Contains(err.Error(), "consumer_timeout") || !strings.Contains(err.Error(), "timed out") {
		t.Errorf("the reason is not told: %v", err)
	}
	if err := sub.Settle(ctx(), settlements(brokers.Ack, ds)); brokers.ClassOf(err) != brokers.Fenced {
		t.Errorf("a late ack: %v", err)
	}
	_, err = sub.Close(ctx(), nil)
	must(t, err)
	next := r.subscribe(nil)
	r.settle(next, brokers.Ack, r.receive(next, 1))
	r.close(next, nil)
	_, err = neighbour.Lag(ctx())
	must(t, err)
	_, err = neighbour.Close(ctx(), nil)
	must(t, err)
}

func r30(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(cancel)
	return ctx
}

// A queue deleted while it is consumed is told as missing; made again it works.
func deletedAndMadeAgain(t *testing.T, s *server) {
	r := newRig(t, s, "deleted", classicQueue)
	sub := r.subscribe(nil)
	must(t, s.DeleteQueue(r.within(patience), "/", r.queue))
	err := r.broke(sub, brokers.Missing)
	var e *brokers.Error
	if !errors.As(err, &e) || !e.Wait {
		t.Errorf("the spec waits: %v", err)
	}
	_, err = sub.Close(r.within(patience), nil)
	must(t, err)
	must(t, r.client(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(r.queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
		return err
	}))
	r.publish(1)
	next := r.subscribe(nil)
	if !next.Capabilities().GiveBackCounts {
		t.Error("it came back as a quorum queue, and was not looked at again")
	}
	r.close(next, r.receive(next, 1))
}

// A dead letter that its queue rejects is an error: the original must not be acked.
func deadLetterQueueFull(t *testing.T, s *server) {
	r := newRig(t, s, "full", amqp.Table{"x-queue-type": "classic", "x-max-length": 1, "x-overflow": "reject-publish"})
	pub := []brokers.Publication{{Target: target{queue: r.queue}, Body: []byte("1")}}
	must(t, r.conn.Publish(r.within(patience), pub))
	err := r.conn.Publish(r.within(patience), append(pub, pub...))
	if brokers.ClassOf(err) != brokers.Transient || !strings.Contains(err.Error(), "2 of 2") {
		t.Errorf("a full queue: %v", err)
	}
	err = r.conn.Publish(r.within(patience), []brokers.Publication{{Target: target{exchange: "nosuch"}, Body: []byte("1")}})
	if brokers.ClassOf(err) != brokers.Missing || !strings.Contains(err.Error(), "no exchange 'nosuch'") {
		t.Errorf("a missing exchange: %v", err)
	}
	must(t, r.client(func(ch *amqp.Channel) error {
		_, err := ch.QueuePurge(r.queue, false)
		return err
	}))
	must(t, r.conn.Publish(r.within(patience), pub))
	r.remains(r.queue, 1)
}

// What is unfinished when the connection breaks comes again, though what came after
// it is acked.
func gapsAreNotAcked(t *testing.T, s *server) {
	r := newRig(t, s, "gaps", classicQueue)
	r.publish(100)
	sub := r.subscribe(prefetch(100))
	ds := r.receive(sub, 100)
	done := slices.DeleteFunc(slices.Clone(ds), func(d brokers.Delivery) bool { return d.Position%7 == 0 })
	errs := make(chan error, len(done))
	for i := range slices.Backward(done) {
		go func() { errs <- sub.Settle(r.within(patience), settlements(brokers.Ack, done[i:i+1])) }()
	}
	for range done {
		must(t, <-errs)
	}
	_, err := sub.Hold(r.within(patience), nil)
	must(t, err)
	r.proxy.cut()
	_ = r.broke(sub, brokers.Unreachable) // it is checked there
	_, err = sub.Close(r.within(patience), nil)
	must(t, err)
	r.remains(r.queue, int64(100-len(done)))
}
