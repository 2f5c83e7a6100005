package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

// Goals while 1,000 consumers are busy.
const (
	pauseMedianGoal = time.Millisecond
	pauseTailGoal   = 10 * time.Millisecond
	killGoal        = 2 * time.Second
	neighbourGoal   = 0.9
)

// busy is one consumer's handler: it notes when calls start.
type busy struct {
	clock func() int64
	work  time.Duration
	calls atomic.Int64
	last  atomic.Int64
	// stuck, once set, holds the next call whatever its context says.
	stuck atomic.Pointer[chan struct{}]
	in    atomic.Bool
	_     [64]byte // handlers of neighbours share no cache line
}

func (b *busy) Handle(ctx context.Context, _ *supervisor.Message) supervisor.Outcome {
	b.last.Store(b.clock())
	b.calls.Add(1)
	if held := b.stuck.Load(); held != nil {
		b.in.Store(true)
		<-*held
		return supervisor.Ack()
	}
	if b.work > 0 {
		if err := wait(ctx, b.work); err != nil {
			return supervisor.Retry(err)
		}
	}
	return supervisor.Ack()
}

// crowd is a supervisor with many busy consumers.
type crowd struct {
	*host
	busy []*busy
}

func crowdName(i int) string { return "busy-" + strconv.Itoa(i) }

func newCrowd(ctx context.Context, n int, work time.Duration) (*crowd, error) {
	broker := memory.NewBroker(memory.Options{Forget: true})
	began := time.Now()
	clock := func() int64 { return int64(time.Since(began)) }
	functions := map[string]supervisor.Handler{}
	c := &crowd{}
	var specs []*pb.ConsumerSpec
	for i := range n {
		b := &busy{clock: clock, work: work}
		name := crowdName(i)
		q := memory.QueueOptions{Endless: []memory.Message{{Body: make([]byte, coreBody)}}}
		if err := broker.Create(name, q); err != nil {
			return nil, err
		}
		functions[name] = b
		c.busy = append(c.busy, b)
		specs = append(specs, newSpec(name, memorySource(name), func(s *pb.ConsumerSpec) {
			s.Handler.Kind = &pb.Handler_Go{Go: &pb.GoHandler{Name: name}}
		}))
	}
	var err error
	if c.host, err = newHost(&memory.Driver{Broker: broker}, memoryConnection(), functions); err != nil {
		return nil, err
	}
	if err := c.apply(ctx, specs...); err != nil {
		return nil, errors.Join(err, c.close(ctx))
	}
	if err := c.await(ctx, pb.State_STATE_RUNNING, n); err != nil {
		return nil, errors.Join(err, c.close(ctx))
	}
	return c, nil
}

// latencies of pausing each consumer in turn while the others run.
type latencies struct{ lastStart, accepted, paused []float64 }

// pauseEach pauses and resumes n consumers, one after another.
func (c *crowd) pauseEach(ctx context.Context, n int) (latencies, error) {
	var out latencies
	for i, b := range c.busy[:n] {
		name := crowdName(i)
		began := b.clock()
		if _, err := c.verb(ctx, pb.Verb_VERB_PAUSE, name); err != nil {
			return out, err
		}
		accepted := b.clock()
		if err := c.await(ctx, pb.State_STATE_PAUSED, 1, name); err != nil {
			return out, err
		}
		paused, last := b.clock(), b.last.Load()
		out.lastStart = append(out.lastStart, float64(max(0, last-began)))
		out.accepted = append(out.accepted, float64(accepted-began))
		out.paused = append(out.paused, float64(paused-began))
		if _, err := c.verb(ctx, pb.Verb_VERB_RESUME, name); err != nil {
			return out, err
		}
	}
	return out, nil
}

