package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"github.com/seed-111f5b8e/supervisord/supervisor/console"
	"github.com/seed-111f5b8e/supervisord/supervisor/rpc"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
	"github.com/seed-111f5b8e/supervisord/supervisor/store"
	"github.com/spf13/cobra"
)

func (p Program) serveCommand() *cobra.Command {
	o := &Options{}
	c := &cobra.Command{
		Use: "serve", Short: "Run the daemon", Args: NoArgs,
		Long: "serve runs the daemon until SIGTERM or SIGINT. The first one closes all intakes and stops all\n" +
			"consumers within shutdown.soft and shutdown.hard; a second one kills what is left.\n" +
			"It exits with 0 when nothing was abandoned, with 1 when the hard limit fired.",
		RunE: func(c *cobra.Command, _ []string) error { return p.serve(c.Context(), *o, c.ErrOrStderr()) },
	}
	o.Register(c.Flags())
	return c
}

// heapFloor is address space that is counted as live heap and never touched, so
// it takes no memory. Messages die young: with the few MiB that a daemon keeps
// alive the collector would run hundreds of times a second.
const heapFloor = 32 << 20

// serve runs a daemon from its flags alone.
func (p Program) serve(ctx context.Context, o Options, stderr io.Writer) error {
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
		return fmt.Errorf("nothing was applied:\n%w", err)
	}
	_, err = p.Serve(ctx, o, d, specs, stderr)
	return err
}

// Serve runs a daemon until a signal or the end of ctx, with specs applied
// first. It returns the receipts of the shutdown, and an error when it could
// not start or work was abandoned.
func (p Program) Serve(ctx context.Context, o Options, d *spec.Daemon, specs []*spec.Consumer, stderr io.Writer) ([]*pb.Receipt, error) {
	if p.Version == "" {
		p.Version = builtFrom()
	}
	ballast := make([]byte, heapFloor)
	defer runtime.KeepAlive(ballast)
	dm, err := p.open(o, d, newLog(d, stderr))
	if err != nil {
		return nil, err
	}
	if len(specs) > 0 {
		if _, err := dm.s.Apply(ctx, p.Name, applyRequest("applied at the start", specs)); err != nil {
			return nil, errors.Join(fmt.Errorf("--apply: %w", err), dm.close())
		}
	}
	return dm.run(ctx)
}

// daemon is everything of a running supervisord.
type daemon struct {
	log     *slog.Logger
	store   *store.Store
	s       *supervisor.Supervisor
	console *console.Console
	http    net.Listener // nil: none
	rpc     *rpc.Server
	signals chan os.Signal
}

// open takes the data directory and the addresses, then starts the consumers.
func (p Program) open(o Options, d *spec.Daemon, log *slog.Logger) (*daemon, error) {
	dm := &daemon{log: log, console: console.New(console.Options{Profiles: o.pprof, Log: log}), signals: make(chan os.Signal, 2)}
	if o.DataDir == "" {
		o.DataDir = defaultDataDir()
	}
	if err := os.MkdirAll(o.DataDir, 0o700); err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	var err error
	if dm.store, err = store.Open(filepath.Join(o.DataDir, "state.db"), store.Options{Log: log}); err != nil {
		return nil, err
	}
	if o.HTTP != "" {
		if dm.http, err = console.Listen(o.HTTP, o.httpRemote); err != nil {
			return nil, errors.Join(err, dm.store.Close())
		}
	}
	l, err := rpc.Listen(o.Listen, d.TLS)
	if err != nil {
		return nil, errors.Join(err, dm.closeHTTP(), dm.store.Close())
	}
	dm.s, err = supervisor.New(supervisor.Options{
		Daemon: d, Drivers: p.Drivers, Handlers: p.kinds(d), Store: dm.store, Log: log, DataDir: o.DataDir, Version: p.Version,
	})
	if err != nil {
		return nil, errors.Join(err, l.Close(), dm.closeHTTP(), dm.store.Close())
	}
	dm.console.Show(dm.s)
	dm.rpc = rpc.New(dm.s, l, log)
	// A second signal must find us listening while the first is worked on.
	signal.Notify(dm.signals, syscall.SIGTERM, syscall.SIGINT)
	log.Info("supervisord is up", "version", p.Version, "listen", o.Listen, "http", o.HTTP, "data_dir", o.DataDir,
		"consumers", dm.s.Info().GetConsumers())
	return dm, nil
}

func (dm *daemon) closeHTTP() error {
	if dm.http == nil {
		return nil
	}
	return dm.http.Close()
}

// close gives up a daemon that was opened and not run.
func (dm *daemon) close() error {
	signal.Stop(dm.signals)
	_, err := dm.s.Shutdown(context.Background())
	dm.rpc.Stop()
	return errors.Join(err, dm.closeHTTP(), dm.store.Close())
}

// run serves until a signal or the end of ctx, then shuts down. It returns the
// receipts, and an error when work was abandoned or serving failed.
func (dm *daemon) run(ctx context.Context) ([]*pb.Receipt, error) {
	defer signal.Stop(dm.signals)
	failed := make(chan error, 2)
	httpCtx, endHTTP := context.WithCancelCause(context.WithoutCancel(ctx))
	httpDone := make(chan struct{})
	go func() { failed <- dm.rpc.Serve() }()
	go func() {
		defer close(httpDone)
		if dm.http != nil {
			if err := dm.console.Serve(httpCtx, dm.http, dm.log); err != nil {
				failed <- err
			}
		}
	}()
	var err error
	select {
	case s := <-dm.signals:
		dm.log.Info("shutting down; a second signal kills", "signal", s.String())
	case <-ctx.Done():
	case err = <-failed:
	}
	receipts, shutErr := dm.shutdown()
	dm.rpc.Stop()
	endHTTP(nil)
	<-httpDone
	return receipts, errors.Join(err, shutErr, dm.store.Close())
}

// shutdown stops the consumers; the API answers until they are stopped.
func (dm *daemon) shutdown() ([]*pb.Receipt, error) {
	dm.rpc.Leaving()
	ctx, kill := context.WithCancelCause(context.Background())
	defer kill(nil)
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case s := <-dm.signals:
			dm.log.Warn("killing what is left", "signal", s.String())
			kill(errors.New("second signal"))
		case <-done:
		}
	}()
	receipts, err := dm.s.Shutdown(ctx)
	switch {
	case forced(err):
		dm.log.Error("shutdown: the hard limit fired; the messages named above will be delivered again",
			"event", "hard_limit_fired", "severity", "critical")
		return receipts, err
	case err != nil:
		dm.log.Warn("shutdown: a connection did not close cleanly", "error", err)
	}
	dm.log.Info("all consumers are stopped", "receipts", len(receipts))
	return receipts, nil
}
