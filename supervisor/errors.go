package supervisor

import (
	"errors"

	"github.com/seed-111f5b8e/supervisord/brokers"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/store"
)

func invalid(path, message string) *Error {
	return &Error{
		Reason: pb.ErrorReason_ERROR_REASON_INVALID_ARGUMENT, Message: path + ": " + message,
		Faults: []brokers.Fault{{Path: path, Message: message}},
	}
}

func storeError(err error) *Error {
	return errorf(pb.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE,
		"not done, because the state store cannot be written (pause, stop and kill still work): %v", err)
}

// uncertain tells whether a write that failed may still happen.
func uncertain(err error) bool {
	return err != nil && !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrClosed)
}

func etagMismatch(k key, now string) *Error {
	return &Error{
		Reason:   pb.ErrorReason_ERROR_REASON_ETAG_MISMATCH,
		Message:  k.String() + " was changed by someone else meanwhile: read it again, then decide",
		Metadata: map[string]string{"etag": now},
	}
}

// itemError is an error inside the result of a bulk request; whoever speaks
// gRPC adds the code.
func itemError(err error) *pb.ItemError {
	if e, ok := errors.AsType[*Error](err); ok {
		return &pb.ItemError{Reason: e.Reason, Message: e.Message, Metadata: e.Metadata}
	}
	return &pb.ItemError{Reason: pb.ErrorReason_ERROR_REASON_INTERNAL, Message: err.Error()}
}
