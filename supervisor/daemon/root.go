// Package daemon is the command line of a supervisord: flags, signals, wiring.
// A program of one's own is a main that names its drivers and handlers:
//
//	err := daemon.Program{
//		Version:  "1.0",
//		Drivers:  []brokers.Driver{nats.Driver{}},
//		Handlers: map[string]supervisor.Handler{"resize": resize},
//	}.Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
//	os.Exit(daemon.ExitCode(err))
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"github.com/spf13/cobra"
)

// errUsage marks what the command line got wrong.
var errUsage = errors.New("usage")

// Program is a supervisord: what it is made of.
type Program struct {
	// Name is the command's; default "supervisord".
	Name string
	// Version; default that of the main module in the build.
	Version string
	Drivers []brokers.Driver
	// Handlers are what specs name as handler.go.
	Handlers map[string]supervisor.Handler
	// More are commands beside serve, validate and version.
	More []*cobra.Command
}

// ExitCode of what Run returned: 0 clean; 1 the hard limit fired, or something
// failed; 2 the command line is wrong.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUsage):
		return 2
	}
	return 1
}

// Run carries out a command line. It blocks until the daemon has ended.
func (p Program) Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if p.Name == "" {
		p.Name = "supervisord"
	}
	if p.Version == "" {
		p.Version = builtFrom()
	}
	root := &cobra.Command{
		Use:   p.Name,
		Short: "Hosts many named message consumers and moves each through its life",
		Long: p.Name + " hosts many named message consumers in one process. Each can be paused,\n" +
			"drained, resumed, scaled, stopped or killed with supctl while the others go on.",
		SilenceUsage: true, SilenceErrors: true, CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w: %w; see '%s --help'", errUsage, err, c.CommandPath())
	})
	root.AddCommand(p.serveCommand(), p.validateCommand(), p.versionCommand())
	root.AddCommand(p.More...)
	return root.ExecuteContext(ctx)
}

// builtFrom is the version that Go wrote into the program.
func builtFrom() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}

// NoArgs refuses arguments in words that say what to do.
func NoArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%w: %q is not expected here; see '%s --help'", errUsage, args[0], c.CommandPath())
	}
	return nil
}

func (p Program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), p.Name, p.Version)
			return err
		},
	}
}

// forced says whether err means that work was abandoned.
func forced(err error) bool { return errors.Is(err, supervisor.ErrHardLimit) }
