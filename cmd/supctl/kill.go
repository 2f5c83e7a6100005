package main

import (
	"context"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/spf13/cobra"
)

func newKill(a *app) *cobra.Command {
	return a.command(&verb{
		id: pb.Verb_VERB_KILL,
		cmd: &cobra.Command{
			Use:   "kill NAME... --yes",
			Short: "Cut off at once: STOPPED within 2s whatever handlers and broker do",
			Long: `kill cancels all handlers, settles what finishes within half a second and cuts
off the rest. The broker delivers again what was cut off, so it may be handled
twice. The command returns when the consumer is STOPPED.`,
		},
		dangerous: func(*selection) string {
			return "cuts handlers off, and what they held is delivered again"
		},
		call: func(ctx context.Context, c *client, t *pb.Target, o *pb.VerbOptions) ([]*pb.VerbResult, error) {
			r, err := c.consumers.Kill(ctx, &pb.KillRequest{Target: t, Options: o})
			return r.GetResults(), err
		},
	})
}
