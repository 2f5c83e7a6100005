package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
	"github.com/spf13/cobra"
)

func newReceipt(a *app) *cobra.Command {
	var limit int32
	cmd := &cobra.Command{
		Use:   "receipt NAME [ID]",
		Short: "Show what became of the work when a consumer paused, drained, stopped or was killed",
		Long: `receipt lists the receipts of a consumer, newest first, or shows one. A receipt
is CLEAN when nothing was cut off, every ack is proven to have arrived, and
nothing that was handled will be delivered again.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: a.with(func(ctx context.Context, c *client, args []string) error {
			k, err := a.key(args[0])
			if err != nil {
				return err
			}
			req := &pb.ListReceiptsRequest{Namespace: k.namespace, Name: k.name, Limit: limit}
			if len(args) == 2 {
				req.Id = args[1]
			}
			r, err := c.consumers.ListReceipts(ctx, req)
			if err != nil {
				return c.suggest(ctx, k, err)
			}
			if req.GetId() == "" {
				return a.printReceipts(r)
			}
			if len(r.GetReceipts()) == 0 {
				return failf(exitNotFound, "no receipt %s of %s: see 'supctl receipt %s'", req.GetId(), k.name, args[0])
			}
			return a.printReceipt(r.GetReceipts()[0])
		}),
		ValidArgsFunction: a.completeReceipt,
	}
	cmd.Flags().Int32Var(&limit, "limit", 20, "`N` at most")
	return cmd
}

func (a *app) printReceipts(r *pb.ListReceiptsResponse) error {
	list, now := r.GetReceipts(), a.env.now()
	return a.print(view{
		whole: r, items: anys(list), names: names(list, (*pb.Receipt).GetId),
		table: func(bool) table {
			t := table{titles: []string{"ID", "AGE", "VERB", "OUTCOME", "TOOK", "ENDED", "MESSAGES", "ACTOR", "REASON"}}
			for _, x := range list {
				t.add(text(x.GetId()), text(age(x.GetStarted().AsTime(), now)), text(verbWord(x.GetVerb())), outcomeCell(x.GetOutcome()),
					text(seconds(x.GetDuration().AsDuration())), stateCell(x.GetState()), text(strings.Join(tally(x), ", ")),
					text(x.GetActor()), text(x.GetReason()))
			}
			return t
		},
	})
}

func outcomeCell(o pb.ReceiptOutcome) cell {
	p := red
	switch o {
	case pb.ReceiptOutcome_RECEIPT_OUTCOME_CLEAN:
		p = green
	case pb.ReceiptOutcome_RECEIPT_OUTCOME_OVERTAKEN:
		p = yellow
	}
	return painted(p, textform.ShortEnum(o))
}

func (a *app) printReceipt(r *pb.Receipt) error {
	return a.print(view{
		items: []any{r}, names: []string{r.GetId()},
		lines: func(w io.Writer) {
			var f fields
			f.add("Receipt", r.GetId())
			f.add("Consumer", key{r.GetNamespace(), r.GetName()}.String())
			f.add("Verb", joinReason(verbWord(r.GetVerb())+" by "+r.GetActor(), r.GetReason()))
			f.add("Started", since(r.GetStarted(), a.env.now()))
			f.add("Took", r.GetDuration().AsDuration().String())
			f.add("Outcome", textform.ShortEnum(r.GetOutcome()))
			f.add("Ended", textform.ShortEnum(r.GetState()))
			f.add("Messages", strings.Join(tally(r), ", "))
			f.add("Release", textform.ShortEnum(r.GetRelease()))
			section(w, a.color(), "", f)
			for _, m := range r.GetAbandoned() {
				fmt.Fprintf(w, "  abandoned %s, taken %s before\n", oneLine(m.GetId()), textform.FormatDuration(m.GetAge().AsDuration()))
			}
		},
	})
}
