package main

import (
	"fmt"

	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
	"github.com/spf13/cobra"
)

func validateCommand() *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use: "validate", Short: "Check a configuration, and specs against it, without a daemon", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			drivers, byKind := newDrivers()
			d, err := loadConfig(o.config, byKind)
			if err != nil {
				return err
			}
			files, err := readSpecs(o.apply)
			if err != nil {
				return err
			}
			specs, err := spec.Load(files, newParts(d, drivers, byKind).env(d))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "valid: %d connections, %d consumers\n", len(d.Connections), len(specs))
			return err
		},
	}
	c.Flags().StringVar(&o.config, "config", "", "configuration `file`")
	c.Flags().StringSliceVar(&o.apply, "apply", nil, "`file or folder` of consumer specs")
	return c
}
