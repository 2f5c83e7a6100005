package daemon

import (
	"fmt"

	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
	"github.com/spf13/cobra"
)

func (p Program) validateCommand() *cobra.Command {
	o := &Options{}
	c := &cobra.Command{
		Use: "validate", Short: "Check a configuration, and specs against it, without a daemon", Args: NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := p.loadConfig(o.Config)
			if err != nil {
				return err
			}
			files, err := ReadSpecs(o.Apply)
			if err != nil {
				return err
			}
			specs, err := spec.Load(files, p.Env(d))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "valid: %d connections, %d consumers\n", len(d.Connections), len(specs))
			return err
		},
	}
	c.Flags().StringVar(&o.Config, "config", "", "configuration `file`")
	c.Flags().StringSliceVar(&o.Apply, "apply", nil, "`file or folder` of consumer specs")
	return c
}
