package main

import (
	"context"
	"embed"
	"fmt"
	"io"
	"os"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/supervisor/daemon"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
	"github.com/spf13/cobra"
)

// demoFiles hold the demo's specs, which also serve as examples.
//
//go:embed demo.yaml
var demoFiles embed.FS

func demoCommand(p daemon.Program) *cobra.Command {
	o := &daemon.Options{}
	c := &cobra.Command{
		Use: "demo", Short: "Run everything at once: embedded JetStream, a publisher, five consumers", Args: daemon.NoArgs,
		Long: "demo runs the daemon with a JetStream server inside, publishes orders to it, and hosts five\n" +
			"consumers of different kinds, one of which fails now and then. Try supctl on them in another\n" +
			"terminal; Ctrl-C stops everything and prints the receipts. Without --data-dir nothing is kept.",
		RunE: func(c *cobra.Command, _ []string) error {
			return demo(c.Context(), p, *o, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	o.Register(c.Flags())
	return c
}

func demo(ctx context.Context, p daemon.Program, o daemon.Options, stdout, stderr io.Writer) error {
	if o.DataDir == "" {
		dir, err := os.MkdirTemp("", "supervisord-demo-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir) //nolint:errcheck // the system cleans it up in time
		o.DataDir = dir
	}
	defer takeTerminal()()
	listen, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	billing, stop, err := startBilling(ctx)
	if err != nil {
		return err
	}
	defer stop()
	p.Handlers = demoHandlers()
	d, specs, err := demoSetUp(p, o, listen, billing)
	if err != nil {
		return err
	}
	pubCtx, endPub := context.WithCancelCause(ctx)
	published := make(chan error, 1)
	go func() { published <- publishOrders(pubCtx, listen) }()
	printHelp(stdout, o)
	receipts, err := p.Serve(ctx, o, d, specs, stderr)
	endPub(nil)
	if pubErr := <-published; pubErr != nil && err == nil {
		err = fmt.Errorf("publisher: %w", pubErr)
	}
	printReceipts(stdout, receipts)
	return err
}

// demoSetUp checks the demo's configuration and specs, and what was given on
// the command line beside them.
func demoSetUp(p daemon.Program, o daemon.Options, listen, billing string) (*spec.Daemon, []*spec.Consumer, error) {
	cfg, err := demoConfig(o, listen)
	if err != nil {
		return nil, nil, err
	}
	byKind := map[string]brokers.Driver{}
	for _, d := range p.Drivers {
		byKind[d.Kind()] = d
	}
	d, faults := spec.CheckDaemon(cfg, byKind)
	if len(faults) > 0 {
		return nil, nil, fmt.Errorf("configuration: %w", faults[0])
	}
	specs, err := demoSpecs(o, p.Env(d), billing)
	return d, specs, err
}
