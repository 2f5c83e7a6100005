package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"google.golang.org/grpc/codes"
)

func TestExitOf(t *testing.T) {
	undecided := map[pb.ErrorReason]string{}
	for n, name := range pb.ErrorReason_name {
		undecided[pb.ErrorReason(n)] = name
	}
	api := func(c codes.Code, r pb.ErrorReason) error { return &apiError{code: c, reason: r} }
	for _, c := range []struct {
		err  error
		want exit
	}{
		{nil, exitOK},
		{errors.New("anything"), exitGeneral},
		{failf(exitState, "FAILED"), exitState},
		{fmt.Errorf("orders: %w", failf(exitForced, "by force")), exitForced},
		{errors.Join(failf(exitTimeout, "late"), nil), exitTimeout},
		{api(codes.InvalidArgument, pb.ErrorReason_ERROR_REASON_INVALID_ARGUMENT), exitUsage},
		{api(codes.NotFound, pb.ErrorReason_ERROR_REASON_NOT_FOUND), exitNotFound},
		{api(codes.Unauthenticated, 0), exitDenied},
		{api(codes.PermissionDenied, pb.ErrorReason_ERROR_REASON_PERMISSION_DENIED), exitDenied},
		{api(codes.Unavailable, 0), exitUnreachable},
		{api(codes.Unavailable, pb.ErrorReason_ERROR_REASON_SHUTTING_DOWN), exitUnreachable},
		{api(codes.Unavailable, pb.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE), exitGeneral},
		{api(codes.Unavailable, pb.ErrorReason_ERROR_REASON_BROKER_UNAVAILABLE), exitGeneral},
		{api(codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_BROKER_REFUSED), exitConflict},
		{api(codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_INVALID_STATE_TRANSITION), exitConflict},
		{api(codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_COUNT_MISMATCH), exitConflict},
		{api(codes.FailedPrecondition, pb.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED), exitConflict},
		{api(codes.Aborted, pb.ErrorReason_ERROR_REASON_ETAG_MISMATCH), exitConflict},
		{api(codes.AlreadyExists, pb.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED), exitConflict},
		{api(codes.OutOfRange, pb.ErrorReason_ERROR_REASON_REVISION_COMPACTED), exitConflict},
		{api(codes.DeadlineExceeded, 0), exitTimeout},
		{api(codes.Canceled, 0), exitInterrupted},
		{api(codes.ResourceExhausted, pb.ErrorReason_ERROR_REASON_QUOTA_EXCEEDED), exitGeneral},
		{api(codes.Unimplemented, 0), exitGeneral},
		{api(codes.Internal, pb.ErrorReason_ERROR_REASON_INTERNAL), exitGeneral},
		{&apiError{code: codes.Unavailable, override: exitDenied}, exitDenied},
	} {
		if got := exitOf(c.err); got != c.want {
			t.Errorf("exitOf(%v) = %d, want %d", c.err, got, c.want)
		}
		if e, ok := errors.AsType[*apiError](c.err); ok {
			delete(undecided, e.reason)
		}
	}
	for r, name := range undecided {
		// SLOW_WATCHER never reaches the user: a watch begins again.
		if r != pb.ErrorReason_ERROR_REASON_SLOW_WATCHER {
			t.Errorf("no row for %s: decide its exit status", name)
		}
	}
}

func TestExitOfAll(t *testing.T) {
	missing, refused, cut := failf(exitNotFound, "a"), failf(exitConflict, "b"), failf(exitForced, "c")
	for _, c := range []struct {
		name string
		errs []error
		want exit
	}{
		{"none", nil, exitOK},
		{"all well", []error{nil, nil}, exitOK},
		{"all failed alike", []error{missing, missing}, exitNotFound},
		{"all failed", []error{missing, refused}, exitPartial},
		{"some failed", []error{nil, refused}, exitPartial},
		{"some by force, the others well", []error{nil, cut}, exitForced},
		{"some by force, others failed", []error{cut, refused}, exitPartial},
	} {
		if got := exitOfAll(c.errs); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}

func TestGoesOn(t *testing.T) {
	left := []string{"a", "b", "c", "d"}
	err := goesOn(timeoutError{after: 5e9}, "drain", left)
	if exitOf(err) != exitTimeout || err.Error() != "--timeout 5s ended, the drain of a, b, c and 1 more goes on: follow it with 'supctl watch a b c'" {
		t.Errorf("%d %v", exitOf(err), err)
	}
	err = goesOn(context.Canceled, "stop", left[:1])
	if exitOf(err) != exitInterrupted || err.Error() != "interrupted, the stop of a goes on: follow it with 'supctl watch a'" {
		t.Errorf("%d %v", exitOf(err), err)
	}
	if lost := errors.New("gone"); !errors.Is(goesOn(lost, "stop", left), lost) {
		t.Error("another error is to be passed on")
	}
}
