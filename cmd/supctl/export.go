package main

import (
	"context"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/spf13/cobra"
)

func newExport(a *app) *cobra.Command {
	var s selection
	cmd := &cobra.Command{
		Use:   "export [NAME...]",
		Short: "Print specs so that they can be applied again",
		Long: `export prints the specs as they were applied, one YAML document each: those
named, those of a selector, or all of the namespace.`,
		Example: `  supctl export -A > consumers.yaml`,
		RunE: a.with(func(ctx context.Context, c *client, args []string) error {
			if s.names = args; len(args) == 0 && s.selector == "" {
				s.all = true
			}
			list, err := a.resolve(ctx, c, &s)
			if err != nil {
				return err
			}
			return a.printSpecs(list)
		}),
		ValidArgsFunction: a.completeNames,
	}
	cmd.Flags().StringVarP(&s.selector, "selector", "l", "", "only consumers with labels like this `SELECTOR`")
	s.namespaceFlag(cmd)
	return cmd
}

// printSpecs writes specs as a file for apply; as JSON, several are a list,
// which is for other programs.
func (a *app) printSpecs(list []*pb.Consumer) error {
	v := view{names: names(list, func(c *pb.Consumer) string { return keyOf(c).String() }), spec: true}
	for _, c := range list {
		v.items = append(v.items, c.GetSpec())
	}
	if a.human() {
		return a.printAs(outYAML, v)
	}
	return a.print(v)
}
