package main

import (
	"context"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/spf13/cobra"
)

func newDelete(a *app) *cobra.Command {
	var force bool
	v := &verb{
		id: pb.Verb_VERB_DELETE,
		cmd: &cobra.Command{
			Use:   "delete NAME...",
			Short: "Remove stopped or failed consumers with their history",
			Long: `delete removes the spec, the desired state and the history of consumers that
are STOPPED or FAILED; in other states it is refused. --force kills first. The
broker keeps what it has: queues, streams and positions are not touched.`,
		},
		dangerous: func(s *selection) string {
			switch {
			case force:
				return "cuts handlers off and removes the consumers for good"
			case s.bulk():
				return "removes the consumers for good"
			}
			return ""
		},
		call: func(ctx context.Context, c *client, t *pb.Target, o *pb.VerbOptions) ([]*pb.VerbResult, error) {
			r, err := c.consumers.Delete(ctx, &pb.DeleteRequest{Target: t, Options: o, Force: force})
			return r.GetResults(), err
		},
	}
	cmd := a.command(v)
	cmd.Flags().BoolVar(&force, "force", false, "kill first; needs --yes")
	return cmd
}
