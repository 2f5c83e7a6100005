package rabbitmq

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// version is a RabbitMQ's; zero when the broker is another or does not say.
type version struct{ major, minor int }

func versionOf(properties amqp.Table) version {
	var v version
	if product, _ := properties["product"].(string); product != "RabbitMQ" {
		return v
	}
	text, _ := properties["version"].(string)
	if _, err := fmt.Sscanf(text, "%d.%d", &v.major, &v.minor); err != nil {
		return version{}
	}
	return v
}

// nackCounts tells whether a quorum queue counts a message that was given back by
// basic.nack towards its delivery limit. From 4.3 it counts only what was rejected
// or lost with its channel.
func (v version) nackCounts() bool { return v.major < 4 || v.major == 4 && v.minor < 3 }
