package main

import (
	"context"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/spf13/cobra"
)

func newScale(a *app) *cobra.Command {
	var to int32
	var back bool
	v := &verb{
		id: pb.Verb_VERB_SCALE,
		cmd: &cobra.Command{
			Use:   "scale NAME... --concurrency N | --reset",
			Short: "Change how many handlers run at the same time",
			Long: `scale sets a concurrency that overrides the spec's until --reset. Growing takes
effect at once; shrinking waits for handlers to finish and cuts none off.`,
		},
		call: func(ctx context.Context, c *client, t *pb.Target, o *pb.VerbOptions) ([]*pb.VerbResult, error) {
			req := &pb.ScaleRequest{Target: t, Options: o, To: &pb.ScaleRequest_Concurrency{Concurrency: to}}
			if back {
				req.To = &pb.ScaleRequest_Reset_{Reset_: true}
			}
			r, err := c.consumers.Scale(ctx, req)
			return r.GetResults(), err
		},
	}
	cmd := a.command(v)
	cmd.Flags().Int32Var(&to, "concurrency", 0, "`N` handlers at the same time")
	cmd.Flags().BoolVar(&back, "reset", false, "back to the spec's")
	cmd.MarkFlagsMutuallyExclusive("concurrency", "reset")
	cmd.MarkFlagsOneRequired("concurrency", "reset")
	return cmd
}
