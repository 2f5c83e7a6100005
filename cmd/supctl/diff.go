package main

import (
	"context"
	"fmt"
	"io"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/spf13/cobra"
)

func newDiff(a *app) *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "diff -f FILE|FOLDER|-",
		Short: "Say what an apply would change: 0 nothing, 1 something, >1 an error",
		Long: `diff compares the files with the daemon's specs. For each field that differs it
shows both values and what applying it does: "hot" changes it while the consumer
runs, "restart" restarts that one consumer by a drain. A concurrency that an
operator has set with scale is shown too; an apply leaves it alone.`,
		Args: cobra.NoArgs,
		RunE: a.with(func(ctx context.Context, c *client, _ []string) error {
			differ, err := a.diff(ctx, c, files)
			switch {
			case exitOf(err) == exitGeneral:
				return &failure{exit: exitUsage, err: err}
			case differ:
				return &failure{exit: exitGeneral}
			}
			return err
		}),
	}
	filesFlag(cmd, &files)
	return cmd
}

// diff prints the differences and tells whether there are any.
func (a *app) diff(ctx context.Context, c *client, files []string) (bool, error) {
	s, err := a.readSpecs(files)
	if err != nil {
		return false, err
	}
	results, err := s.apply(ctx, c, &pb.ApplyRequest{Items: s.items(), ValidateOnly: true})
	if err != nil {
		return false, err
	}
	a.warnApplied(results)
	var differing []*pb.ApplyResult
	for _, r := range results {
		if r.GetChange() != pb.ApplyChange_APPLY_CHANGE_UNCHANGED {
			differing = append(differing, r)
		}
	}
	return len(differing) > 0, a.print(view{
		whole: &pb.ApplyResponse{Results: results},
		items: anys(results),
		names: names(differing, func(r *pb.ApplyResult) string { return keyOf(r.GetConsumer()).String() }),
		lines: func(w io.Writer) {
			for _, r := range results {
				a.writeDiff(w, r)
			}
		},
	})
}

func (a *app) writeDiff(w io.Writer, r *pb.ApplyResult) {
	created := r.GetChange() == pb.ApplyChange_APPLY_CHANGE_CREATED
	var t table
	for _, f := range r.GetFields() {
		if created {
			t.add(text("  "+f.GetPath()), painted(green, f.GetAfter()))
			continue
		}
		p := yellow
		if f.GetHot() {
			p = plain
		}
		t.add(text("  "+f.GetPath()), painted(red, orUnset(f.GetBefore())), text("->"), painted(green, orUnset(f.GetAfter())), painted(p, impact(f)))
	}
	over := r.GetConsumer().GetDesired().GetScale()
	if over == nil && len(t.rows) == 0 && !created {
		return
	}
	title := keyOf(r.GetConsumer()).String()
	if created {
		title += " (new)"
	}
	fmt.Fprintln(w, printable(title))
	t.write(w, a.color())
	if over != nil {
		fmt.Fprintf(w, "  scaled to %d by %s; apply leaves it, 'supctl scale %s --reset' ends it\n",
			over.GetConcurrency(), oneLine(over.GetActor()), keyOf(r.GetConsumer()))
	}
}

func orUnset(s string) string {
	if s == "" {
		return "(unset)"
	}
	return s
}