// killStuck kills the first consumer while its handler ignores its context,
// and returns how long that took and the neighbours' rates relative to before.
func (c *crowd) killStuck(ctx context.Context, window time.Duration) (time.Duration, []float64, error) {
	held := make(chan struct{})
	defer close(held)
	victim := c.busy[0]
	victim.stuck.Store(&held)
	before, err := c.callsOver(ctx, window, func() error { return nil })
	if err != nil {
		return 0, nil, err
	}
	if !victim.in.Load() {
		return 0, nil, errors.New("the victim's handler was not called in the whole window: make it longer")
	}
	var took time.Duration
	during, err := c.callsOver(ctx, window, func() error {
		began := time.Now()
		res, err := c.verb(ctx, pb.Verb_VERB_KILL, crowdName(0))
		took = time.Since(began)
		if err == nil && res.GetState() != pb.State_STATE_STOPPED {
			err = fmt.Errorf("it is %v after its kill", res.GetState())
		}
		return err
	})
	if err != nil {
		return took, nil, err
	}
	var rates []float64
	for i := range before {
		if i > 0 && before[i] > 0 {
			rates = append(rates, during[i]/before[i])
		}
	}
	return took, rates, nil
}

// callsOver counts each consumer's calls per second over a window at whose
// beginning it calls f.
func (c *crowd) callsOver(ctx context.Context, window time.Duration, f func() error) ([]float64, error) {
	from := make([]int64, len(c.busy))
	for i, b := range c.busy {
		from[i] = b.calls.Load()
	}
	began := time.Now()
	if err := f(); err != nil {
		return nil, err
	}
	if err := wait(ctx, window-time.Since(began)); err != nil {
		return nil, err
	}
	took := time.Since(began).Seconds()
	out := make([]float64, len(c.busy))
	for i, b := range c.busy {
		out[i] = float64(b.calls.Load()-from[i]) / took
	}
	return out, nil
}

// runPause measures verbs among busy neighbours.
func runPause(ctx context.Context, fs *flag.FlagSet, args []string, w io.Writer) error {
	n := fs.Int("n", 1000, "busy consumers")
	work := fs.Duration("work", 10*time.Millisecond, "how long a handler waits, as for a reply; 0 keeps all CPUs busy")
	pauses := fs.Int("pauses", 300, "how many of them are paused and resumed, one after another")
	window := fs.Duration("window", 5*time.Second, "over which neighbours' rates are taken")
	results := fs.String("results", "", "also put the table into this file (bench/RESULTS.md)")
	if err := fs.Parse(args); err != nil {
		return err
	}
	r := &report{
		title: fmt.Sprintf("Verbs among %d busy consumers, handlers of %s", *n, *work),
		lines: machine(),
		head:  []string{"", "p50", "p99", "worst"},
	}
	c, err := newCrowd(ctx, *n, *work)
	if err != nil {
		return err
	}
	err = c.report(ctx, r, min(*pauses, *n), *window)
	if err := errors.Join(err, c.close(ctx)); err != nil {
		return err
	}
	return r.publish(w, *results)
}

func (c *crowd) report(ctx context.Context, r *report, pauses int, window time.Duration) error {
	rates, err := c.callsOver(ctx, window, func() error { return nil })
	if err != nil {
		return err
	}
	l, err := c.pauseEach(ctx, pauses)
	if err != nil {
		return err
	}
	took, relative, err := c.killStuck(ctx, window)
	if err != nil {
		return err
	}
	for _, row := range []struct {
		name string
		v    []float64
	}{
		{"pause received to last handler start", l.lastStart},
		{"pause received to accepted reply, in process", l.accepted},
		{"pause received to PAUSED", l.paused},
	} {
		r.row(row.name, ms(percentile(row.v, 50)), ms(percentile(row.v, 99)), ms(percentile(row.v, 100)))
	}
	var total float64
	for _, v := range rates {
		total += v
	}
	r.notef("%s handler calls/s in all, %.1f for a consumer in the middle. State on disk, each verb one durable write.",
		count(total), median(rates))
	r.notef("Kill with a stuck handler: %s to STOPPED (goal %s: %s). Neighbours' rates while it is killed, relative to before: worst %.2f, p1 %.2f, middle %.2f (goal %.1f: %s).",
		took.Round(time.Millisecond), killGoal, verdict(took <= killGoal), percentile(relative, 0), percentile(relative, 1),
		median(relative), neighbourGoal, verdict(percentile(relative, 0) >= neighbourGoal))
	ok := percentile(l.lastStart, 50) <= float64(pauseMedianGoal) && percentile(l.lastStart, 99) <= float64(pauseTailGoal)
	r.notef("Goal: last handler start within p50 %s, p99 %s: %s.", pauseMedianGoal, pauseTailGoal, verdict(ok))
	return nil
}

func ms(ns float64) string { return fmt.Sprintf("%.2f ms", ns/1e6) }
