package e2e

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/seed-111f5b8e/supervisord/test/node"
	"github.com/seed-111f5b8e/supervisord/test/node/kafka"
	"github.com/seed-111f5b8e/supervisord/test/node/rabbitmq"
)

// nodes are the brokers that take long to start: all tests share one of each.
// Those that kill or freeze one heal it, or the next does.
type nodes struct {
	mu   sync.Mutex
	rmq  *rabbitmq.Node
	kfk  *kafka.Node
	dirs []string
}

var shared nodes //nolint:gochecknoglobals // ended by TestMain

// nodeLimit bounds the start of a broker, on a busy machine too.
const nodeLimit = 2 * time.Minute

func (n *nodes) rabbitmq(t *testing.T) *rabbitmq.Node {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), nodeLimit)
	defer cancel()
	if n.rmq != nil {
		heal(ctx, t, n.rmq)
		return n.rmq
	}
	r, err := rabbitmq.Start(ctx, rabbitmq.Options{Dir: n.dir(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("RabbitMQ %s", r.Version())
	n.rmq = r
	for _, err := range []error{r.AddUser(ctx, daemonUser, password), r.Permit(ctx, daemonUser, "/", ".*", ".*", ".*")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (n *nodes) kafka(t *testing.T) *kafka.Node {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), nodeLimit)
	defer cancel()
	if n.kfk != nil {
		heal(ctx, t, n.kfk)
		return n.kfk
	}
	k, err := kafka.Start(ctx, kafka.Options{Dir: n.dir(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("Kafka %s", k.Version())
	n.kfk = k
	return k
}

// dir outlives the test.
func (n *nodes) dir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2e-node-") //nolint:usetesting // it is not this test's alone
	if err != nil {
		t.Fatal(err)
	}
	n.dirs = append(n.dirs, dir)
	return dir
}

// heal makes up for a test that failed before it did.
func heal(ctx context.Context, t *testing.T, n interface {
	Thaw()
	Restart(ctx context.Context) error
}) {
	t.Helper()
	n.Thaw()
	if err := n.Restart(ctx); err != nil && !errors.Is(err, node.ErrRuns) {
		t.Fatal(err)
	}
}

func (n *nodes) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.rmq != nil {
		n.rmq.Kill()
	}
	if n.kfk != nil {
		n.kfk.Kill()
	}
	for _, dir := range n.dirs {
		_ = os.RemoveAll(dir) // a temporary folder
	}
}
