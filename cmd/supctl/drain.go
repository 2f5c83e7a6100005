package main

import (
	"context"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"
)

func newDrain(a *app) *cobra.Command {
	var l limits
	var backlog time.Duration
	mode := choice{value: "inflight", of: []string{"inflight", "backlog"}}
	then := choice{value: "stopped", of: []string{"stopped", "paused"}}
	v := &verb{
		id: pb.Verb_VERB_DRAIN,
		cmd: &cobra.Command{
			Use:   "drain NAME...",
			Short: "Handle what was taken, then stop",
			Long: `drain closes the intake and still handles what was taken, until the soft limit;
then handlers are cancelled, and cut off at the hard limit. With --mode backlog
it first consumes what waits on the broker now, for at most --backlog-timeout.`,
			Example: `  supctl drain orders --soft 1m --hard 90s
  supctl drain orders --mode backlog --backlog-timeout 10m --then paused`,
		},
		waits: true,
		call: func(ctx context.Context, c *client, t *pb.Target, o *pb.VerbOptions) ([]*pb.VerbResult, error) {
			req := &pb.DrainRequest{Target: t, Options: o, Soft: l.softLimit(), Hard: l.hardLimit()}
			if mode.value == "backlog" {
				if backlog <= 0 {
					return nil, failf(exitUsage, "--mode backlog needs --backlog-timeout: how long may it consume what waits on the broker?")
				}
				req.Mode, req.BacklogTimeout = pb.DrainMode_DRAIN_MODE_BACKLOG, durationpb.New(backlog)
			} else if backlog != 0 {
				return nil, failf(exitUsage, "--backlog-timeout goes with --mode backlog")
			}
			if then.value == "paused" {
				req.Then = pb.DrainThen_DRAIN_THEN_PAUSED
			}
			r, err := c.consumers.Drain(ctx, req)
			return r.GetResults(), err
		},
	}
	cmd := a.command(v)
	l.flags(cmd)
	f := cmd.Flags()
	f.Var(&mode, "mode", "inflight: finish what was taken; backlog: first consume what waits on the broker")
	f.DurationVar(&backlog, "backlog-timeout", 0, "with --mode backlog: how long consuming may take, as a `DURATION`")
	f.Var(&then, "then", "how the consumer ends: stopped or paused")
	must(cmd.RegisterFlagCompletionFunc("mode", cobra.FixedCompletions(mode.of, cobra.ShellCompDirectiveNoFileComp)))
	must(cmd.RegisterFlagCompletionFunc("then", cobra.FixedCompletions(then.of, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// limits are the flags --soft and --hard.
type limits struct{ soft, hard time.Duration }

func (l *limits) flags(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&l.soft, "soft", 0, "how long handlers may finish, as a `DURATION` (default: the spec's)")
	cmd.Flags().DurationVar(&l.hard, "hard", 0, "`DURATION` after which handlers are cut off, counted like --soft from the closing of the intake (default: the spec's)")
}

func (l *limits) softLimit() *durationpb.Duration { return optional(l.soft) }
func (l *limits) hardLimit() *durationpb.Duration { return optional(l.hard) }

func optional(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
