package main

import (
	"context"
	"fmt"

	"github.com/seed-111f5b8e/supervisord/test/node/kafka"
	"github.com/seed-111f5b8e/supervisord/test/node/rabbitmq"
)

// broker is one kind. Another one is added here and in brokers.
type broker struct {
	name string
	// present is nil when the programs that it needs are on this machine; else
	// packages of Debian bring them.
	present  func() error
	packages []string
	// version of what start runs; what no package brings is fetched.
	version func(context.Context) (string, error)
	// ports that it listens on.
	ports []int
	// start runs a detached one with its data in dir, and returns once it serves,
	// with where, and its processes, the first to be ended first.
	start func(ctx context.Context, dir string) (where string, pids []int, err error)
}

func brokers() []broker { return []broker{rabbitmqBroker(), kafkaBroker()} }

func rabbitmqBroker() broker {
	const port, console = 5672, 15672
	return broker{
		name: "rabbitmq", present: rabbitmq.Installed, packages: []string{"rabbitmq-server"},
		version: func(ctx context.Context) (string, error) { return packageVersion(ctx, "rabbitmq-server") },
		ports:   []int{port, console},
		start: func(ctx context.Context, dir string) (string, []int, error) {
			n, err := rabbitmq.Start(ctx, rabbitmq.Options{Dir: dir, Port: port, ManagementPort: console, Detached: true})
			if err != nil {
				return "", nil, err
			}
			where := fmt.Sprintf("%s, console at %s; user %s, password %s", n.URL(), n.ManagementURL(), rabbitmq.User, rabbitmq.Password)
			return where, n.PIDs(), nil
		},
	}
}

func kafkaBroker() broker {
	const port, sasl = 9092, 9094
	return broker{
		name: "kafka", present: kafka.Installed, packages: []string{"default-jre-headless", "maven"},
		version: kafka.Version,
		ports:   []int{port, sasl},
		start: func(ctx context.Context, dir string) (string, []int, error) {
			n, err := kafka.Start(ctx, kafka.Options{Dir: dir, Port: port, SASLPort: sasl, Detached: true})
			if err != nil {
				return "", nil, err
			}
			where := fmt.Sprintf("%s, with SASL at %s; user %s, password %s", n.Broker(), n.SASLBroker(), kafka.User, kafka.Password)
			return where, n.PIDs(), nil
		},
	}
}
