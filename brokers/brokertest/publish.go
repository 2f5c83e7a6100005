package brokertest

import (
	"context"
	"fmt"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

func publishing() []behaviour {
	return []behaviour{
		{name: "PublishIsConfirmed", run: publishIsConfirmed},
		{name: "PublishWithoutTarget", run: publishWithoutTarget},
		{name: "PublishCancelled", run: publishCancelled},
		{name: "PublishBlocked", run: publishBlocked, faults: []Fault{Block, Unblock}},
	}
}

// When Publish returns nil, all of it is in the target, with what it carried.
func publishIsConfirmed(r *run) {
	const n = 50
	s := r.source(SourceOptions{})
	p := r.plan(s)
	ps := make([]brokers.Publication, n)
	for k := range ps {
		ps[k] = brokers.Publication{
			Target: p.DeadLetter, ID: fmt.Sprintf("%s-%d", s.GetName(), k), Key: []byte("k"), Body: []byte(body(k)),
			Headers: []brokers.Header{{Name: "reason", Value: "poison"}, {Name: "stack", Value: "a\nb"}},
		}
	}
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	r.ok("publish", r.conn.Publish(ctx, ps))
	ms, err := r.h.DeadLetters(ctx, s)
	r.ok("read the dead letters", err)
	got := make([]string, len(ms))
	for k, m := range ms {
		got[k] = string(m.Body)
		if r.features.Keys && string(m.Key) != "k" {
			r.Errorf("%s has the key %q", m.Body, m.Key)
		}
		if r.features.Headers && !carries(m.Headers, "reason", "poison") {
			r.Errorf("%s has the headers %q", m.Body, m.Headers)
		}
	}
	r.same("dead letters", got, bodies(0, n))
}

func carries(hs []brokers.Header, name, value string) bool {
	for _, h := range hs {
		if h.Name == name && h.Value == value {
			return true
		}
	}
	return false
}

// Publish to a target that is not there is an error: nothing may be acked.
func publishWithoutTarget(r *run) {
	s := r.source(SourceOptions{NoTarget: true})
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	err := r.conn.Publish(ctx, []brokers.Publication{{Target: r.plan(s).DeadLetter, Body: []byte("x")}})
	r.class("publish to a missing target", err, brokers.Missing)
}

// Publish whose context has ended returns its error and never nil.
func publishCancelled(r *run) {
	s := r.source(SourceOptions{})
	ctx, cancel := context.WithCancelCause(r.Context())
	cancel(nil)
	err := r.conn.Publish(ctx, []brokers.Publication{{Target: r.plan(s).DeadLetter, Body: []byte("x")}})
	if r.saw(err) == nil {
		r.Error("Publish with an ended context returned nil")
	}
}

// While the broker lets publishers wait, Publish ends with its context, and what
// is consumed on the same Conn is received and acked as ever.
func publishBlocked(r *run) {
	s := r.source(SourceOptions{})
	p := r.plan(s)
	r.publish(s, 0, 10)
	i := r.subscribe(s)
	r.disturb(Block, s)
	blocked := make(chan error, 1)
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	go func() {
		blocked <- r.conn.Publish(ctx, []brokers.Publication{{Target: p.DeadLetter, Body: []byte("waits")}})
	}()
	r.soonFails("Publish", func(ctx context.Context) error {
		return r.conn.Publish(ctx, []brokers.Publication{{Target: p.DeadLetter, Body: []byte("x")}})
	})
	i.settle(brokers.Ack, i.receive(10)...)
	i.hold()
	r.remains(s, 0)
	i.end()
	r.disturb(Unblock, s)
	r.ok("publish what waited", <-blocked)
}
