package brokertest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// plenty is a credit that bounds messages only.
func plenty(n int) brokers.Credit { return brokers.Credit{Messages: n, Bytes: 1 << 40} }

// intake is a subscription under test.
type intake struct {
	r *run
	brokers.Subscription
	observer *observer
	closed   bool
}

// observer writes down what it hears.
type observer struct {
	mu sync.Mutex
	// revoke is called by Revoke; nil: it returns at once.
	revoke func(context.Context, []*brokers.Origin)
}

func (o *observer) Revoke(ctx context.Context, origins []*brokers.Origin) {
	o.mu.Lock()
	f := o.revoke
	o.mu.Unlock()
	if f != nil {
		f(ctx, origins)
	}
}

func (o *observer) onRevoke(f func(context.Context, []*brokers.Origin)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.revoke = f
}

func (o *observer) Condition(supervisorv1.ConditionType, bool, string) {}

// subscribe begins to take from a source, and tries again while the broker
// cannot be reached. The behaviour's end closes what it left open.
func (r *run) subscribe(s *supervisorv1.ConsumerSpec) *intake {
	r.Helper()
	i := &intake{r: r, observer: &observer{}}
	p := r.plan(s)
	r.eventually("subscribe", func(ctx context.Context) error {
		if r.isLost() {
			r.connected() // what broke it was noticed only now
		}
		sub, err := r.conn.Subscribe(ctx, p.Source, i.observer)
		switch brokers.ClassOf(err) {
		case 0, brokers.Unreachable, brokers.Transient:
		default:
			r.Fatalf("subscribe: %v", err)
		}
		i.Subscription = sub
		return err
	})
	r.Cleanup(func() {
		if i.closed {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), r.features.Patience)
		defer cancel()
		if _, err := i.Close(ctx, nil); err != nil {
			r.Logf("close a subscription that the behaviour left open: %v", r.saw(err))
		}
	})
	return i
}

// receive collects n deliveries.
func (i *intake) receive(n int) []*brokers.Delivery {
	i.r.Helper()
	ctx, cancel := i.r.within(i.r.features.Patience)
	defer cancel()
	var out []*brokers.Delivery
	for len(out) < n {
		limit := plenty(n - len(out))
		batch, err := i.Receive(ctx, limit)
		if err != nil {
			i.r.Fatalf("receive: %d of %d came: %v", len(out), n, i.r.saw(err))
		}
		i.r.checkBatch(batch, limit)
		for k := range batch {
			out = append(out, &batch[k])
		}
	}
	return out
}

// checkBatch demands what holds for every batch.
func (r *run) checkBatch(batch []brokers.Delivery, limit brokers.Credit) {
	r.Helper()
	var bytes int64
	for k := range batch {
		d := &batch[k]
		bytes += d.Size
		if d.Origin == nil || d.Origin.Name == "" || d.Headers == nil || d.Size < int64(len(d.Body)+len(d.Key)) {
			r.Fatalf("a delivery is not filled in: %+v", d)
		}
	}
	switch {
	case len(batch) == 0:
		r.Fatal("Receive returned no delivery and no error")
	case len(batch) > limit.Messages:
		r.Fatalf("Receive returned %d messages, credit %d", len(batch), limit.Messages)
	case bytes > limit.Bytes && len(batch) > 1:
		r.Fatalf("Receive returned %d bytes in %d messages, credit %d", bytes, len(batch), limit.Bytes)
	}
}

// quiet demands that nothing comes for a while.
func (i *intake) quiet() {
	i.r.Helper()
	ctx, cancel := i.r.within(i.r.features.Quiet)
	defer cancel()
	batch, err := i.Receive(ctx, plenty(1))
	if !timedOut(i.r.saw(err)) {
		i.r.Fatalf("nothing was to come, but Receive returned %v, %v", texts(refs(batch)), err)
	}
}

// timedOut tells whether err is a context's own, which does not end a subscription.
func timedOut(err error) bool {
	_, classified := errors.AsType[*brokers.Error](err)
	return errors.Is(err, context.DeadlineExceeded) && !classified
}

// fails demands that Receive ends the subscription with an error of these classes.
func (i *intake) fails(classes ...brokers.Class) {
	i.r.Helper()
	_ = i.failure(classes...) // it has the right class
}

