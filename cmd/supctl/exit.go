package main

import (
	"errors"
	"fmt"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"google.golang.org/grpc/codes"
)

// exit is the status of the process. Scripts branch on it, so the numbers
// never change meaning.
type exit int

const (
	// exitOK: done, or nothing was to do.
	exitOK exit = 0
	// exitGeneral: none of those below. For diff: there are differences.
	exitGeneral exit = 1
	// exitUsage: the command line or a file named on it is wrong.
	exitUsage exit = 2
	// exitState: the consumer is not, and will not come, in the state asked for.
	exitState exit = 3
	// exitNotFound: no consumer, message or receipt of that name.
	exitNotFound exit = 4
	// exitDenied: unauthenticated, or no right to it.
	exitDenied exit = 5
	// exitUnreachable: the daemon does not answer, or is shutting down.
	exitUnreachable exit = 6
	// exitConflict: refused in this state, changed meanwhile, other count.
	exitConflict exit = 7
	// exitTimeout: --timeout ended; what was asked for goes on.
	exitTimeout exit = 8
	// exitForced: it ended, but handlers had to be cut off.
	exitForced exit = 9
	// exitPartial: of several consumers some failed.
	exitPartial exit = 10
	// exitInterrupted: Ctrl-C; what was asked for goes on.
	exitInterrupted exit = 130
)

// exitRule is one row of the mapping from API errors to exit statuses. A
// reason of 0 is any.
type exitRule struct {
	code   codes.Code
	reason pb.ErrorReason
	exit   exit
}

// exitRules is read from the top; the first that fits decides.
func exitRules() []exitRule {
	return []exitRule{
		{codes.Unavailable, pb.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE, exitGeneral},
		{codes.Unavailable, pb.ErrorReason_ERROR_REASON_BROKER_UNAVAILABLE, exitGeneral},
		{codes.Unavailable, 0, exitUnreachable},
		{codes.InvalidArgument, 0, exitUsage},
		{codes.NotFound, 0, exitNotFound},
		{codes.Unauthenticated, 0, exitDenied},
		{codes.PermissionDenied, 0, exitDenied},
		{codes.FailedPrecondition, 0, exitConflict},
		{codes.Aborted, 0, exitConflict},
		{codes.AlreadyExists, 0, exitConflict},
		{codes.OutOfRange, 0, exitConflict},
		{codes.DeadlineExceeded, 0, exitTimeout},
		{codes.Canceled, 0, exitInterrupted},
	}
}

// failure is an error of supctl's own with its exit status. Without an err the
// matter has been told already.
type failure struct {
	exit exit
	err  error
}

func failf(e exit, format string, args ...any) *failure {
	return &failure{exit: e, err: fmt.Errorf(format, args...)}
}

func (f *failure) Error() string {
	if f.err == nil {
		return ""
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// exitOf maps an error to the exit status of the process.
func exitOf(err error) exit {
	if err == nil {
		return exitOK
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f.exit
	}
	if e, ok := errors.AsType[*apiError](err); ok {
		return e.exit()
	}
	return exitGeneral
}

// told tells whether the user knows about err already.
func told(err error) bool {
	f, ok := errors.AsType[*failure](err)
	return ok && f.err == nil
}

// timedOut tells whether --timeout ended what err is about.
func timedOut(err error) bool {
	_, ok := errors.AsType[timeoutError](err)
	return ok
}

// exitOfAll is the status for several consumers at once: that of their errors
// when all failed alike, exitPartial when some did not.
func exitOfAll(errs []error) exit {
	first := exitOK
	failed := 0
	for _, err := range errs {
		e := exitOf(err)
		if e == exitOK {
			continue
		}
		if failed++; failed == 1 {
			first = e
		} else if e != first {
			first = exitPartial
		}
	}
	// An end by force is a result, not a failure to act: it outranks success.
	if failed > 0 && failed < len(errs) && first != exitForced {
		return exitPartial
	}
	return first
}
