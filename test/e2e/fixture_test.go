package e2e

import (
	"context"
	"testing"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// fixture is a real broker with a place for each consumer of one world. Its
// methods are safe for concurrent use.
type fixture interface {
	faulty

	// consumers is how many a scenario has.
	consumers() int
	// open readies the broker and the places, until the test ends.
	open(t *testing.T, names []string)
	// connection is the broker's part of the daemon's configuration.
	connection() string
	// source is the broker's part of a consumer's spec.
	source(name string) string
	// publish returns nil once the broker has confirmed the message. Messages of
	// one key stay in order.
	publish(ctx context.Context, name, key, id string) error
	// left counts what a consumer has not acknowledged; what one that runs holds
	// may be missing from it.
	left(ctx context.Context, name string) (int, error)
	// messages is how names of messages begin.
	messages() string
}

// faulty is a broker that breaks on request: kill ends it with SIGKILL, and restart lets it go on with
// its data.
type faulty interface {
	kill()
	restart(ctx context.Context) error
	freeze()
	thaw()
}

// hasOrder: the broker keeps the order of a key, and the specs ask for it.
type hasOrder interface{ keepsOrder() }

// closesConnections: the broker's operators can close the daemon's connections.
type closesConnections interface {
	closeConnections(ctx context.Context) error
}

// fixtures has each broker of this package, by the name of its subtest.
func fixtures() map[string]func() fixture {
	return map[string]func() fixture{
		"nats":     func() fixture { return &natsFixture{} },
		"rabbitmq": func() fixture { return &rabbitmqFixture{} },
		"kafka":    func() fixture { return &kafkaFixture{} },
	}
}

// onEach runs a scenario on every broker, all at once: most of it is waiting.
func onEach(t *testing.T, scenario func(*testing.T, fixture)) {
	t.Helper()
	for name, f := range fixtures() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenario(t, f())
		})
	}
}

// onEachAlone runs a scenario on one broker after another: it measures rates.
func onEachAlone(t *testing.T, scenario func(*testing.T, fixture)) {
	t.Helper()
	for name, f := range fixtures() {
		t.Run(name, func(t *testing.T) { scenario(t, f()) })
	}
}

// troubled: a consumer knows that its broker is away, whether its driver began
// again or its client library does.
func troubled(s *pb.Status) bool {
	if s.GetState() == pb.State_STATE_BACKOFF {
		return true
	}
	for _, c := range s.GetConditions() {
		if c.GetType() == pb.ConditionType_CONDITION_TYPE_CONNECTED && !c.GetStatus() {
			return true
		}
	}
	return false
}
