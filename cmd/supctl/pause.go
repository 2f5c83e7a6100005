package main

import (
	"context"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func newPause(a *app) *cobra.Command {
	var hold, until string
	var length time.Duration
	v := &verb{
		id: pb.Verb_VERB_PAUSE,
		cmd: &cobra.Command{
			Use:   "pause NAME...",
			Short: "Stop handling until a resume; the place at the broker is kept",
			Long: `pause sets a hold. From then on no handler call starts; running ones finish,
and what has not started is given back. The hold survives a lost connection, a
restart of the daemon and an apply, and ends by a resume or when its time comes.
A stopped or failed consumer takes the hold too and stays paused when started.`,
			Example: `  supctl pause orders --reason "ERP is down"
  supctl pause -l team=payments --for 30m
  supctl pause orders --until 15:30`,
		},
		waits: true,
		call: func(ctx context.Context, c *client, t *pb.Target, o *pb.VerbOptions) ([]*pb.VerbResult, error) {
			req := &pb.PauseRequest{Target: t, Options: o, Hold: hold}
			switch {
			case until != "":
				at, err := parseUntil(until, a.env.now())
				if err != nil {
					return nil, err
				}
				req.End = &pb.PauseRequest_Until{Until: timestamppb.New(at)}
			case length < 0:
				return nil, failf(exitUsage, "--for %s is in the past", length)
			case length > 0:
				req.End = &pb.PauseRequest_For{For: durationpb.New(length)}
			}
			r, err := c.consumers.Pause(ctx, req)
			return r.GetResults(), err
		},
	}
	cmd := a.command(v)
	cmd.Flags().DurationVar(&length, "for", 0, "resume by itself after this `DURATION`: 30m, 1h30m")
	cmd.Flags().StringVar(&until, "until", "", "resume by itself at this `TIME`: \"15:30\", \"2026-12-24 18:00\" or RFC 3339")
	cmd.Flags().StringVar(&hold, "hold", "", "`NAME` of the hold (default \"operator\", which all operators share)")
	cmd.MarkFlagsMutuallyExclusive("for", "until")
	return cmd
}

// parseUntil reads a time to come. One without a zone is the user's own; one
// without a date is the next time that the clock shows it.
func parseUntil(s string, now time.Time) (time.Time, error) {
	at, ok := parseMoment(s, now.Location())
	if !ok {
		t, err := time.Parse("15:04", s)
		if err != nil {
			return at, failf(exitUsage, `--until %q is not a time: write "15:30", "2026-12-24 18:00" or RFC 3339 like "2026-12-24T18:00:00Z"`, s)
		}
		day := func(d int) time.Time {
			return time.Date(now.Year(), now.Month(), now.Day()+d, t.Hour(), t.Minute(), 0, 0, now.Location())
		}
		if at = day(0); !at.After(now) {
			at = day(1)
		}
	}
	if !at.After(now) {
		return at, failf(exitUsage, "--until %s is in the past", at.Format(time.RFC3339))
	}
	return at, nil
}

// parseMoment reads a time with its date; without a zone it is local.
func parseMoment(s string, local *time.Location) (time.Time, bool) {
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return at, true
	}
	for _, layout := range []string{time.DateTime, "2006-01-02T15:04:05", "2006-01-02 15:04", "2006-01-02T15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, s, local); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}
