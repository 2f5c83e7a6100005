package brokertest

import (
	"errors"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

func sources() []behaviour {
	return []behaviour{
		{name: "MissingFails", run: func(r *run) { missingSource(r, supervisorv1.Missing_MISSING_FAIL, false) }},
		{name: "MissingWaits", run: func(r *run) { missingSource(r, supervisorv1.Missing_MISSING_WAIT, true) }},
		{name: "MissingIsCreated", run: missingIsCreated, needs: func(f Features) bool { return f.Create }},
		{name: "DeletedWhileBusy", run: deletedWhileBusy, faults: []Fault{Delete, Recreate}},
		{name: "DeletedWhileIdle", run: deletedWhileIdle, faults: []Fault{Delete}},
		{name: "DeletedWhileHeld", run: deletedWhileHeld, faults: []Fault{Delete}},
		{name: "CredentialsRefused", run: credentialsRefused, needs: func(f Features) bool { return f.Credentials }},
		{name: "RightsRefused", run: rightsRefused, faults: []Fault{Forbid, Permit}},
		{name: "RightsRevoked", run: rightsRevoked, faults: []Fault{Forbid, Permit}, needs: func(f Features) bool { return f.Revokes }},
	}
}

// A source that is not there is an error of class Missing, which says whether the
// spec wants to wait.
func missingSource(r *run, policy supervisorv1.Missing, wait bool) {
	s := r.source(SourceOptions{Absent: true, Missing: policy})
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	_, err := r.conn.Subscribe(ctx, r.plan(s).Source, &observer{})
	r.class("subscribe to a missing source", err, brokers.Missing)
	r.waits(err, wait)
}

// waits demands that an error says whether the spec wants to wait.
func (r *run) waits(err error, want bool) {
	r.Helper()
	if e, ok := errors.AsType[*brokers.Error](err); ok && e.Wait != want {
		r.Errorf("Wait is %v, want %v: %v", e.Wait, want, err)
	}
}

// A missing source is made when the spec says so.
func missingIsCreated(r *run) {
	s := r.source(SourceOptions{Absent: true, Missing: supervisorv1.Missing_MISSING_CREATE})
	i := r.subscribe(s)
	r.publish(s, 0, 3)
	ds := i.receive(3)
	i.settle(brokers.Ack, ds...)
	i.end()
	r.settled(s)
}

// A source deleted while its messages are being handled ends the subscription
// with class Missing; made again it works.
func deletedWhileBusy(r *run) {
	s := r.source(SourceOptions{Missing: supervisorv1.Missing_MISSING_WAIT})
	r.publish(s, 0, 10)
	i := r.subscribe(s)
	ds := i.receive(5)
	r.disturb(Delete, s)
	r.waits(i.failure(brokers.Missing), true)
	r.class("settle after that", i.trySettle(brokers.Ack, ds...), brokers.Fenced)
	i.abandon(ds...)
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	_, err := r.conn.Subscribe(ctx, r.plan(s).Source, &observer{})
	r.class("subscribe to what was deleted", err, brokers.Missing)
	r.disturb(Recreate, s)
	r.publish(s, 10, 3)
	r.drained(s, bodies(10, 3))
}

// A source deleted while nothing comes is noticed all the same.
func deletedWhileIdle(r *run) {
	s := r.source(SourceOptions{})
	i := r.subscribe(s)
	i.quiet()
	r.disturb(Delete, s)
	i.fails(brokers.Missing)
	i.abandon()
}

// A source deleted while the intake is held is noticed by Receive, at the latest
// after Flow.
func deletedWhileHeld(r *run) {
	s := r.source(SourceOptions{Missing: supervisorv1.Missing_MISSING_FAIL})
	i := r.subscribe(s)
	i.hold()
	r.disturb(Delete, s)
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	if err := i.Flow(ctx); err != nil {
		r.class("flow of a deleted source", err, brokers.Missing, brokers.Fenced)
	}
	r.waits(i.failure(brokers.Missing), false)
	i.abandon()
}

// Wrong credentials are refused in the broker's words.
func credentialsRefused(r *run) {
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	c := r.h.Connection(false)
	conn, err := r.h.Driver().Open(ctx, c, r.env())
	if err == nil {
		r.ok("close", conn.Close(ctx))
	}
	r.class("open with wrong credentials", err, brokers.Refused)
}

// Without rights Subscribe is Refused, until they are there.
func rightsRefused(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 5)
	r.disturb(Forbid, s)
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	_, err := r.conn.Subscribe(ctx, r.plan(s).Source, &observer{})
	r.disturb(Permit, s)
	r.class("subscribe without rights", err, brokers.Refused)
	r.drained(s, bodies(0, 5))
}

// Where the broker looks at rights all the time, taking them away ends the
// subscription with class Refused, and so does subscribing again until they are
// back.
func rightsRevoked(r *run) {
	s := r.source(SourceOptions{})
	r.publish(s, 0, 5)
	i := r.subscribe(s)
	ds := i.receive(2)
	r.disturb(Forbid, s)
	i.fails(brokers.Refused)
	i.abandon(ds...)
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	_, err := r.conn.Subscribe(ctx, r.plan(s).Source, &observer{})
	r.class("subscribe without rights", err, brokers.Refused)
	r.disturb(Permit, s)
	r.drained(s, bodies(0, 5))
}
