package e2e

import (
	"context"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// limited is a quorum queue whose messages the broker dead-letters after five
// deliveries, give-backs included.
type limited struct{ rabbitmqFixture }

const deliveryLimit = 5

func (f *limited) open(t *testing.T, names []string) {
	t.Helper()
	f.arguments = amqp.Table{
		"x-queue-type": "quorum", "x-delivery-limit": deliveryLimit,
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f.dead(t),
	}
	f.rabbitmqFixture.open(t, names)
	_, err := onChannel(t.Context(), &f.out, func(ch *amqp.Channel) (amqp.Queue, error) {
		return ch.QueueDeclare(f.dead(t), true, false, false, false, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.node.DeleteQueue(context.WithoutCancel(t.Context()), "/", f.dead(t)); err != nil {
			t.Error(err)
		}
	})
}

func (*limited) dead(t *testing.T) string {
	t.Helper()
	return t.Name() + ".dead"
}

// TestPausesDeadLetterNothing: a hundred pauses and resumes under load, many
// more than the delivery limit, and the broker dead-letters nothing.
func TestPausesDeadLetterNothing(t *testing.T) {
	f := &limited{}
	w := newWorld(t, f, 1)
	p := w.load(time.Millisecond)
	w.awaitCalls(100)
	for i := range 100 {
		if rc := w.pauseResume("c00"); rc.GetOutcome() != pb.ReceiptOutcome_RECEIPT_OUTCOME_CLEAN {
			t.Errorf("pause %d: %v", i, rc)
		}
	}
	w.awaitCalls(100)
	if n := w.account(p.stop(), time.Minute); n != 0 {
		t.Errorf("%d were handled twice", n)
	}
	q, err := onChannel(t.Context(), &f.out, func(ch *amqp.Channel) (amqp.Queue, error) {
		return ch.QueueDeclarePassive(f.dead(t), true, false, false, false, nil)
	})
	if err != nil || q.Messages != 0 {
		t.Errorf("%d were dead-lettered (%v)", q.Messages, err)
	}
}
