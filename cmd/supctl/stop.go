package main

import (
	"context"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/spf13/cobra"
)

func newStop(a *app) *cobra.Command {
	var l limits
	v := &verb{
		id: pb.Verb_VERB_STOP,
		cmd: &cobra.Command{
			Use:   "stop NAME...",
			Short: "Give back what has not started, finish what runs, then stop",
			Long: `stop closes the intake and gives back at once what has not started. Running
handlers finish until the soft limit, then they are cancelled, and cut off at
the hard limit. Resources are released; the position at the broker is kept.`,
		},
		waits: true,
		call: func(ctx context.Context, c *client, t *pb.Target, o *pb.VerbOptions) ([]*pb.VerbResult, error) {
			r, err := c.consumers.Stop(ctx, &pb.StopRequest{Target: t, Options: o, Soft: l.softLimit(), Hard: l.hardLimit()})
			return r.GetResults(), err
		},
	}
	cmd := a.command(v)
	l.flags(cmd)
	return cmd
}
