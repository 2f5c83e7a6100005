package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func newSeek(a *app) *cobra.Command {
	var m mutation
	var where string
	cmd := &cobra.Command{
		Use:   "seek NAME --to earliest|latest|previous|TIME|PARTITION:OFFSET,...",
		Short: "Move the committed positions of a stopped consumer",
		Long: `seek moves where a consumer goes on, on a broker that keeps one position for each
partition (Kafka). The consumer must be STOPPED or FAILED. The positions before
are kept: "--to previous" takes the last seek back.

--to takes
  earliest            the first message that is kept
  latest              behind the last message
  previous            where the last seek found it
  a time              the first message published then or later:
                      "2026-12-24 18:00", RFC 3339, or "-2h" for two hours ago
  PARTITION:OFFSET    "3:4711", "orders/3:4711", several with commas; the offset
                      "none" removes what is committed, so that the consumer
                      begins where its spec says`,
		Example: `  supctl stop orders && supctl seek orders --to -2h --dry-run
  supctl seek orders --to 0:4711,1:4630 --reason "bad deploy at 14:00"
  supctl seek orders --to previous`,
		Args: cobra.ExactArgs(1),
		RunE: a.with(func(ctx context.Context, c *client, args []string) error {
			k, err := a.key(args[0])
			if err != nil {
				return err
			}
			req := &pb.SeekRequest{Namespace: k.namespace, Name: k.name, Options: m.options()}
			if err := parseSeek(where, a.env.now(), req); err != nil {
				return err
			}
			r, err := c.consumers.Seek(ctx, req)
			if err != nil {
				return c.suggest(ctx, k, err)
			}
			return a.printSeek(k, r, m.dryRun)
		}),
		ValidArgsFunction: a.completeNames,
	}
	m.flags(cmd.Flags())
	cmd.Flags().StringVar(&where, "to", "", "`PLACE`: see above")
	_ = cmd.MarkFlagRequired("to") // it is there
	return cmd
}

// parseSeek reads --to. What looks like a partition and an offset is one: a time
// needs its date.
func parseSeek(s string, now time.Time, r *pb.SeekRequest) error {
	if place, ok := map[string]pb.SeekTo{
		"earliest": pb.SeekTo_SEEK_TO_EARLIEST, "latest": pb.SeekTo_SEEK_TO_LATEST, "previous": pb.SeekTo_SEEK_TO_PREVIOUS,
	}[strings.ToLower(s)]; ok {
		r.To = &pb.SeekRequest_Place{Place: place}
		return nil
	}
	if ps, ok := parsePositions(s); ok {
		r.To = &pb.SeekRequest_Positions{Positions: &pb.Positions{Positions: ps}}
		return nil
	}
	at, ok := parsePast(s, now)
	switch {
	case !ok:
		return failf(exitUsage, `--to %q is no place to seek to: write earliest, latest, previous, PARTITION:OFFSET like "3:4711", `+
			`a time like "2026-12-24 18:00", or "-2h"`, s)
	case at.After(now):
		return failf(exitUsage, "--to %s is in the future: \"latest\" is behind the last message", at.Format(time.RFC3339))
	}
	r.To = &pb.SeekRequest_Time{Time: timestamppb.New(at)}
	return nil
}

func parsePositions(s string) ([]*pb.Position, bool) {
	var out []*pb.Position
	for part := range strings.SplitSeq(s, ",") {
		i := strings.LastIndexByte(part, ':')
		if i <= 0 {
			return nil, false
		}
		origin, offset := strings.TrimSpace(part[:i]), strings.TrimSpace(part[i+1:])
		_, err := strconv.ParseUint(origin[strings.LastIndexByte(origin, '/')+1:], 10, 31)
		at := int64(-1)
		if err == nil && offset != "none" {
			at, err = strconv.ParseInt(offset, 10, 64)
		}
		if err != nil || offset != "none" && at < 0 {
			return nil, false
		}
		out = append(out, &pb.Position{Origin: origin, Position: at})
	}
	return out, true
}

// parsePast reads a moment: with its date, or as a negative duration from now.
func parsePast(s string, now time.Time) (time.Time, bool) {
	if d, err := time.ParseDuration(s); err == nil && d < 0 {
		return now.Add(d), true
	}
	return parseMoment(s, now.Location())
}

func (a *app) printSeek(k key, r *pb.SeekResponse, dry bool) error {
	moved := "moved"
	if dry {
		moved = "would be moved"
	}
	return a.print(view{
		whole: r, items: anys(r.GetChanges()),
		names: names(r.GetChanges(), (*pb.PositionChange).GetOrigin),
		lines: func(w io.Writer) {
			if len(r.GetChanges()) == 0 {
				fmt.Fprintf(w, "%s unchanged: its positions are there already\n", oneLine(k.String()))
				return
			}
			for _, ch := range r.GetChanges() {
				fmt.Fprintf(w, "%s %s from %s to %s%s\n", oneLine(ch.GetOrigin()), moved, position(ch.GetBefore()), position(ch.GetAfter()), crossed(ch))
			}
		},
	})
}

func position(at int64) string {
	if at < 0 {
		return "none"
	}
	return strconv.FormatInt(at, 10)
}

// crossed says what a move means for the messages between.
func crossed(ch *pb.PositionChange) string {
	d := ch.GetAfter() - ch.GetBefore()
	switch {
	case ch.GetBefore() < 0 || ch.GetAfter() < 0:
		return ""
	case d > 0:
		return fmt.Sprintf(" (%d offsets are skipped)", d)
	}
	return fmt.Sprintf(" (%d offsets come again)", -d)
}
