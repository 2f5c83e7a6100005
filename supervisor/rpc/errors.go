package rpc

import (
	"context"
	"errors"
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
)

// code is the status code of a reason.
func code(r pb.ErrorReason) codes.Code {
	switch r {
	case pb.ErrorReason_ERROR_REASON_INVALID_ARGUMENT:
		return codes.InvalidArgument
	case pb.ErrorReason_ERROR_REASON_NOT_FOUND:
		return codes.NotFound
	case pb.ErrorReason_ERROR_REASON_INVALID_STATE_TRANSITION, pb.ErrorReason_ERROR_REASON_COUNT_MISMATCH,
		pb.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED:
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

// toStatus turns what the supervisor says into a status with its details.
func toStatus(err error) error {
	var e *supervisor.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return detailed(e)
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "the caller went away")
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "the request's deadline is over; what was accepted goes on")
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return detailed(&supervisor.Error{Reason: pb.ErrorReason_ERROR_REASON_INTERNAL, Message: "a fault of the server; its log has the details"})
}

func detailed(e *supervisor.Error) error {
	st := status.New(code(e.Reason), e.Message)
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: short(e.Reason), Domain: domain, Metadata: e.Metadata}}
	if len(e.Faults) > 0 {
		bad := &errdetails.BadRequest{}
		for _, f := range e.Faults {
			bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{
				Field: f.Path, Description: f.Message,
			})
		}
		details = append(details, bad)
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
