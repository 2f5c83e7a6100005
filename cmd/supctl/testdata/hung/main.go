// Command hung is a supervisord of its own whose handler ignores its context:
// what a stop of it ends in, no handler that obeys can show.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	"github.com/seed-111f5b8e/supervisord/proto/endpoint"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"github.com/seed-111f5b8e/supervisord/supervisor/handlers"
	"github.com/seed-111f5b8e/supervisord/supervisor/rpc"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
	"github.com/seed-111f5b8e/supervisord/supervisor/store"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const config = "connections: [{name: main, memory: {}}]\nshutdown: {soft: 10ms, hard: 20ms}\n"

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	broker := memory.NewBroker(memory.Options{})
	driver := &memory.Driver{Broker: broker}
	daemon, err := spec.LoadDaemon(spec.File{Name: "config", Data: []byte(config)}, map[string]brokers.Driver{"memory": driver})
	if err != nil {
		return err
	}
	st, err := store.Open(filepath.Join(os.Args[1], "hung.db"), store.Options{Log: log})
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	deaf := supervisor.HandlerFunc(func(context.Context, *supervisor.Message) supervisor.Outcome { select {} })
	s, err := supervisor.New(supervisor.Options{
		Daemon: daemon, Drivers: []brokers.Driver{driver}, Store: st, Log: log, Version: "hung",
		Handlers: []supervisor.HandlerKind{handlers.Go(map[string]supervisor.Handler{"deaf": deaf})},
	})
	if err != nil {
		return err
	}
	if err := fill(broker); err != nil {
		return err
	}
	l, err := rpc.Listen(endpoint.Default(), nil)
	if err != nil {
		return err
	}
	server := rpc.New(s, l, log)
	go func() {
		<-ctx.Done()
		server.Stop()
	}()
	return server.Serve()
}

// fill gives every consumer of the script two messages.
func fill(b *memory.Broker) error {
	for i := range 4 {
		queue := "q" + strconv.Itoa(i)
		if err := b.Create(queue, memory.QueueOptions{}); err != nil {
			return err
		}
		if err := b.Publish(queue, memory.Message{ID: queue + "-a"}, memory.Message{ID: queue + "-b"}); err != nil {
			return err
		}
	}
	return nil
}
