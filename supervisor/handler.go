package supervisor

import (
	"context"
	"log/slog"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// Message is a delivery as a handler sees it. Body, key and headers are to be
// read only; they stay valid after the handler returned.
type Message = brokers.Delivery

// Handler processes one message at a time per call; calls run concurrently.
//
// ctx carries the handler timeout of the spec and is cancelled by the hard
// stage of a stop, by a kill, and when an operator cancels this message;
// [CauseOf] says which. A handler that returns after that settles as
// usual until its epoch is fenced. A panic is an attempt that failed; so that a
// panic in a goroutine of the handler's own is one too, start those with [Go].
type Handler interface {
	Handle(ctx context.Context, m *Message) Outcome
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, m *Message) Outcome

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, m *Message) Outcome { return f(ctx, m) }

// HandlerKind makes the handlers of one kind for specs.
type HandlerKind interface {
	// Kind is the name of the field in the oneof Handler.kind.
	Kind() string
	// Check reports what is wrong with this kind's part of a spec whose
	// defaults are filled in. It does no I/O.
	Check(s *supervisorv1.ConsumerSpec) []brokers.Fault
	// New makes the handler of one consumer, at each start. One that also has
	// Close() error is closed when the consumer has stopped.
	New(s *supervisorv1.ConsumerSpec, env HandlerEnv) (Handler, error)
}

// HandlerEnv is what the process lends to a handler.
type HandlerEnv struct {
	// Log carries the consumer's name.
	Log *slog.Logger
	// Secret resolves "env:NAME" and "file:PATH".
	Secret func(ref string) (string, error)
}

type outcomeKind uint8

const (
	outcomeAck outcomeKind = iota
	outcomeRetry
	outcomeDeadLetter
	outcomeRelease
)

// Outcome is how a handler's call ended. The zero value is Ack.
type Outcome struct {
	kind  outcomeKind
	after time.Duration
	err   error
}

// Ack: the effect is durable; the broker may forget the message.
func Ack() Outcome { return Outcome{} }

// Retry: it failed; try again as the spec's retry says.
func Retry(err error) Outcome { return Outcome{kind: outcomeRetry, err: err} }

// RetryAfter: it failed; try again not before after has passed.
func RetryAfter(err error, after time.Duration) Outcome {
	return Outcome{kind: outcomeRetry, after: after, err: err}
}

// DeadLetter: it can never succeed; publish it to the dead letter target, or,
// without one, keep trying at the longest backoff.
func DeadLetter(err error) Outcome { return Outcome{kind: outcomeDeadLetter, err: err} }

// Release: give it back to the broker; no attempt of ours is counted.
func Release() Outcome { return Outcome{kind: outcomeRelease} }
