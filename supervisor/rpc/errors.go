package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	domain = "supervisord"
	// retryAfter is what RetryInfo tells callers of something unavailable.
	retryAfter = 2 * time.Second
	// maxText, in bytes, and maxFaults bound what one error says: it travels in
	// headers, which clients limit.
	maxText   = 2 << 10
	maxFaults = 100
)

// code is the status code of a reason.
func code(r pb.ErrorReason) codes.Code {
	switch r {
	case pb.ErrorReason_ERROR_REASON_INVALID_ARGUMENT:
		return codes.InvalidArgument
	case pb.ErrorReason_ERROR_REASON_NOT_FOUND:
		return codes.NotFound
	case pb.ErrorReason_ERROR_REASON_INVALID_STATE_TRANSITION, pb.ErrorReason_ERROR_REASON_COUNT_MISMATCH,
		pb.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED, pb.ErrorReason_ERROR_REASON_BROKER_REFUSED:
		return codes.FailedPrecondition
	case pb.ErrorReason_ERROR_REASON_ETAG_MISMATCH:
		return codes.Aborted
	case pb.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED:
		return codes.AlreadyExists
	case pb.ErrorReason_ERROR_REASON_BROKER_UNAVAILABLE, pb.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE,
		pb.ErrorReason_ERROR_REASON_SHUTTING_DOWN:
		return codes.Unavailable
	case pb.ErrorReason_ERROR_REASON_QUOTA_EXCEEDED, pb.ErrorReason_ERROR_REASON_SLOW_WATCHER:
		return codes.ResourceExhausted
	case pb.ErrorReason_ERROR_REASON_REVISION_COMPACTED:
		return codes.OutOfRange
	case pb.ErrorReason_ERROR_REASON_PERMISSION_DENIED:
		return codes.PermissionDenied
	}
	return codes.Internal
}

// short is a reason as ErrorInfo carries it.
func short(r pb.ErrorReason) string { return strings.TrimPrefix(r.String(), "ERROR_REASON_") }

// toStatus turns an error, or a panic, of a call into what its caller sees.
// What nobody foresaw goes to the log, whole, and to the caller as INTERNAL.
func toStatus(log *slog.Logger, method string, err error, panicked any) error {
	var e *supervisor.Error
	switch {
	case panicked != nil:
		err = fmt.Errorf("panic: %v", panicked)
	case err == nil:
		return nil
	case errors.As(err, &e):
		return detailed(e)
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "the caller went away")
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "the call took too long; what was accepted goes on: ask for the state")
	default:
		if _, ok := status.FromError(err); ok {
			return err
		}
	}
	log.Error("a call failed", "method", method, "error", err, "stack", stackOf(panicked))
	return detailed(&supervisor.Error{
		Reason: pb.ErrorReason_ERROR_REASON_INTERNAL, Message: "a fault of the server; its log has the details",
	})
}

func detailed(e *supervisor.Error) error {
	st := status.New(code(e.Reason), bounded(e.Message))
	info := &errdetails.ErrorInfo{Reason: short(e.Reason), Domain: domain, Metadata: map[string]string{}}
	for k, v := range e.Metadata {
		info.Metadata[bounded(k)] = bounded(v)
	}
	details := []protoadapt.MessageV1{info}
	if len(e.Faults) > 0 {
		details = append(details, violations(e))
	}
	if st.Code() == codes.Unavailable {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retryAfter)})
	}
	with, err := st.WithDetails(details...)
	if err != nil {
		return st.Err()
	}
	return with.Err()
}

func violations(e *supervisor.Error) *errdetails.BadRequest {
	bad := &errdetails.BadRequest{}
	for i, f := range e.Faults {
		v := &errdetails.BadRequest_FieldViolation{Field: bounded(f.Path), Description: bounded(f.Message)}
		if i == maxFaults {
			v = &errdetails.BadRequest_FieldViolation{
				Description: fmt.Sprintf("and %d more: mend these, then try again", len(e.Faults)-i),
			}
		}
		bad.FieldViolations = append(bad.GetFieldViolations(), v)
		if i == maxFaults {
			break
		}
	}
	return bad
}

// bounded keeps a text short, and valid for protobuf, whatever a broker said.
func bounded(s string) string {
	if len(s) > maxText {
		s = s[:maxText-3] + "..."
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
