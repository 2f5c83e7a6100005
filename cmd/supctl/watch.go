package main

import (
	"context"
	"errors"
	"fmt"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
	"github.com/spf13/cobra"
)

func newWatch(a *app) *cobra.Command {
	var s selection
	var since uint64
	cmd := &cobra.Command{
		Use:   "watch [NAME...]",
		Short: "Print what is, then every change",
		Long: `watch prints the consumers as they are, then each change of a state, a spec or
what is desired, and each receipt. It goes on over a lost connection without
missing a change; when the daemon no longer has the changes in between, it says
so and prints what is anew. With -o jsonl each event is a line with its
revision, which --since takes later to go on from there.`,
		RunE: a.with(func(ctx context.Context, c *client, args []string) error {
			req, err := a.watchRequest(&s, args)
			if err != nil {
				return err
			}
			req.SinceRevision = since
			f := follower{client: c, request: req}
			w := &watchPrinter{app: a, namespaces: req.GetNamespace() == everywhere}
			return a.watchEnded(f.each(ctx, 0, func(u *update) (bool, error) { return false, w.print(u) }))
		}),
		ValidArgsFunction: a.completeNames,
	}
	f := cmd.Flags()
	f.StringVarP(&s.selector, "selector", "l", "", "only consumers with labels like this `SELECTOR`")
	s.namespaceFlag(cmd)
	f.Uint64Var(&since, "since", 0, "only what changed after this `REVISION`")
	return cmd
}

func (a *app) watchRequest(s *selection, args []string) (*pb.WatchRequest, error) {
	if len(args) == 0 {
		ns, err := a.scope(s.allNamespaces)
		return &pb.WatchRequest{Namespace: ns, Selector: s.selector}, err
	}
	s.names = args
	if err := s.check(); err != nil {
		return nil, err
	}
	targets, err := a.targets(s, anyCount)
	if err != nil {
		return nil, err
	}
	if len(targets) > 1 {
		return nil, failf(exitUsage, "watch takes names of one namespace, or all with -A")
	}
	return &pb.WatchRequest{Namespace: targets[0].GetNamespace(), Names: targets[0].GetNames()}, nil
}

// watchEnded makes the end by Ctrl-C or --timeout, which for a watch is the
// normal one, what scripts expect.
func (a *app) watchEnded(err error) error {
	switch {
	case timedOut(err):
		return &failure{exit: exitTimeout, err: err}
	case errors.Is(err, context.Canceled):
		return &failure{exit: exitInterrupted}
	}
	return err
}

// watchPrinter prints events, a line or a document each.
type watchPrinter struct {
	app        *app
	namespaces bool
}

func (w *watchPrinter) print(u *update) error {
	switch {
	case u.lost != "":
		fmt.Fprintf(w.app.env.stderr, "%s; trying again\n", u.lost)
		return nil
	case u.resynced:
		fmt.Fprintln(w.app.env.stderr, "the daemon no longer has all changes since then: what follows is what is now")
		return nil
	case !w.app.human():
		return w.event(u.event)
	}
	var t table
	for _, row := range w.rows(u.event) {
		t.add(row...)
	}
	// Wide enough for what usually comes, so that lines stand under each other.
	t.widths = []int{8, 20, 22}
	t.write(w.app.env.stdout, w.app.color())
	return nil
}

// event writes one in a form for programs.
func (w *watchPrinter) event(e *pb.WatchResponse) error {
	v := view{items: []any{e}}
	switch x := e.GetEvent().(type) {
	case *pb.WatchResponse_Consumer:
		v.names = []string{keyOf(x.Consumer).String()}
	case *pb.WatchResponse_Deleted:
		v.names = []string{key{x.Deleted.GetNamespace(), x.Deleted.GetName()}.String()}
	}
	return w.app.print(v)
}

// rows are the lines for people; none for what has nothing to say to them.
func (w *watchPrinter) rows(e *pb.WatchResponse) [][]cell {
	now := w.app.env.now()
	line := func(k key, what cell, why string) [][]cell {
		name := k.name
		if w.namespaces {
			name = k.String()
		}
		return [][]cell{{text(now.Format("15:04:05")), text(name), what, text(why)}}
	}
	switch x := e.GetEvent().(type) {
	case *pb.WatchResponse_Consumer:
		k, state := keyOf(x.Consumer), stateCell(x.Consumer.GetStatus().GetState())
		if t := e.GetTransition(); t != nil {
			state.text = textform.ShortEnum(t.GetFrom()) + " -> " + textform.ShortEnum(t.GetTo())
			return line(k, state, joinReason(t.GetActor(), orElse(t.GetReason(), note(x.Consumer, now))))
		}
		return line(k, state, note(x.Consumer, now))
	case *pb.WatchResponse_Deleted:
		return line(key{x.Deleted.GetNamespace(), x.Deleted.GetName()}, painted(red, "deleted"), "")
	case *pb.WatchResponse_Receipt:
		r := x.Receipt
		return line(key{r.GetNamespace(), r.GetName()}, text("receipt"), receiptLine(r.GetName(), r)+" ("+r.GetId()+")")
	}
	return nil
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
