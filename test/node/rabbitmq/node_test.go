package rabbitmq_test

import (
	"context"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/seed-111f5b8e/supervisord/test/node/rabbitmq"
	"go.uber.org/goleak"
)

func start(t *testing.T, o rabbitmq.Options) *rabbitmq.Node {
	t.Helper()
	o.Dir = t.TempDir()
	n, err := rabbitmq.Start(limit(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Kill)
	return n
}

func limit(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func open(t *testing.T, url string) (*amqp.Connection, *amqp.Channel) {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return conn, ch
}

func TestNode(t *testing.T) {
	n := start(t, rabbitmq.Options{})
	t.Logf("RabbitMQ %s", n.Version())
	if !strings.Contains(n.Version(), ".") {
		t.Errorf("version %q", n.Version())
	}
	if err := n.Restart(limit(t)); err == nil {
		t.Error("a node that runs was started again")
	}
	t.Run("keeps its data over a kill", func(t *testing.T) { keepsData(t, n) })
	t.Run("is frozen and thawed", func(t *testing.T) { freezes(t, n) })
	t.Run("closes connections", func(t *testing.T) { closesConnections(t, n) })
	t.Run("users and vhosts", func(t *testing.T) { users(t, n) })
	t.Run("memory alarm", func(t *testing.T) { memoryAlarm(t, n) })
}

func publish(t *testing.T, ch *amqp.Channel, queue string) {
	t.Helper()
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	c, err := ch.PublishWithDeferredConfirm("", queue, true, false, amqp.Publishing{DeliveryMode: amqp.Persistent})
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := c.WaitContext(limit(t)); !ok || err != nil {
		t.Fatalf("not confirmed: %v", err)
	}
}

func keepsData(t *testing.T, n *rabbitmq.Node) {
	_, ch := open(t, n.DialURL())
	for _, kind := range []string{"classic", "quorum"} {
		if _, err := ch.QueueDeclare(kind, true, false, false, false, amqp.Table{"x-queue-type": kind}); err != nil {
			t.Fatal(err)
		}
		publish(t, ch, kind)
	}
	if err := n.Flush(limit(t)); err != nil {
		t.Fatal(err)
	}
	n.Kill()
	if err := n.Restart(limit(t)); err != nil {
		t.Fatal(err)
	}
	_, ch = open(t, n.DialURL())
	for _, kind := range []string{"classic", "quorum"} {
		if _, ok, err := ch.Get(kind, false); err != nil || !ok {
			t.Errorf("%s: the message is gone after a kill (%v)", kind, err)
		}
		if d, err := n.Depth(limit(t), "/", kind); err != nil || d.Ready != 0 || d.Unacked != 1 {
			t.Errorf("%s: depth %+v, %v; want one unacknowledged", kind, d, err)
		}
		if err := n.DeleteQueue(limit(t), "/", kind); err != nil {
			t.Error(err)
		}
	}
}

func freezes(t *testing.T, n *rabbitmq.Node) {
	_, ch := open(t, n.DialURL())
	n.Freeze()
	answered := make(chan error, 1)
	go func() {
		_, err := ch.QueueDeclare("", false, false, true, false, nil)
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Errorf("a frozen broker answered: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	n.Thaw()
	select {
	case err := <-answered:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("a thawed broker did not answer")
	}
}

func closesConnections(t *testing.T, n *rabbitmq.Node) {
	conn, _ := open(t, n.DialURL())
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	if err := n.CloseConnections(limit(t)); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-closed:
		if err == nil || err.Code != amqp.ConnectionForced {
			t.Errorf("closed with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the connection is still open")
	}
}

func users(t *testing.T, n *rabbitmq.Node) {
	ctx := limit(t)
	url := strings.Replace(n.DialURL(), rabbitmq.User+":"+rabbitmq.Password, "guest2:secret", 1) + "other"
	for _, err := range []error{n.AddVhost(ctx, "other"), n.AddUser(ctx, "guest2", "secret")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := amqp.Dial(url); err == nil {
		t.Error("a user without rights was let in")
	}
	if err := n.Permit(ctx, "guest2", "other", "", "", ".*"); err != nil {
		t.Fatal(err)
	}
	_, ch := open(t, url)
	if _, err := ch.QueueDeclare("q", false, false, false, false, nil); err == nil {
		t.Error("a user without the right declared a queue")
	}
	for _, err := range []error{n.Forbid(ctx, "guest2", "other"), n.DeleteUser(ctx, "guest2"), n.DeleteVhost(ctx, "other")} {
		if err != nil {
			t.Error(err)
		}
	}
}

func memoryAlarm(t *testing.T, n *rabbitmq.Node) {
	conn, ch := open(t, n.DialURL())
	blocked := conn.NotifyBlocked(make(chan amqp.Blocking, 8))
	awaitBlocked := func(want bool) {
		t.Helper()
		select {
		case b := <-blocked:
			if b.Active != want {
				t.Errorf("blocked: %v, want %v", b.Active, want)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("not told that blocked is %v", want)
		}
	}
	if err := n.MemoryAlarm(limit(t), true); err != nil {
		t.Fatal(err)
	}
	// Only who publishes is blocked.
	if err := ch.Publish("", "nowhere", false, false, amqp.Publishing{}); err != nil {
		t.Fatal(err)
	}
	awaitBlocked(true)
	if err := n.MemoryAlarm(limit(t), false); err != nil {
		t.Fatal(err)
	}
	awaitBlocked(false)
}

// Two nodes at once, and a start that cannot succeed says why.
func TestNodesDoNotMeet(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
	a, b := start(t, rabbitmq.Options{}), start(t, rabbitmq.Options{})
	_, ch := open(t, a.DialURL())
	if _, err := ch.QueueDeclare("only-here", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	_, ch = open(t, b.DialURL())
	if _, err := ch.QueueDeclarePassive("only-here", true, false, false, false, nil); err == nil {
		t.Error("two nodes share a queue")
	}
	if out, err := b.Eval(limit(t), "1 + 1."); err != nil || out != "2" {
		t.Errorf("eval: %q, %v", out, err)
	}
	_, err := rabbitmq.Start(limit(t), rabbitmq.Options{Dir: t.TempDir(), Config: []string{"no.such.setting = 1"}})
	if err == nil || !strings.Contains(err.Error(), "no.such.setting") {
		t.Errorf("a wrong configuration: %v", err)
	}
}
