package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// benchmark is one subcommand: it measures and writes what it found to w.
type benchmark struct {
	name, about string
	// hidden ones are parts that others start as processes of their own.
	hidden bool
	run    func(ctx context.Context, fs *flag.FlagSet, args []string, w io.Writer) error
}

func benchmarks() []benchmark {
	return []benchmark{
		{name: "core", about: "the message path alone, on the memory driver, against its raw loop", run: runCore},
		{name: "jetstream", about: "consumers on JetStream against the fastest raw pull loop that acks", run: runJetStream},
		{name: "rabbitmq", about: "consumers on a protocol stub of RabbitMQ against raw loops that ack each and many at once", run: runRabbitMQ},
		{name: "rabbitmq-real", about: "the same on quorum queues of a RabbitMQ, which must be installed", run: runRabbitMQReal},
		{name: "kafka", about: "consumers on an endless topic of a fake Kafka against a raw poll loop", run: runKafka},
		{name: "kafka-real", about: "the same on a Kafka, which must be installed", run: runKafkaReal},
		{name: "idle", about: "memory and goroutines of idle consumers", run: runIdle},
		{name: "backlog", about: "memory of Kafka consumers that have work and are paused, or stalled", run: runBacklog},
		{name: "pause", about: "pausing and killing one of many busy consumers", run: runPause},
		{name: "idle-part", hidden: true, run: runIdlePart},
		{name: "amqp-server", hidden: true, run: runAMQPServer},
		{name: "kafka-server", hidden: true, run: runKafkaServer},
		{name: "nats-server", hidden: true, run: runNATSServer},
	}
}

// run carries out the subcommand that args begins with.
func run(ctx context.Context, args []string, w io.Writer) error {
	if len(args) > 0 {
		for _, b := range benchmarks() {
			if b.name == args[0] {
				fs := flag.NewFlagSet("bench "+b.name, flag.ContinueOnError)
				return b.run(ctx, fs, args[1:], w)
			}
		}
	}
	var usage strings.Builder
	usage.WriteString("usage: go run ./bench NAME [flags]; -h shows a benchmark's flags")
	for _, b := range benchmarks() {
		if !b.hidden {
			fmt.Fprintf(&usage, "\n  %-14s %s", b.name, b.about)
		}
	}
	return errors.New(usage.String())
}
