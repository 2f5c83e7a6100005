package main

import (
	"context"
	"errors"
	"fmt"
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
	cmd.Flags().StringVar(&want, "for", "", "what to wait for")
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
	first, now *pb.Consumer
	done       bool
}

func (a *app) waitFor(ctx context.Context, c *client, cond *condition, list []*pb.Consumer) error {
	items := map[key]*waited{}
	req := watchOf(list, keyOf)
	for _, x := range list {
		items[keyOf(x)] = &waited{first: x, now: x}
	}
	for _, w := range items {
		if err := cond.judge(w); err != nil {
			return err
		}
	}
	if err := a.waitUnmet(ctx, c, cond, req, items); err != nil {
		return waitEnded(err, cond, items)
	}
	return a.print(a.consumersView(latest(list, items), req.GetNamespace() == everywhere))
}

// waitUnmet follows the consumers until each is as asked.
func (a *app) waitUnmet(ctx context.Context, c *client, cond *condition, req *pb.WatchRequest, items map[key]*waited) error {
	if len(unmet(items)) == 0 {
		return nil
	}
	tick := time.Duration(0)
	if cond.figures() {
		tick = pollEvery
	}
	p := a.progress()
	f := follower{client: c, request: req, relist: true, known: true}
	return f.each(ctx, tick, func(u *update) (bool, error) {
		if err := waitStep(ctx, c, cond, items, u, p); err != nil {
			return false, err
		}
		return len(unmet(items)) == 0, nil
	})
}

// judge notes whether w is done; the error is that it never will be.
func (c *condition) judge(w *waited) error {
	if caps := w.now.GetStatus().GetCapabilities(); c.lag && caps != nil && !caps.GetLag() {
		return failf(exitConflict, "%s: %s does not tell its lag: wait for inflight=0 or drained", w.now.GetSpec().GetName(), brokerOf(w.now))
	}
	if w.done = c.met(w.now, w.first); !w.done && c.hopeless(w.now) {
		return failf(exitState, "%s is FAILED, waited for %s: %s", w.now.GetSpec().GetName(), c.text, oneLine(w.now.GetStatus().GetReason()))
	}
	return nil
}

func waitStep(ctx context.Context, c *client, cond *condition, items map[key]*waited, u *update, p *progress) error {
	switch {
	case u == nil:
		return pollFigures(ctx, c, cond, items)
	case u.lost != nil:
		p.say(u.lost.Error() + "; trying again")
	case u.event.GetDeleted() != nil:
		k := key{u.event.GetDeleted().GetNamespace(), u.event.GetDeleted().GetName()}
		if w := items[k]; w != nil && !w.done {
			return failf(exitNotFound, "%s was deleted meanwhile", k.name)
		}
	case u.event.GetConsumer() != nil:
		if w := items[keyOf(u.event.GetConsumer())]; w != nil && !w.done {
			w.now = u.event.GetConsumer()
			return cond.judge(w)
		}
	}
	return nil
}

// pollFigures reads those anew that are not as asked yet.
func pollFigures(ctx context.Context, c *client, cond *condition, items map[key]*waited) error {
	for _, k := range unmet(items) {
		x, err := c.get(ctx, k)
		if exitOf(err) == exitUnreachable {
			return nil // The watch tells, and tries again.
		}
		if err != nil {
			return err
		}
		items[k].now = x
		if err := cond.judge(items[k]); err != nil {
			return err
		}
	}
	return nil
}

func unmet(items map[key]*waited) []key {
	var out []key
	for k, w := range items {
		if !w.done {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, func(a, b key) int { return strings.Compare(a.String(), b.String()) })
	return out
}

func latest(list []*pb.Consumer, items map[key]*waited) []*pb.Consumer {
	out := make([]*pb.Consumer, len(list))
	for i, x := range list {
		out[i] = items[keyOf(x)].now
	}
	return out
}

// waitEnded says what was still missing when the wait ended early.
func waitEnded(err error, cond *condition, items map[key]*waited) error {
	var missing []string
	for _, k := range unmet(items) {
		missing = append(missing, fmt.Sprintf("%s is %s", k.name, textform.ShortEnum(items[k].now.GetStatus().GetState())))
	}
	switch {
	case timedOut(err):
		return failf(exitTimeout, "%w before %s was met: %s", err, cond.text, listed(missing))
	case errors.Is(err, context.Canceled):
		return failf(exitInterrupted, "interrupted before %s was met: %s", cond.text, listed(missing))
	}
	return err
}
