// Command supervisord hosts message consumers and moves them on request.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/kafka"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	"github.com/seed-111f5b8e/supervisord/brokers/nats"
	"github.com/seed-111f5b8e/supervisord/brokers/rabbitmq"
	"github.com/seed-111f5b8e/supervisord/supervisor/daemon"
	"github.com/spf13/cobra"
)

func main() {
	p := daemon.Program{Name: "supervisord", Drivers: drivers()}
	p.More = []*cobra.Command{demoCommand(p)}
	err := p.Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "supervisord:", err)
	}
	os.Exit(daemon.ExitCode(err))
}

// drivers lists the brokers of this program; a new one is added here.
func drivers() []brokers.Driver {
	return []brokers.Driver{&memory.Driver{}, nats.Driver{}, rabbitmq.Driver{}, kafka.Driver{}}
}
