package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed-111f5b8e/supervisord/proto/endpoint"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// apiError is a call that the daemon refused or that did not reach it.
type apiError struct {
	code     codes.Code
	reason   pb.ErrorReason
	message  string
	metadata map[string]string
	// fields are the faults of a request, with paths from its root.
	fields     []*errdetails.BadRequest_FieldViolation
	retryAfter time.Duration
	// hint says what to do next, beyond what the message does.
	hint string
	// override, when set, decides instead of code and reason.
	override exit
}

// Error is the message of the daemon and what to do next.
func (e *apiError) Error() string {
	var b strings.Builder
	b.WriteString(printable(e.message))
	for _, f := range e.fields {
		if line := f.GetField() + ": " + f.GetDescription(); !strings.Contains(e.message, line) {
			b.WriteString("\n  " + printable(line))
		}
	}
	if next := e.next(); next != "" {
		b.WriteString(": " + next)
	}
	return b.String()
}

// next is what the caller can do about it.
func (e *apiError) next() string {
	if e.hint != "" {
		return e.hint
	}
	switch e.reason {
	case pb.ErrorReason_ERROR_REASON_INVALID_STATE_TRANSITION:
		if allowed := e.metadata["allowed"]; allowed != "" && !strings.Contains(e.message, allowed) {
			return fmt.Sprintf("in %s these are possible: %s", e.metadata["state"], allowed)
		}
	case pb.ErrorReason_ERROR_REASON_COUNT_MISMATCH:
		return "look with 'supctl list' and the same selector, then correct --expect-count"
	case pb.ErrorReason_ERROR_REASON_SHUTTING_DOWN:
		return "repeat it when the daemon is back"
	case pb.ErrorReason_ERROR_REASON_REVISION_COMPACTED:
		return "leave out --since to begin with what is now"
	}
	if e.retryAfter > 0 {
		return fmt.Sprintf("try again in %s", e.retryAfter)
	}
	if e.code == codes.Unimplemented {
		return "the daemon is older than this supctl; see 'supctl version'"
	}
	return ""
}

func (e *apiError) exit() exit {
	if e.override != 0 {
		return e.override
	}
	for _, r := range exitRules() {
		if r.code == e.code && (r.reason == 0 || r.reason == e.reason) {
			return r.exit
		}
	}
	return exitGeneral
}

// itemError is the error of one consumer among several.
func itemError(e *pb.ItemError) error {
	if e == nil {
		return nil
	}
	return &apiError{code: codes.Code(e.GetCode()), reason: e.GetReason(), message: e.GetMessage(), metadata: e.GetMetadata()}
}

// asItem is the reverse, for a call about one name among several calls.
func asItem(err error) *pb.ItemError {
	e, ok := errors.AsType[*apiError](err)
	if !ok {
		return &pb.ItemError{Code: int32(codes.Unknown), Message: err.Error()}
	}
	return &pb.ItemError{Code: int32(e.code), Reason: e.reason, Message: e.Error(), Metadata: e.metadata}
}

// errorDomain is that of the API's own errors.
const errorDomain = "supervisord"

// explain makes an *apiError of a call's error: what the daemon said, or why
// it could not be asked.
func (c *client) explain(ctx context.Context, method string, err error) error {
	if err == nil {
		return nil
	}
	st := status.Convert(err)
	if at, ok := ctx.Deadline(); ok && st.Code() == codes.DeadlineExceeded && time.Until(at) < time.Second {
		<-ctx.Done() // The daemon has the same deadline, and its clock was faster.
	}
	e := &apiError{code: st.Code(), message: st.Message()}
	answered := false
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			answered = d.GetDomain() == errorDomain
			e.reason = pb.ErrorReason(pb.ErrorReason_value["ERROR_REASON_"+d.GetReason()])
			e.metadata = d.GetMetadata()
		case *errdetails.BadRequest:
			e.fields = d.GetFieldViolations()
		case *errdetails.RetryInfo:
			e.retryAfter = d.GetRetryDelay().AsDuration()
		}
	}
	switch {
	case answered:
	case e.code == codes.Unavailable,
		e.code == codes.DeadlineExceeded && c.conn.GetState() != connectivity.Ready:
		return c.unreachable(st.Message(), unknownFate(method))
	case e.code == codes.DeadlineExceeded:
		return noAnswer(ctx, c.address, unknownFate(method))
	case e.code == codes.Canceled && ctx.Err() != nil:
		return failf(exitInterrupted, "interrupted%s", unknownFate(method))
	}
	return e
}

// unknownFate is what to say about a call whose answer did not come: nothing
// for one that only reads.
func unknownFate(method string) string {
	name := method[strings.LastIndexByte(method, '/')+1:]
	for _, reads := range []string{"Get", "List", "Watch"} {
		if strings.HasPrefix(name, reads) {
			return ""
		}
	}
	return "; whether it was carried out is not known: look with 'supctl get'"
}

// noAnswer is for a call that a connected daemon did not answer in time.
func noAnswer(ctx context.Context, at endpoint.Endpoint, fate string) error {
	t, ok := errors.AsType[timeoutError](context.Cause(ctx))
	if !ok {
		return failf(exitTimeout, "supervisord at %s gave up before it had an answer%s", at, fate)
	}
	return failf(exitTimeout, "no answer from supervisord at %s within %s%s", at, t.after, fate)
}

// unreachable says why there is no connection and what helps.
func (c *client) unreachable(message, fate string) error {
	at := "cannot reach supervisord at " + c.address.String() + ": "
	message = bare(message)
	e := &apiError{code: codes.Unavailable}
	var dial error
	if p := c.dialErr.Load(); p != nil {
		dial = *p
	}
	switch {
	case errors.Is(dial, fs.ErrPermission):
		e.override = exitDenied
		e.message = at + "permission denied"
		e.hint = "the socket belongs to another user; run supctl as that user or name another address with --addr"
	case dial != nil:
		e.message = at + reasonOf(dial)
		e.hint = "is it running? start it with 'supervisord serve' or name another address with --addr"
	case c.denied.Load() != nil:
		e.override = exitDenied
		e.message = at + (*c.denied.Load()).Error()
		e.hint = "give one that its authority has signed with --tls-cert and --tls-key"
	case strings.Contains(message, "remote error: tls:"):
		e.override = exitDenied
		e.message = at + "it refused the client certificate: " + message
		e.hint = "give a valid one that its authority has signed with --tls-cert and --tls-key"
	case strings.Contains(message, "authentication handshake failed"):
		e.message = at + message
		e.hint = "check --tls-ca and --tls-server-name, and that the daemon serves TLS there"
	default:
		e.message = "lost the connection to supervisord at " + c.address.String() + ": " + message + fate
	}
	return e
}

// bare is a transport's message without the frame that gRPC puts around it.
func bare(message string) string {
	for {
		_, inner, ok := strings.Cut(message, "desc = ")
		if !ok {
			return strings.TrimPrefix(message, "transport: ")
		}
		if unquoted, err := strconv.Unquote(inner); err == nil {
			inner = unquoted
		}
		message = inner
	}
}

// reasonOf is the last words of a dial error, without the address again.
func reasonOf(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "no socket is there"
	}
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		return no.Error()
	}
	return err.Error()
}
