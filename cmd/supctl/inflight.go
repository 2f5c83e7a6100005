package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
	"github.com/spf13/cobra"
)

func newInFlight(a *app) *cobra.Command {
	var older time.Duration
	var limit int32
	var reason string
	cmd := &cobra.Command{
		Use:   "inflight NAME [cancel ID...]",
		Short: "List the messages taken and not settled, oldest first; cancel one",
		Long: `inflight lists what a consumer has taken and not settled. "inflight NAME cancel
ID" cancels the handler's context of that one message: no attempt is counted,
and it is tried again later.`,
		Example: `  supctl inflight orders --older-than 30s
  supctl inflight orders cancel ORDERS:4711`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 || (len(args) > 2 && args[1] == "cancel") {
				return nil
			}
			return errors.New("write 'inflight NAME' or 'inflight NAME cancel ID...'")
		},
		RunE: a.with(func(ctx context.Context, c *client, args []string) error {
			k, err := a.key(args[0])
			if err != nil {
				return err
			}
			if len(args) > 1 {
				return a.cancelInFlight(ctx, c, k, args[2:], reason)
			}
			return c.suggest(ctx, k, a.listInFlight(ctx, c, k, older, limit))
		}),
		ValidArgsFunction: a.completeInFlight,
	}
	cmd.Flags().DurationVar(&older, "older-than", 0, "only messages taken at least this `DURATION` ago")
	cmd.Flags().Int32Var(&limit, "limit", 100, "`N` at most")
	cmd.Flags().StringVar(&reason, "reason", "", "with cancel: `TEXT` that says why")
	return cmd
}

func (a *app) listInFlight(ctx context.Context, c *client, k key, older time.Duration, limit int32) error {
	r, err := c.consumers.ListInFlight(ctx, &pb.ListInFlightRequest{Namespace: k.namespace, Name: k.name, OlderThan: optional(older), Limit: limit})
	if err != nil {
		return err
	}
	now := a.env.now()
	err = a.print(view{
		whole: r, items: anys(r.GetMessages()),
		names: names(r.GetMessages(), (*pb.InFlightMessage).GetId),
		table: func(bool) table {
			t := table{titles: []string{"ID", "AGE", "ATTEMPT", "LANE", "STATE", "SIZE", "LAST ERROR"}}
			for _, m := range r.GetMessages() {
				t.add(text(m.GetId()), text(textform.FormatDuration(m.GetAge().AsDuration())), text(strconv.Itoa(int(m.GetAttempt()))),
					text(orDash(m.GetLane())), text(messageState(m, now)), text(textform.FormatSize(m.GetBytes())), text(m.GetLastError()))
			}
			return t
		},
	})
	if more := int(r.GetTotal()) - len(r.GetMessages()); err == nil && more > 0 && a.human() {
		fmt.Fprintf(a.env.stderr, "%d of %d in flight are shown\n", len(r.GetMessages()), r.GetTotal())
	}
	return err
}

// messageState is running, waiting for a slot, or waiting for its next attempt.
func messageState(m *pb.InFlightMessage, now time.Time) string {
	switch {
	case m.GetRunning():
		return "running"
	case m.GetNextAttempt() != nil:
		return "retry in " + textform.FormatDuration(max(0, m.GetNextAttempt().AsTime().Sub(now)))
	}
	return "waiting"
}

// canceled is one cancelled message in JSON and YAML.
type canceled struct {
	ID         string `yaml:"id" json:"id"`
	WasRunning bool   `yaml:"was_running" json:"was_running"`
}

func (a *app) cancelInFlight(ctx context.Context, c *client, k key, ids []string, reason string) error {
	var done []canceled
	var errs []error
	for _, id := range ids {
		r, err := c.consumers.CancelInFlight(ctx, &pb.CancelInFlightRequest{
			Namespace: k.namespace, Name: k.name, MessageId: id,
			Options: &pb.VerbOptions{Reason: reason, RequestId: rand.Text()},
		})
		if err != nil {
			errs = append(errs, err)
			continue
		}
		done = append(done, canceled{id, r.GetWasRunning()})
	}
	err := a.print(view{
		items: anys(done),
		names: names(done, func(d canceled) string { return d.ID }),
		lines: func(w io.Writer) {
			for _, d := range done {
				what := "is in no handler: nothing was to cancel"
				if d.WasRunning {
					what = "its handler is cancelled"
				}
				fmt.Fprintf(w, "%s %s\n", oneLine(d.ID), what)
			}
		},
	})
	if err != nil {
		return err
	}
	return a.together(errs, len(ids))
}
