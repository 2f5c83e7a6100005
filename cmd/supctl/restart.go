package main

import (
	"context"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/spf13/cobra"
)

func newRestart(a *app) *cobra.Command {
	var l limits
	v := &verb{
		id: pb.Verb_VERB_RESTART,
		cmd: &cobra.Command{
			Use:   "restart NAME...",
			Short: "Drain and start again; holds stand",
			Long: `restart drains the consumer and starts it again with its spec as it is. A
consumer that is held ends PAUSED. The command waits until it runs again.`,
		},
		waits: true,
		call: func(ctx context.Context, c *client, t *pb.Target, o *pb.VerbOptions) ([]*pb.VerbResult, error) {
			r, err := c.consumers.Restart(ctx, &pb.RestartRequest{Target: t, Options: o, Soft: l.softLimit(), Hard: l.hardLimit()})
			return r.GetResults(), err
		},
	}
	cmd := a.command(v)
	l.flags(cmd)
	return cmd
}
