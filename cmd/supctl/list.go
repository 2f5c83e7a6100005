package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
	"github.com/spf13/cobra"
)

func newList(a *app) *cobra.Command {
	var s selection
	var states []string
	var watch bool
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List consumers",
		Long: `list shows the consumers of the namespace. INFLIGHT is messages taken and not
settled / handlers that may run at the same time; OLDEST is the age of the
oldest of them; LAG is what waits on the broker, with its age when the figure is
older than 30s, and ~ when the broker only estimates it; RATE is messages
settled per second over the last 10s.`,
		Args: cobra.NoArgs,
		RunE: a.with(func(ctx context.Context, c *client, _ []string) error {
			ns, err := a.scope(s.allNamespaces)
			if err != nil {
				return err
			}
			req := &pb.ListRequest{Namespace: ns, Selector: s.selector}
			if req.States, err = parseStates(states); err != nil {
				return err
			}
			list, revision, err := c.list(ctx, req)
			if err != nil {
				return err
			}
			if len(list) == 0 && a.human() && !watch {
				fmt.Fprintln(a.env.stderr, "no consumers; make some with 'supctl apply -f FILE'")
				return nil
			}
			if err := a.print(a.consumersView(list, s.allNamespaces)); err != nil || !watch {
				return err
			}
			return a.listChanges(ctx, c, req, list, revision)
		}),
	}
	f := cmd.Flags()
	f.StringVarP(&s.selector, "selector", "l", "", "only consumers with labels like this `SELECTOR`: team=payments,tier!=free,eu,!legacy")
	s.namespaceFlag(cmd)
	f.StringSliceVar(&states, "state", nil, "only consumers in these `STATES`: "+strings.Join(stateNames(), ", "))
	f.BoolVarP(&watch, "watch", "w", false, "then print each consumer again when it changes")
	must(cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(stateNames(), cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// stateNames are the short names of all states.
func stateNames() []string {
	values := pb.State_STATE_UNSPECIFIED.Descriptor().Values()
	var out []string
	for i := 1; i < values.Len(); i++ {
		out = append(out, textform.ShortEnum(pb.State(values.Get(i).Number())))
	}
	return out
}

func parseStates(words []string) ([]pb.State, error) {
	var out []pb.State
	for _, w := range words {
		n, ok := pb.State_value["STATE_"+strings.ToUpper(w)]
		if !ok || n == 0 {
			return nil, failf(exitUsage, "no state %q: it is one of %s%s", w, strings.Join(stateNames(), ", "), didYouMean(strings.ToUpper(w), stateNames()))
		}
		out = append(out, pb.State(n))
	}
	return out, nil
}

// listChanges prints rows under the table as consumers change, until ctx ends.
func (a *app) listChanges(ctx context.Context, c *client, req *pb.ListRequest, list []*pb.Consumer, revision uint64) error {
	cols := consumerColumns{namespace: req.GetNamespace() == everywhere, wide: a.flags.output.value == outWide}
	listed := consumerTable(list, cols, a.env.now())
	widths := listed.measure()
	f := follower{client: c, request: &pb.WatchRequest{Namespace: req.GetNamespace(), Selector: req.GetSelector(), SinceRevision: revision}, known: true}
	err := f.each(ctx, 0, func(u *update) (bool, error) {
		x := u.event.GetConsumer()
		if x == nil || (len(req.GetStates()) > 0 && !slices.Contains(req.GetStates(), x.GetStatus().GetState())) {
			return false, nil
		}
		if !a.human() {
			return false, a.print(a.consumersView([]*pb.Consumer{x}, cols.namespace).single())
		}
		row := table{widths: widths}
		row.add(cols.row(x, a.env.now())...)
		row.write(a.env.stdout, a.color())
		return false, nil
	})
	return a.watchEnded(err)
}

// single leaves the frame of a list out.
func (v view) single() view {
	v.whole = nil
	return v
}