// failure is the error with which Receive ends the subscription; it has one of
// these classes.
func (i *intake) failure(classes ...brokers.Class) error {
	i.r.Helper()
	ctx, cancel := i.r.within(i.r.features.Patience)
	defer cancel()
	for {
		_, err := i.Receive(ctx, plenty(1))
		if err == nil {
			continue // what had come before
		}
		i.r.class("receive", err, classes...)
		return err
	}
}

// settle settles in one batch.
func (i *intake) settle(o brokers.Outcome, ds ...*brokers.Delivery) {
	i.r.Helper()
	i.r.ok("settle", i.trySettle(o, ds...))
}

func (i *intake) trySettle(o brokers.Outcome, ds ...*brokers.Delivery) error {
	ctx, cancel := i.r.within(i.r.features.Patience)
	defer cancel()
	st := make([]brokers.Settlement, len(ds))
	for k, d := range ds {
		st[k] = brokers.Settlement{Delivery: d, Outcome: o}
	}
	return i.Settle(ctx, st)
}

// hold closes the intake, and demands that the broker confirmed.
func (i *intake) hold(unstarted ...*brokers.Delivery) brokers.Report {
	i.r.Helper()
	ctx, cancel := i.r.within(i.r.features.Patience)
	defer cancel()
	rep, err := i.Hold(ctx, unstarted)
	i.r.ok("hold", err)
	i.r.confirmed("hold", rep)
	return rep
}

// end closes the subscription, and demands that the broker confirmed.
func (i *intake) end(unsettled ...*brokers.Delivery) brokers.Report {
	i.r.Helper()
	ctx, cancel := i.r.within(i.r.features.Patience)
	defer cancel()
	i.closed = true
	rep, err := i.Close(ctx, unsettled)
	i.r.ok("close", err)
	i.r.confirmed("close", rep)
	return rep
}

// confirmed demands that a report leaves nothing open.
func (r *run) confirmed(what string, rep brokers.Report) {
	r.Helper()
	if !rep.Released || rep.Unconfirmed != 0 || rep.OwnershipLost != 0 {
		r.Errorf("%s: the broker answers, but the report is %+v", what, rep)
	}
}

// abandon closes a subscription that broke; the report may be anything.
func (i *intake) abandon(unsettled ...*brokers.Delivery) {
	i.r.Helper()
	ctx, cancel := i.r.within(i.r.features.Patience)
	defer cancel()
	i.closed = true
	_, err := i.Close(ctx, unsettled)
	i.r.note(err)
}

func (i *intake) flow() {
	i.r.Helper()
	ctx, cancel := i.r.within(i.r.features.Patience)
	defer cancel()
	i.r.ok("flow", i.Flow(ctx))
}

// drained takes and acks all that a source still has, and demands that it was
// exactly this, each once.
func (r *run) drained(s *supervisorv1.ConsumerSpec, want []string) {
	r.Helper()
	i := r.subscribe(s)
	ds := i.receive(len(want))
	r.same("what the broker still had", texts(ds), want)
	i.settle(brokers.Ack, ds...)
	i.quiet()
	i.end()
	r.settled(s)
}

// same demands the same bodies, each as often, in any order.
func (r *run) same(what string, got, want []string) {
	r.Helper()
	g, w := slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))
	if !slices.Equal(g, w) {
		r.Fatalf("%s: got %v, want %v", what, g, w)
	}
}

// inOrder demands these bodies in this order.
func (r *run) inOrder(what string, got, want []string) {
	r.Helper()
	if !slices.Equal(got, want) {
		r.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func refs(batch []brokers.Delivery) []*brokers.Delivery {
	out := make([]*brokers.Delivery, len(batch))
	for k := range batch {
		out[k] = &batch[k]
	}
	return out
}

func ids(ds []*brokers.Delivery) []string {
	out := make([]string, len(ds))
	for k, d := range ds {
		out[k] = d.ID()
	}
	return out
}

func texts(ds []*brokers.Delivery) []string {
	out := make([]string, len(ds))
	for k, d := range ds {
		out[k] = string(d.Body)
	}
	return out
}
