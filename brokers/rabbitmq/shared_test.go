package rabbitmq

import (
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// So many consumers share a TCP connection as the configuration says; what ends one
// ends no other's, and a connection that nobody uses is closed.
func connectionsAreShared(t *testing.T, s *server) {
	r := newRig(t, s, "shared", classicQueue)
	c := r.Connection(true)
	c.GetRabbitmq().MaxConsumersPerConnection = new(int32(2))
	opened, err := r.open(c)
	must(t, err)
	defer func() { must(t, opened.Close(r.within(patience))) }()
	inner, ok := opened.(*conn)
	if !ok {
		t.Fatalf("a connection is a %T", opened)
	}
	subs := make([]*subscription, 5)
	links := map[*link]int{}
	for i := range subs {
		sub, err := opened.Subscribe(r.within(patience), r.plan(nil).Source, nil)
		must(t, err)
		subs[i], ok = sub.(*subscription)
		if !ok {
			t.Fatalf("a subscription is a %T", sub)
		}
		links[subs[i].l]++
	}
	if len(links) != 3 {
		t.Errorf("%d TCP connections for 5 consumers, 2 each", len(links))
	}
	r.proxy.cutFrom(subs[0].l.amqp.LocalAddr().String())
	for _, sub := range subs[:2] {
		_ = r.broke(sub, brokers.Unreachable) // it is checked there
		_, err := sub.Close(r.within(patience), nil)
		must(t, err)
	}
	if opened.Err() != nil {
		t.Errorf("two of three connections are up: %v", opened.Err())
	}
	r.publish(1)
	for _, sub := range subs[2:] {
		_, err := sub.Lag(r.within(patience))
		must(t, err)
	}
	again, err := opened.Subscribe(r.within(patience), r.plan(nil).Source, nil)
	must(t, err)
	r.close(again, nil)
	for _, sub := range subs[2:] {
		r.close(sub, nil)
	}
	poll(t, patience, "one TCP connection is left", func() bool {
		inner.mu.Lock()
		defer inner.mu.Unlock()
		return len(inner.links) == 1
	})
	r.remains(r.queue, 1)
}

// Servers that do not answer are passed over, and when none does each is named.
func failoverInOrder(t *testing.T, s *server) {
	r := newRig(t, s, "failover", classicQueue)
	c := r.Connection(true)
	good := c.GetRabbitmq().GetUrls()[0]
	c.GetRabbitmq().Urls = []string{"amqp://127.0.0.1:1", good}
	opened, err := r.open(c)
	must(t, err)
	must(t, opened.Close(r.within(patience)))
	c.GetRabbitmq().Urls = []string{"amqp://127.0.0.1:1", "amqp://127.0.0.1:2"}
	_, err = r.open(c)
	if brokers.ClassOf(err) != brokers.Unreachable || !strings.Contains(err.Error(), "127.0.0.1:1:") || !strings.Contains(err.Error(), "127.0.0.1:2:") {
		t.Errorf("no server answers: %v", err)
	}
	c.GetRabbitmq().Urls, c.GetRabbitmq().Vhost = []string{good, "amqp://127.0.0.1:2"}, "nosuch"
	_, err = r.open(c)
	if brokers.ClassOf(err) != brokers.Refused || !strings.Contains(err.Error(), "vhost nosuch not found") {
		t.Errorf("a missing virtual host: %v", err)
	}
}

// Secrets are read at each dial.
func passwordIsRotated(t *testing.T, s *server) {
	r := newRig(t, s, "rotated", classicQueue)
	c := r.Connection(true)
	c.GetRabbitmq().Auth.Password = "env:NOT_SET"
	_, err := r.open(c)
	if brokers.ClassOf(err) != brokers.Refused || !strings.Contains(err.Error(), "no such secret") {
		t.Errorf("a secret that is not there: %v", err)
	}
	must(t, s.AddUser(r.within(patience), appUser, "changed"))
	defer func() { must(t, s.AddUser(r.within(patience), appUser, appPassword)) }()
	_, err = r.open(r.Connection(true))
	if brokers.ClassOf(err) != brokers.Refused {
		t.Errorf("a password that was changed: %v", err)
	}
	if strings.Contains(err.Error(), appPassword) {
		t.Errorf("the password is repeated: %v", err)
	}
	must(t, s.AddUser(r.within(patience), appUser, appPassword))
	opened, err := r.open(r.Connection(true))
	must(t, err)
	must(t, opened.Close(r.within(patience)))
}

// Whatever happened to its connections, after Close no goroutine and no descriptor
// is left.
func nothingIsLeftBehind(t *testing.T, s *server) {
	h := newHarness(t, s, "left")
	r := &rig{T: t, harness: h, queue: "failover", log: &logs{}}
	before := goleak.IgnoreCurrent()
	descriptors := openFiles(t)
	for round := range 6 {
		opened, err := r.open(h.Connection(true))
		must(t, err)
		r.conn = opened
		sub := r.subscribe(nil)
		must(t, opened.Publish(r.within(patience), []brokers.Publication{{Target: target{queue: r.queue}, Body: []byte("x")}}))
		ds := r.receive(sub, 1)
		r.settle(sub, brokers.Ack, ds)
		switch round % 3 {
		case 0:
			h.proxy.cut()
		case 1:
			must(t, s.CloseConnectionsOf(r.within(patience), appUser))
		}
		_, err = sub.Close(r.within(patience), nil)
		must(t, err)
		must(t, opened.Close(r.within(patience)))
	}
	poll(t, patience, "goroutines and descriptors are back", func() bool {
		return goleak.Find(before) == nil && openFiles(t) <= descriptors
	})
}

func openFiles(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(all)
}

func TestTheErrorThatSaysMostCounts(t *testing.T) {
	lists := [][]brokers.Class{
		{brokers.Unreachable, brokers.Refused, brokers.Transient},
		{brokers.Unreachable, brokers.Transient},
		{brokers.Unreachable, brokers.Unreachable},
	}
	for _, classes := range lists {
		errs := make([]error, len(classes))
		for i, c := range classes {
			errs[i] = &brokers.Error{Class: c, Op: "x", Err: errClosed}
		}
		want := brokers.Unreachable
		for _, c := range []brokers.Class{brokers.Transient, brokers.Refused} {
			if slices.Contains(classes, c) {
				want = c
			}
		}
		if got := brokers.ClassOf(worst("x", errs)); got != want {
			t.Errorf("%v: %v, want %v", classes, got, want)
		}
	}
}
