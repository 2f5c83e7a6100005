package main

import (
	"context"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
	"github.com/spf13/cobra"
)

// maxTransitions is the most that a daemon gives at once.
const maxTransitions = 1000

func newEvents(a *app) *cobra.Command {
	var limit int32
	var follow bool
	cmd := &cobra.Command{
		Use:   "events NAME",
		Short: "Show the history of a consumer's state, newest last",
		Args:  cobra.ExactArgs(1),
		RunE: a.with(func(ctx context.Context, c *client, args []string) error {
			k, err := a.key(args[0])
			if err != nil {
				return err
			}
			e := &eventPrinter{app: a, client: c, key: k}
			if err := e.print(ctx, limit); err != nil || !follow {
				return c.suggest(ctx, k, err)
			}
			f := follower{client: c, request: &pb.WatchRequest{Namespace: k.namespace, Names: []string{k.name}}, relist: true, known: true}
			return a.watchEnded(f.each(ctx, 0, func(u *update) (bool, error) { return e.take(ctx, u) }))
		}),
		ValidArgsFunction: a.completeName,
	}
	cmd.Flags().Int32Var(&limit, "limit", 100, "`N` at most")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "then print each new one")
	return cmd
}

// eventPrinter prints transitions, each once, without a gap.
type eventPrinter struct {
	app    *app
	client *client
	key    key
	// last is the sequence of the newest that was printed.
	last   uint64
	titled bool
}

// print lists what is new.
func (e *eventPrinter) print(ctx context.Context, limit int32) error {
	r, err := e.client.consumers.ListTransitions(ctx, &pb.ListTransitionsRequest{Namespace: e.key.namespace, Name: e.key.name, Limit: limit})
	if err != nil {
		return err
	}
	var fresh []*pb.Transition
	for _, t := range r.GetTransitions() {
		if t.GetSequence() > e.last || e.last == 0 {
			fresh = append(fresh, t)
		}
	}
	return e.show(fresh)
}

// take prints the transition of an event; when some are missing before it, or
// the stream begins anew, all that came meanwhile.
func (e *eventPrinter) take(ctx context.Context, u *update) (bool, error) {
	t := u.event.GetTransition()
	switch {
	case u.event.GetDeleted() != nil:
		return true, failf(exitNotFound, "%s was deleted", e.key.name)
	case u.event.GetSynced() != nil, t != nil && e.last != 0 && t.GetSequence() > e.last+1:
		return false, e.print(ctx, maxTransitions)
	case t != nil && t.GetSequence() > e.last:
		return false, e.show([]*pb.Transition{t})
	}
	return false, nil
}

func (e *eventPrinter) show(list []*pb.Transition) error {
	if len(list) == 0 && e.titled {
		return nil
	}
	t := transitionTable(list, e.app.env.now())
	t.widths = []int{19, 8, 8, 10, 8}
	if e.titled {
		t.titles = nil
	}
	e.titled = true
	if n := len(list); n > 0 {
		e.last = list[n-1].GetSequence()
	}
	v := view{
		whole: &pb.ListTransitionsResponse{Transitions: list}, items: anys(list),
		names: names(list, func(t *pb.Transition) string { return textform.ShortEnum(t.GetTo()) }),
		table: func(bool) table { return t },
	}
	return e.app.print(v)
}

func transitionTable(list []*pb.Transition, now time.Time) table {
	t := table{titles: []string{"TIME", "FROM", "TO", "EVENT", "ACTOR", "REASON"}}
	for _, x := range list {
		t.add(text(x.GetAt().AsTime().In(now.Location()).Format(time.DateTime)), stateCell(x.GetFrom()), stateCell(x.GetTo()),
			text(x.GetEvent()), text(orDash(x.GetActor())), text(x.GetReason()))
	}
	return t
}
