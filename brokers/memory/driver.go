package memory

import (
	"context"
	"errors"
	"sync"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// Driver opens connections to Broker. Without one it owns a broker for each
// connection name, which keeps its queues as long as the driver lives; those
// create what is missing and keep no history.
type Driver struct {
	Broker *Broker

	mu  sync.Mutex
	own map[string]*Broker
}

// source is what Parse hands to Subscribe.
type source struct {
	queue   string
	missing supervisorv1.Missing
}

// target is a queue to publish to.
type target string

func (t target) String() string { return "queue " + string(t) }

// Target is a queue to publish to.
func Target(queue string) brokers.Target { return target(queue) }

// Kind is "memory".
func (d *Driver) Kind() string { return "memory" }

// CheckConnection finds nothing wrong: there is nothing to set.
func (d *Driver) CheckConnection(*supervisorv1.Connection) []brokers.Fault { return nil }

// Parse reads source.memory and dead_letter.topic. Whether the queue has
// partitions it asks the broker, which is in this process.
func (d *Driver) Parse(s *supervisorv1.ConsumerSpec) (brokers.Plan, []brokers.Fault) {
	m := s.GetSource().GetMemory()
	src := source{queue: m.GetQueue(), missing: m.GetMissing()}
	if src.missing == supervisorv1.Missing_MISSING_UNSPECIFIED {
		src.missing = supervisorv1.Missing_MISSING_CREATE
	}
	plan := brokers.Plan{Source: src, Origin: "queue " + src.queue}
	var faults []brokers.Fault
	if src.queue == "" {
		faults = append(faults, brokers.Faultf("source.memory.queue", "is required: name the queue to consume"))
	}
	if s.GetOrdering() == supervisorv1.Ordering_ORDERING_PARTITION &&
		d.broker(s.GetSource().GetConnection()).queueOptions(src.queue).Partitions == 0 {
		faults = append(faults, brokers.Faultf("ordering", "PARTITION needs a queue with partitions; use KEY or NONE"))
	}
	switch t := s.GetDeadLetter().GetTarget().(type) {
	case nil:
		if s.GetDeadLetter() != nil {
			faults = append(faults, brokers.Faultf("dead_letter.topic", "is required: name the queue for dead letters"))
		}
	case *supervisorv1.DeadLetter_Topic:
		switch t.Topic {
		case "":
			faults = append(faults, brokers.Faultf("dead_letter.topic", "is required: name the queue for dead letters"))
		case src.queue:
			faults = append(faults, brokers.Faultf("dead_letter.topic", "is the queue being consumed; name another"))
		default:
			plan.DeadLetter = target(t.Topic)
		}
	default:
		faults = append(faults, brokers.Faultf("dead_letter", "a memory source takes dead_letter.topic only"))
	}
	return plan, faults
}

// Open connects to the broker.
func (d *Driver) Open(ctx context.Context, c *supervisorv1.Connection, _ brokers.Env) (brokers.Conn, error) {
	return d.broker(c.GetName()).open(ctx, c.GetName())
}

func (d *Driver) broker(connection string) *Broker {
	if d.Broker != nil {
		return d.Broker
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.own == nil {
		d.own = make(map[string]*Broker)
	}
	b := d.own[connection]
	if b == nil {
		b = NewBroker(Options{CreateTargets: true, Forget: true})
		d.own[connection] = b
	}
	return b
}

var (
	errNoQueue  = errors.New("no such queue")
	errDeleted  = errors.New("the queue was deleted")
	errCut      = errors.New("connection reset")
	errClosed   = errors.New("the subscription is closed")
	errInjected = errors.New("injected failure")
)
