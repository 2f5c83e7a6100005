package main

import (
	"context"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/spf13/cobra"
)

func newStart(a *app) *cobra.Command {
	return a.command(&verb{
		id: pb.Verb_VERB_START,
		cmd: &cobra.Command{
			Use:   "start NAME...",
			Short: "Start stopped or failed consumers; retry at once in BACKOFF",
			Long: `start makes RUNNING the desired state. A consumer that is held ends PAUSED:
start removes no hold. It ends a drain that is under way.`,
		},
		call: func(ctx context.Context, c *client, t *pb.Target, o *pb.VerbOptions) ([]*pb.VerbResult, error) {
			r, err := c.consumers.Start(ctx, &pb.StartRequest{Target: t, Options: o})
			return r.GetResults(), err
		},
	})
}
