package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/seed-111f5b8e/supervisord/supervisor"
	"github.com/spf13/cobra"
)

// version is set by the build.
var version = "dev" //nolint:gochecknoglobals // -ldflags needs a variable

// errUsage marks what the command line got wrong.
var errUsage = errors.New("usage")

// exitCode: 0 clean, 1 the hard limit fired or something failed, 2 usage.
func exitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUsage):
		return 2
	}
	return 1
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	root := &cobra.Command{
		Use:   "supervisord",
		Short: "Hosts many named message consumers and moves each through its life",
		Long: "supervisord hosts many named message consumers in one process. Each can be paused,\n" +
			"drained, resumed, scaled, stopped or killed with supctl while the others go on.",
		SilenceUsage: true, SilenceErrors: true, CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w: %w; see '%s --help'", errUsage, err, c.CommandPath())
	})
	root.AddCommand(serveCommand(), validateCommand(), demoCommand(), versionCommand())
	return root.ExecuteContext(ctx)
}

// noArgs refuses arguments in words that say what to do.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%w: %q is not expected here; see '%s --help'", errUsage, args[0], c.CommandPath())
	}
	return nil
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), "supervisord", version)
			return err
		},
	}
}

// forced says whether err means that work was abandoned.
func forced(err error) bool { return errors.Is(err, supervisor.ErrHardLimit) }
