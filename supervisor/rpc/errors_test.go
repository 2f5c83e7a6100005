package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/seed-111f5b8e/supervisord/brokers"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// mapped is toStatus of an error that nobody logs.
func mapped(err error) error { return toStatus(slog.New(slog.DiscardHandler), "m", err, nil) }

func details[D any](err error) []D {
	var out []D
	for _, d := range status.Convert(err).Details() {
		if d, ok := d.(D); ok {
			out = append(out, d)
		}
	}
	return out
}

// Every reason of the API has its code; a new one must be entered here.
func TestCodeOfEachReason(t *testing.T) {
	want := map[string]codes.Code{
		"UNSPECIFIED":              codes.Internal,
		"INVALID_ARGUMENT":         codes.InvalidArgument,
		"NOT_FOUND":                codes.NotFound,
		"INVALID_STATE_TRANSITION": codes.FailedPrecondition,
		"ETAG_MISMATCH":            codes.Aborted,
		"COUNT_MISMATCH":           codes.FailedPrecondition,
		"REQUEST_ID_REUSED":        codes.AlreadyExists,
		"CAPABILITY_UNSUPPORTED":   codes.FailedPrecondition,
		"BROKER_UNAVAILABLE":       codes.Unavailable,
		"BROKER_REFUSED":           codes.FailedPrecondition,
		"QUOTA_EXCEEDED":           codes.ResourceExhausted,
		"STORE_UNAVAILABLE":        codes.Unavailable,
		"SHUTTING_DOWN":            codes.Unavailable,
		"REVISION_COMPACTED":       codes.OutOfRange,
		"SLOW_WATCHER":             codes.ResourceExhausted,
		"PERMISSION_DENIED":        codes.PermissionDenied,
		"INTERNAL":                 codes.Internal,
	}
	for n := range pb.ErrorReason_name {
		reason := pb.ErrorReason(n)
		c, ok := want[short(reason)]
		if !ok {
			t.Errorf("no code is told here for %v", reason)
			continue
		}
		err := mapped(fmt.Errorf("wrapped: %w", &supervisor.Error{
			Reason: reason, Message: "what to do", Metadata: map[string]string{"state": "RUNNING"},
		}))
		wantError(t, err, c, short(reason))
		if got := status.Convert(err).Message(); got != "what to do" {
			t.Errorf("message %q", got)
		}
		if got := infoOf(t, err).GetMetadata()["state"]; got != "RUNNING" {
			t.Errorf("metadata %q", got)
		}
		if got := len(details[*errdetails.RetryInfo](err)) == 1; got != (c == codes.Unavailable) {
			t.Errorf("%v: RetryInfo: %v", reason, got)
		}
	}
}

func TestOtherErrors(t *testing.T) {
	if err := mapped(nil); err != nil {
		t.Errorf("nil gives %v", err)
	}
	for err, want := range map[error]codes.Code{
		context.Canceled: codes.Canceled,
		fmt.Errorf("w: %w", context.DeadlineExceeded):      codes.DeadlineExceeded,
		status.Error(codes.Unimplemented, "as it is"):      codes.Unimplemented,
		errors.New("open /var/lib/state.db: no such file"): codes.Internal,
	} {
		got := mapped(err)
		if status.Code(got) != want {
			t.Errorf("%v gives %v", err, got)
		}
		if want == codes.Internal && strings.Contains(got.Error(), "state.db") {
			t.Errorf("an unforeseen error shows its inside: %v", got)
		}
	}
}

func TestUnforeseenErrorsAreLogged(t *testing.T) {
	var l logs
	log := slog.New(slog.NewTextHandler(&l, nil))
	_ = toStatus(log, "/m/Pause", errors.New("torn page"), nil)
	_ = toStatus(log, "/m/Pause", &supervisor.Error{Reason: pb.ErrorReason_ERROR_REASON_NOT_FOUND}, nil)
	if s := l.String(); !strings.Contains(s, "torn page") || !strings.Contains(s, "/m/Pause") || strings.Count(s, "\n") != 1 {
		t.Errorf("the log is %q", s)
	}
}

func TestFaultsBecomeViolations(t *testing.T) {
	e := &supervisor.Error{Reason: pb.ErrorReason_ERROR_REASON_INVALID_ARGUMENT, Message: "2 faults"}
	e.Faults = []brokers.Fault{brokers.Faultf("items[0].spec.name", "bad"), brokers.Faultf("items[1].spec.stop.soft", "longer than hard")}
	bad := details[*errdetails.BadRequest](mapped(e))
	if len(bad) != 1 || len(bad[0].GetFieldViolations()) != 2 {
		t.Fatalf("details are %v", bad)
	}
	if v := bad[0].GetFieldViolations()[1]; v.GetField() != "items[1].spec.stop.soft" || v.GetDescription() != "longer than hard" {
		t.Errorf("violation is %v", v)
	}
}

// What brokers and specs say may be long, and no text at all.
func TestErrorsAreBoundedAndValid(t *testing.T) {
	long := strings.Repeat("\xffé", 100000)
	e := &supervisor.Error{
		Reason: pb.ErrorReason_ERROR_REASON_INVALID_ARGUMENT, Message: long, Metadata: map[string]string{"broker": long},
	}
	e.Faults = slices.Repeat([]brokers.Fault{{Path: long, Message: long}}, 5000)
	err := mapped(e)
	infoOf(t, err)
	bad := details[*errdetails.BadRequest](err)
	if len(bad) != 1 {
		t.Fatal("no violations")
	}
	all := bad[0].GetFieldViolations()
	if len(all) != maxFaults+1 || !strings.Contains(all[maxFaults].GetDescription(), "4900 more") {
		t.Errorf("%d violations, the last is %v", len(all), all[len(all)-1])
	}
	if n := len(status.Convert(err).Message()); n > 2*maxText {
		t.Errorf("the message has %d bytes", n)
	}
}
