package supervisor

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/lifecycle"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// expireHolds takes out the holds whose time is over and lets the consumer run
// if none is left. What cannot be written is so all the same: a hold has ended
// when its time is over, also after a restart.
func (s *Supervisor) expireHolds(c *consumer) {
	ctx, cut := context.WithCancelCause(context.Background())
	defer cut(nil)
	if c.turn.take(ctx, cut, false) != nil {
		return
	}
	defer c.turn.give()
	rec := c.rec.Load()
	left := standing(rec.GetDesired().GetHolds(), time.Now())
	if c.deleted.Load() {
		return
	}
	if len(left) == len(rec.GetDesired().GetHolds()) {
		c.post(c.armHold) // the wall clock went back meanwhile
		return
	}
	next := proto.CloneOf(rec)
	next.Desired.Holds = left
	next.Etag, next.Updated = newEtag(), timestamppb.Now()
	ctx, cancel := context.WithTimeout(ctx, urgentStore)
	defer cancel()
	if err := s.putConsumer(ctx, next); err != nil {
		s.recorder.owes(c)
		c.notDurable(err)
	}
	c.rec.Store(next)
	c.post(func() {
		c.changed = true
		c.armHold()
		if c.goal() == goalRun && (c.state == lifecycle.Paused || c.state == lifecycle.Pausing) {
			c.fire(lifecycle.Start, "the hold's time is over")
		}
	})
}

// publishDead publishes dead letters and returns when they are confirmed.
func (c *consumer) publishDead(ctx context.Context, ep *epoch, items []*item) error {
	cfg := c.config.Load()
	l := c.s.links[cfg.Connection]
	pubs := make([]brokers.Publication, 0, len(items))
	for _, it := range items {
		pubs = append(pubs, brokers.Publication{
			Target: cfg.Plan.DeadLetter, Key: it.d.Key, Body: it.d.Body,
			Headers: deadHeaders(c.key, ep, it), ID: "dead:" + c.key.String() + ":" + it.d.ID(),
		})
	}
	return l.publish(ctx, pubs)
}

const (
	// deadPrefix begins the names of the headers that tell a dead letter's story.
	deadPrefix = "supervisord-"
	// deadText bounds an error or a stack in a header.
	deadText = 4096
)

// deadHeaders are the message's own and, after them, where it came from and
// what happened to it. Those of an earlier dead letter are replaced.
func deadHeaders(k key, ep *epoch, it *item) []brokers.Header {
	var out []brokers.Header
	for name, value := range it.d.Headers.All() {
		if !strings.HasPrefix(strings.ToLower(name), deadPrefix) {
			out = append(out, brokers.Header{Name: name, Value: value})
		}
	}
	add := func(name, value string) {
		if value != "" {
			out = append(out, brokers.Header{Name: deadPrefix + name, Value: value})
		}
	}
	add("consumer", k.String())
	add("message-id", it.d.ID())
	add("origin", it.d.Origin.Name)
	add("position", itoa(it.d.Position))
	add("subject", it.d.Subject)
	if !it.d.Published.IsZero() {
		add("published", it.d.Published.UTC().Format(time.RFC3339Nano))
	}
	add("attempts", itoa(int64(it.attempts)))
	add("epoch", itoa(int64(ep.n)))
	add("failed", time.Now().UTC().Format(time.RFC3339Nano))
	if it.lastErr != nil {
		add("error", oneLine(it.lastErr.Error()))
		if stack := stackOf(it.lastErr); stack != "" {
			add("stack", oneLine(stack))
		}
	}
	return out
}

// receiptText logs a receipt as its numbers.
type receiptText struct{ r *pb.Receipt }

// LogValue is [slog.LogValuer]'s.
func (t receiptText) LogValue() slog.Value {
	r := t.r
	attrs := []slog.Attr{
		slog.String("id", r.GetId()), slog.String("verb", verbName(r.GetVerb())),
		slog.String("outcome", strings.TrimPrefix(r.GetOutcome().String(), "RECEIPT_OUTCOME_")),
		slog.String("state", short(r.GetState())),
		slog.Int64("completed", r.GetCompleted()), slog.Int64("retried", r.GetRetried()),
		slog.Int64("dead_lettered", r.GetDeadLettered()), slog.Int64("returned", r.GetReturned()),
		slog.Int("abandoned", len(r.GetAbandoned())), slog.Int64("unconfirmed", r.GetUnconfirmed()),
		slog.Int64("ownership_lost", r.GetOwnershipLost()), slog.Int64("will_repeat", r.GetWillRepeat()),
		slog.Bool("soft_fired", r.GetSoftFired()), slog.Bool("hard_fired", r.GetHardFired()),
		slog.Duration("duration", r.GetDuration().AsDuration()),
	}
	for _, m := range r.GetAbandoned() {
		attrs = append(attrs, slog.String("abandoned_message", m.GetId()))
	}
	return slog.GroupValue(attrs...)
}

func verbName(v pb.Verb) string { return strings.ToLower(strings.TrimPrefix(v.String(), "VERB_")) }
