package main

import (
	"context"
	"fmt"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/spf13/cobra"
)

func newGet(a *app) *cobra.Command {
	var s selection
	var spec bool
	cmd := &cobra.Command{
		Use:   "get NAME...",
		Short: "Show consumers; -o yaml shows all of them, --spec what to apply again",
		RunE: a.with(func(ctx context.Context, c *client, args []string) error {
			s.names = args
			list, missing := a.resolve(ctx, c, &s)
			if len(list) == 0 && (missing != nil || a.human()) {
				return a.noneOf(missing)
			}
			if err := a.show(list, spec, len(args) == 1, s.allNamespaces); err != nil {
				return err
			}
			return missing
		}),
		ValidArgsFunction: a.completeNames,
	}
	s.flags(cmd)
	cmd.Flags().BoolVar(&spec, "spec", false, "only the specs, as a file for apply")
	return cmd
}

// noneOf ends a command that found no consumer: with the reason, or telling
// that the selector is nobody's.
func (a *app) noneOf(reason error) error {
	if reason == nil {
		fmt.Fprintln(a.env.stderr, "no consumer matches")
	}
	return reason
}

func (a *app) show(list []*pb.Consumer, spec, single, namespaces bool) error {
	if spec {
		return a.printSpecs(list)
	}
	v := a.consumersView(list, namespaces)
	if single {
		v = v.single()
	}
	return a.print(v)
}
