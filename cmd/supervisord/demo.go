package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/seed-111f5b8e/supervisord/proto/endpoint"
	"github.com/seed-111f5b8e/supervisord/supervisor/handlers"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
	"github.com/spf13/cobra"
)

// demoFiles hold the demo's specs, which also serve as examples.
//
//go:embed demo.yaml
var demoFiles embed.FS //nolint:gochecknoglobals // embed needs a variable

func demoCommand() *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use: "demo", Short: "Run everything at once: embedded JetStream, a publisher, five consumers", Args: noArgs,
		Long: "demo runs the daemon with a JetStream server inside, publishes orders to it, and hosts five\n" +
			"consumers of different kinds, one of which fails now and then. Try supctl on them in another\n" +
			"terminal; Ctrl-C stops everything and prints the receipts. Without --data-dir nothing is kept.",
		RunE: func(c *cobra.Command, _ []string) error {
			return demo(c.Context(), *o, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	o.register(c.Flags(), endpoint.Default())
	return c
}

func demo(ctx context.Context, o options, stdout, stderr io.Writer) error {
	if o.dataDir == "" {
		dir, err := os.MkdirTemp("", "supervisord-demo-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir) //nolint:errcheck // the system cleans it up in time
		o.dataDir = dir
	}
	listen, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	billing, stop, err := startBilling(ctx)
	if err != nil {
		return err
	}
	defer stop()
	drivers, byKind := newDrivers()
	cfg, err := demoConfig(o, listen)
	if err != nil {
		return err
	}
	d, faults := spec.CheckDaemon(cfg, byKind)
	if len(faults) > 0 {
		return fmt.Errorf("configuration: %w", faults[0])
	}
	p := newParts(d, drivers, byKind, handlers.Go(demoHandlers()))
	specs, err := demoSpecs(o, p.env(d), billing)
	if err != nil {
		return err
	}
	dm, err := open(o, d, p, newLog(d, stderr))
	if err != nil {
		return err
	}
	if _, err := dm.s.Apply(ctx, "demo", applyRequest(specs)); err != nil {
		return errors.Join(err, dm.close())
	}
	pubCtx, endPub := context.WithCancelCause(ctx)
	published := make(chan error, 1)
	go func() { published <- publishOrders(pubCtx, listen) }()
	printHelp(stdout, o)
	receipts, err := dm.run(ctx)
	endPub(nil)
	<-published
	printReceipts(stdout, receipts)
	return err
}
