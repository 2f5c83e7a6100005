package supervisor

import (
	"fmt"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// Command is a verb for one or many consumers.
type Command struct {
	Verb supervisorv1.Verb
	// Actor comes from the caller's credentials, never from the message.
	Actor   string
	Target  *supervisorv1.Target
	Options *supervisorv1.VerbOptions

	// Hold: pause and resume. The pause ends after For, or at Until; with
	// neither, when it is resumed.
	Hold     string
	For      time.Duration
	Until    time.Time
	AllHolds bool
	// Soft and Hard: drain, stop, restart. 0: the spec's.
	Soft, Hard time.Duration
	// Mode, BacklogTimeout, Then: drain.
	Mode           supervisorv1.DrainMode
	BacklogTimeout time.Duration
	Then           supervisorv1.DrainThen
	// Concurrency (0: reset to the spec's): scale.
	Concurrency int32
	// Force: delete kills first.
	Force bool
}

// Error is why a request was not carried out.
type Error struct {
	Reason  supervisorv1.ErrorReason
	Message string
	// Metadata goes into google.rpc.ErrorInfo.
	Metadata map[string]string
	// Faults go into google.rpc.BadRequest; their paths start at the request's
	// root ("items[1].spec.handler.timeout").
	Faults []brokers.Fault
}

func (e *Error) Error() string { return e.Message }

func errorf(r supervisorv1.ErrorReason, format string, args ...any) *Error {
	return &Error{Reason: r, Message: fmt.Sprintf(format, args...)}
}
