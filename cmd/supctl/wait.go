package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
	"github.com/spf13/cobra"
)

// pollEvery is how often figures are read that a watch does not tell.
const pollEvery = 500 * time.Millisecond

func newWait(a *app) *cobra.Command {
	var s selection
	var want string
	cmd := &cobra.Command{
		Use:   "wait NAME... --for CONDITION",
		Short: "Wait until consumers are as asked; 3 at once when they have FAILED",
		Long: `wait returns when every consumer meets the condition:

  state=PAUSED[,STOPPED]  it is in one of these states
  drained                 STOPPED or PAUSED with nothing in flight
  inflight=0, inflight<N  so many messages are taken and not settled
  lag=0, lag<N            so many wait on the broker, as measured after the call

When one is FAILED, and that is not what is waited for, it ends at once with 3.`,
		Example: `  supctl wait orders --for state=PAUSED --timeout 30s`,
		RunE: a.with(func(ctx context.Context, c *client, args []string) error {
			cond, err := parseCondition(want)
			if err != nil {
				return err
			}
			s.names = args
			list, err := a.resolve(ctx, c, &s)
			if err != nil {
				return err
			}
			if len(list) == 0 {
				return failf(exitNotFound, "no consumer matches %q", s.selector)
			}
			return a.waitFor(ctx, c, cond, list)
		}),
		ValidArgsFunction: a.completeNames,
	}
	s.flags(cmd)
	cmd.Flags().StringVar(&want, "for", "", "`CONDITION` to wait for")
	must(cmd.MarkFlagRequired("for"))
	must(cmd.RegisterFlagCompletionFunc("for", cobra.FixedCompletions(
		[]string{"state=RUNNING", "state=PAUSED", "state=STOPPED", "drained", "inflight=0", "lag=0"}, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// condition is what a consumer is waited for to meet.
type condition struct {
	text string
	// states, when that is it.
	states []pb.State
	// drained: STOPPED or PAUSED and empty.
	drained bool
	// figure, else, is less than below.
	figure func(*pb.Consumer) int64
	below  int64
	// lag: the figure is only as good as its measurement.
	lag bool
}

// figures tells whether what decides is nothing that a watch would tell.
func (c *condition) figures() bool { return c.drained || c.figure != nil }

// parseCondition reads --for.
func parseCondition(s string) (*condition, error) {
	if s == "drained" {
		return &condition{text: s, drained: true}, nil
	}
	if states, ok := strings.CutPrefix(s, "state="); ok {
		parsed, err := parseStates(strings.Split(states, ","))
		return &condition{text: s, states: parsed}, err
	}
	i := strings.IndexAny(s, "=<")
	if i > 0 {
		n, err := strconv.ParseInt(strings.TrimSpace(s[i+1:]), 10, 64)
		c := &condition{text: s, below: n}
		// Only 0 can be waited for exactly: figures jump over any other number.
		if s[i] == '=' && n == 0 {
			c.below = 1
		}
		switch strings.TrimSpace(s[:i]) {
		case "inflight":
			c.figure = func(x *pb.Consumer) int64 { return int64(x.GetStatus().GetInFlight()) }
		case "lag":
			c.lag = true
			c.figure = func(x *pb.Consumer) int64 { return x.GetStatus().GetLag().GetMessages() }
		}
		if err == nil && c.figure != nil && c.below > 0 && (s[i] == '<' || n == 0) {
			return c, nil
		}
	}
	return nil, failf(exitUsage, "--for %q: write state=PAUSED, drained, inflight=0, inflight<N, lag=0 or lag<N", s)
}

// met tells whether x is as asked. first is how it was when the wait began.
func (c *condition) met(x, first *pb.Consumer) bool {
	s := x.GetStatus()
	switch {
	case c.drained:
		return (s.GetState() == pb.State_STATE_STOPPED || s.GetState() == pb.State_STATE_PAUSED) && s.GetInFlight() == 0
	case c.figure == nil:
		return slices.Contains(c.states, s.GetState())
	case c.lag:
		// An old measurement would call a queue empty that was filled since.
		at := s.GetLag().GetAt()
		if at == nil || at.AsTime().Equal(first.GetStatus().GetLag().GetAt().AsTime()) {
			return false
		}
	}
	return c.figure(x) < c.below
}

// hopeless tells whether x has failed while something else is waited for.
func (c *condition) hopeless(x *pb.Consumer) bool {
	return x.GetStatus().GetState() == pb.State_STATE_FAILED && !slices.Contains(c.states, pb.State_STATE_FAILED)
}

// waited is one consumer that is waited for.
type waited struct {
	// first is how it was when the wait began.
	first, now *pb.Consumer
}

// stateWaiter waits until consumers meet a condition.
type stateWaiter struct {
	client   *client
	cond     *condition
	progress *progress
	// open are those that do not meet it yet.
	open map[key]*waited
	// met are the others, as they were then.
	met map[key]*pb.Consumer
}

func (a *app) waitFor(ctx context.Context, c *client, cond *condition, list []*pb.Consumer) error {
	w := &stateWaiter{client: c, cond: cond, progress: a.progress(), open: map[key]*waited{}, met: map[key]*pb.Consumer{}}
	for _, x := range list {
		w.open[keyOf(x)] = &waited{first: x, now: x}
	}
	req := watchOf(list, keyOf)
	if err := w.run(ctx, req); err != nil {
		return w.explain(err)
	}
	for i, x := range list {
		list[i] = w.met[keyOf(x)]
	}
	return a.print(a.consumersView(list, req.GetNamespace() == everywhere))
}

func (w *stateWaiter) run(ctx context.Context, req *pb.WatchRequest) error {
	for _, x := range w.left() {
		if err := w.judge(w.open[x]); err != nil {
			return err
		}
	}
	if len(w.open) == 0 {
		return nil
	}
	w.progress.say(fmt.Sprintf("waiting for %s: %s", w.cond.text, w.missing()))
	tick := time.Duration(0)
	if w.cond.figures() {
		tick = pollEvery
	}
	f := follower{client: w.client, request: req, relist: true, known: true}
	return f.each(ctx, tick, func(u *update) (bool, error) {
		err := w.take(ctx, u)
		return len(w.open) == 0, err
	})
}

// judge looks whether x is as asked now; the error is that it never will be.
func (w *stateWaiter) judge(x *waited) error {
	name, s := x.now.GetSpec().GetName(), x.now.GetStatus()
	switch {
	case w.cond.lag && s.GetCapabilities() != nil && !s.GetCapabilities().GetLag():
		return failf(exitConflict, "%s: %s does not tell its lag: wait for inflight=0 or drained", name, brokerOf(x.now))
	case w.cond.met(x.now, x.first):
		delete(w.open, keyOf(x.now))
		w.met[keyOf(x.now)] = x.now
	case w.cond.hopeless(x.now):
		return failf(exitState, "%s is FAILED, waited for %s: %s", name, w.cond.text, oneLine(s.GetReason()))
	}
	return nil
}

func (w *stateWaiter) take(ctx context.Context, u *update) error {
	switch {
	case u == nil:
		return w.poll(ctx)
	case u.lost != "":
		w.progress.say(u.lost + "; trying again")
	case u.event.GetSynced() != nil:
		return w.poll(ctx) // One that is not in the snapshot is gone.
	case u.event.GetDeleted() != nil:
		d := u.event.GetDeleted()
		if w.open[key{d.GetNamespace(), d.GetName()}] != nil {
			return failf(exitNotFound, "%s was deleted meanwhile", d.GetName())
		}
	case u.event.GetConsumer() != nil:
		if x := w.open[keyOf(u.event.GetConsumer())]; x != nil {
			x.now = u.event.GetConsumer()
			return w.judge(x)
		}
	}
	return nil
}

// poll reads those anew that are not as asked yet.
func (w *stateWaiter) poll(ctx context.Context) error {
	for _, k := range w.left() {
		c, err := w.client.get(ctx, k)
		if exitOf(err) == exitUnreachable {
			return nil // The watch tells, and tries again.
		}
		if err != nil {
			return err
		}
		w.open[k].now = c
		if err := w.judge(w.open[k]); err != nil {
			return err
		}
	}
	return nil
}

// left lists what is open, in order.
func (w *stateWaiter) left() []key {
	return slices.SortedFunc(maps.Keys(w.open), func(a, b key) int { return strings.Compare(a.String(), b.String()) })
}

// explain says what was still missing when the wait ended early.
func (w *stateWaiter) explain(err error) error {
	switch {
	case timedOut(err):
		return failf(exitTimeout, "%w before %s was met: %s", err, w.cond.text, w.missing())
	case errors.Is(err, context.Canceled):
		return failf(exitInterrupted, "interrupted before %s was met: %s", w.cond.text, w.missing())
	}
	return err
}

// missing is "orders is DRAINING", of those that are open.
func (w *stateWaiter) missing() string {
	return listed(names(w.left(), func(k key) string {
		return k.name + " is " + textform.ShortEnum(w.open[k].now.GetStatus().GetState())
	}))
}
