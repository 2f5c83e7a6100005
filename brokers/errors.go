package brokers

import (
	"context"
	"errors"
	"fmt"
)

// Class says what to do about an error. The driver decides it, once.
type Class uint8

const (
	// Transient: the broker answered, and trying again may help. Counts
	// towards the restart budget.
	Transient Class = iota + 1
	// Unreachable: no answer at all. Tried for ever.
	Unreachable
	// Refused: credentials, rights or configuration. Trying again does not help.
	Refused
	// Missing: the source is not there. The spec says what follows.
	Missing
	// Fenced: another has taken over this epoch, or it is closed. Trying again would
	// fence the other.
	Fenced
	// Lost: the broker no longer has messages that were not handled.
	Lost
)

func (c Class) String() string {
	return [...]string{"", "transient", "unreachable", "refused", "missing", "fenced", "lost"}[c]
}

// Error is every error that crosses this package but a context's own.
type Error struct {
	Class Class
	// Op is what was tried: "subscribe to stream ORDERS".
	Op string
	// Err holds the broker's own words.
	Err error
	// Wait: the source is missing and the spec says to wait for it.
	Wait bool
	// Remedy says what to do next; may be empty.
	Remedy string
}

func (e *Error) Error() string {
	s := e.Op + ": " + e.Err.Error()
	if e.Remedy != "" {
		s += " (" + e.Remedy + ")"
	}
	return s
}

// Unwrap gives the broker's error.
func (e *Error) Unwrap() error { return e.Err }

// ClassOf finds the class of err: a deadline is Unreachable, anything
// unclassified Transient, nil 0.
func ClassOf(err error) Class {
	var e *Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.Class
	case errors.Is(err, context.DeadlineExceeded):
		return Unreachable
	}
	return Transient
}

// Fault is one thing wrong with a spec or a configuration.
type Fault struct {
	// Path of the field: "source.nats.stream", "connections[1].nats.urls".
	Path string
	// Message says what is wrong and what would be right. It never repeats a secret.
	Message string
}

func (f Fault) Error() string { return f.Path + ": " + f.Message }

// Faultf makes a fault.
func Faultf(path, format string, args ...any) Fault {
	return Fault{Path: path, Message: fmt.Sprintf(format, args...)}
}
