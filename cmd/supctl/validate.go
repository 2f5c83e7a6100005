package main

import (
	"context"
	"fmt"
	"io"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/spf13/cobra"
)

func newValidate(a *app) *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use:   "validate -f FILE|FOLDER|-",
		Short: "Check specs against the daemon and change nothing",
		Long: `validate has the daemon check the files as an apply would: it knows the
connections, brokers and handlers. All that is wrong is told at once, with file
and line. Without a daemon, 'supervisord validate' checks against its
configuration file.`,
		Args: cobra.NoArgs,
		RunE: a.with(func(ctx context.Context, c *client, _ []string) error {
			s, err := a.readSpecs(files)
			if err != nil {
				return err
			}
			results, err := s.apply(ctx, c, &pb.ApplyRequest{Items: s.items(), ValidateOnly: true})
			if err != nil {
				return err
			}
			a.warnApplied(results)
			return a.print(view{
				whole: &pb.ApplyResponse{Results: results},
				items: anys(results),
				names: names(results, func(r *pb.ApplyResult) string { return keyOf(r.GetConsumer()).String() }),
				lines: func(w io.Writer) {
					fmt.Fprintf(w, "%d %s in %d %s: valid\n", len(results), plural(len(results), "consumer"), s.files, plural(s.files, "file"))
				},
			})
		}),
	}
	filesFlag(cmd, &files)
	return cmd
}
