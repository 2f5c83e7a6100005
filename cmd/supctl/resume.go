package main

import (
	"context"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/spf13/cobra"
)

func newResume(a *app) *cobra.Command {
	var hold string
	var all bool
	v := &verb{
		id: pb.Verb_VERB_RESUME,
		cmd: &cobra.Command{
			Use:   "resume NAME...",
			Short: "Remove a hold; without any left the consumer runs again",
			Long: `resume removes the hold "operator", or the one that --hold names. Processing
goes on when no hold is left; what still holds is named in the reply.`,
		},
		call: func(ctx context.Context, c *client, t *pb.Target, o *pb.VerbOptions) ([]*pb.VerbResult, error) {
			r, err := c.consumers.Resume(ctx, &pb.ResumeRequest{Target: t, Options: o, Hold: hold, AllHolds: all})
			return r.GetResults(), err
		},
	}
	cmd := a.command(v)
	cmd.Flags().StringVar(&hold, "hold", "", "`NAME` of the hold to remove (default \"operator\")")
	cmd.Flags().BoolVar(&all, "all-holds", false, "remove every hold")
	cmd.MarkFlagsMutuallyExclusive("hold", "all-holds")
	return cmd
}
