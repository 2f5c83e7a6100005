package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/spf13/cobra"
)

func newApply(a *app) *cobra.Command {
	var files []string
	var reason, requestID, etag string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "apply -f FILE|FOLDER|-",
		Short: "Create or update consumers from files",
		Long: `apply makes the daemon's specs those of the files: all of them, or none when
anything is wrong. Labels, concurrency, retry, timeouts and limits change while
the consumer runs; any other change restarts that one consumer by a drain. What
operators asked for stays: a paused consumer stays paused.`,
		Args: cobra.NoArgs,
		RunE: a.with(func(ctx context.Context, c *client, _ []string) error {
			s, err := a.readSpecs(files)
			if err != nil {
				return err
			}
			items := s.items()
			if etag != "" {
				if len(items) != 1 {
					return failf(exitUsage, "--etag goes with a single consumer; the files hold %d", len(items))
				}
				items[0].Etag = etag
			}
			results, err := s.apply(ctx, c, &pb.ApplyRequest{Items: items, ValidateOnly: dryRun, Reason: reason, RequestId: requestID})
			if err != nil {
				return err
			}
			return a.printApplied(results, dryRun)
		}),
	}
	filesFlag(cmd, &files)
	f := cmd.Flags()
	f.StringVar(&reason, "reason", "", "`TEXT` that says why; shown to whoever looks")
	f.StringVar(&requestID, "request-id", "", "a repeated request with the same `ID` gets the first one's reply")
	f.StringVar(&etag, "etag", "", "refuse when the consumer changed since it had this `ETAG`; new: refuse when it exists")
	f.BoolVar(&dryRun, "dry-run", false, "say what would change and change nothing")
	return cmd
}

func filesFlag(cmd *cobra.Command, files *[]string) {
	cmd.Flags().StringArrayVarP(files, "file", "f", nil, "`FILE` or folder with specs (.yaml, .yml, .json), or - for stdin; may be repeated")
	must(cmd.MarkFlagFilename("file", "yaml", "yml", "json"))
}

func (a *app) printApplied(results []*pb.ApplyResult, dryRun bool) error {
	a.warnApplied(results)
	return a.print(view{
		whole: &pb.ApplyResponse{Results: results},
		items: anys(results),
		names: names(results, func(r *pb.ApplyResult) string { return keyOf(r.GetConsumer()).String() }),
		lines: func(w io.Writer) {
			for _, r := range results {
				fmt.Fprintln(w, appliedLine(r, dryRun))
			}
		},
	})
}

func (a *app) warnApplied(results []*pb.ApplyResult) {
	for _, r := range results {
		for _, s := range r.GetWarnings() {
			fmt.Fprintf(a.env.stderr, "warning: %s: %s\n", keyOf(r.GetConsumer()), oneLine(s))
		}
	}
}

// appliedLine is "shop/orders updated: concurrency (hot), source.nats.stream
// (restart)".
func appliedLine(r *pb.ApplyResult, dryRun bool) string {
	var word string
	switch r.GetChange() {
	case pb.ApplyChange_APPLY_CHANGE_CREATED:
		word = "created"
	case pb.ApplyChange_APPLY_CHANGE_UPDATED:
		word = "updated"
	default:
		return keyOf(r.GetConsumer()).String() + " unchanged"
	}
	if dryRun {
		word = "would be " + word
	}
	var fields []string
	for _, f := range r.GetFields() {
		fields = append(fields, fmt.Sprintf("%s (%s)", f.GetPath(), impact(f)))
	}
	return printable(joinReason(fmt.Sprintf("%s %s", keyOf(r.GetConsumer()), word), strings.Join(fields, ", ")))
}

// impact is what a change of a field does to a running consumer.
func impact(f *pb.FieldChange) string {
	if f.GetHot() {
		return "hot"
	}
	return "restart"
}
