package main

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/seed-111f5b8e/supervisord/proto/endpoint"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// answer is the error of a daemon.
func answer(t *testing.T, c codes.Code, message string, details ...protoadapt.MessageV1) error {
	t.Helper()
	s, err := status.New(c, message).WithDetails(details...)
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

func info(reason string, metadata map[string]string) *errdetails.ErrorInfo {
	return &errdetails.ErrorInfo{Domain: errorDomain, Reason: reason, Metadata: metadata}
}

func newClient(t *testing.T) *client {
	t.Helper()
	a := &app{env: newConsole(t, map[string]string{"SUPCTL_ADDR": "/run/x.sock"}).environment}
	c, err := a.connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c
}

func TestAnswersAreExplained(t *testing.T) {
	for _, x := range []struct {
		err    error
		status exit
		want   string
	}{
		{
			answer(t, codes.FailedPrecondition, "orders is RUNNING", info("INVALID_STATE_TRANSITION", map[string]string{"state": "RUNNING", "allowed": "stop, kill"})),
			exitConflict, "orders is RUNNING: in RUNNING these are possible: stop, kill",
		},
		{
			answer(t, codes.FailedPrecondition, "orders is RUNNING; possible are stop, kill", info("INVALID_STATE_TRANSITION", map[string]string{"state": "RUNNING", "allowed": "stop, kill"})),
			exitConflict, "orders is RUNNING; possible are stop, kill",
		},
		{
			answer(t, codes.InvalidArgument, "soft: too long", info("INVALID_ARGUMENT", nil),
				&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "soft", Description: "too long"}, {Field: "hard", Description: "negative"}}}),
			exitUsage, "soft: too long\n  hard: negative",
		},
		{
			answer(t, codes.Unavailable, "the store hangs", info("STORE_UNAVAILABLE", nil), &errdetails.RetryInfo{RetryDelay: durationpb.New(2 * time.Second)}),
			exitGeneral, "the store hangs: try again in 2s",
		},
		{answer(t, codes.Unavailable, "the daemon is shutting down", info("SHUTTING_DOWN", nil)), exitUnreachable, "the daemon is shutting down: repeat it when the daemon is back"},
		{answer(t, codes.Unimplemented, "unknown method Frob"), exitGeneral, "unknown method Frob: the daemon is older than this supctl; see 'supctl version'"},
		{answer(t, codes.Internal, "wrong \x1b[2J"), exitGeneral, `wrong \x1b[2J`},
		{answer(t, codes.PermissionDenied, "no right", info("A_REASON_OF_TOMORROW", nil)), exitDenied, "no right"},
		// Not the daemon's own answer, but of something between.
		{answer(t, codes.Unavailable, "upstream", &errdetails.ErrorInfo{Domain: "proxy", Reason: "SHUTTING_DOWN"}), exitUnreachable, "lost the connection to supervisord at unix:///run/x.sock: upstream"},
	} {
		err := newClient(t).explain(t.Context(), pb.ConsumerService_Get_FullMethodName, x.err)
		if exitOf(err) != x.status || err.Error() != x.want {
			t.Errorf("%v\nis explained with %d %q\nwant %d %q", x.err, exitOf(err), err, x.status, x.want)
		}
	}
}

func TestUnreachable(t *testing.T) {
	refused := func(err error) *error {
		err = &net.OpError{Op: "dial", Net: "unix", Err: err}
		return &err
	}
	for _, x := range []struct {
		name         string
		dial, denied *error
		message      string
		status       exit
		want         string
	}{
		{"no socket", refused(os.NewSyscallError("connect", syscall.ENOENT)), nil, "", exitUnreachable, "no socket is there: is it running? start it with 'supervisord serve' or name another address with --addr"},
		{"nobody listens", refused(os.NewSyscallError("connect", syscall.ECONNREFUSED)), nil, "", exitUnreachable, "connection refused: is it running?"},
		{"another user's", refused(os.NewSyscallError("connect", syscall.EACCES)), nil, "", exitDenied, "permission denied: the socket belongs to another user"},
		{"permission in another form", refused(fs.ErrPermission), nil, "", exitDenied, "permission denied"},
		{"no certificate", nil, refused(fs.ErrInvalid), "", exitDenied, "give one that its authority has signed"},
		{"an alert", nil, nil, `connection error: desc = "transport: remote error: tls: expired certificate"`, exitDenied, "it refused the client certificate: remote error: tls: expired certificate"},
		{"no trust", nil, nil, `connection error: desc = "transport: authentication handshake failed: x509: unknown authority"`, exitUnreachable, "authentication handshake failed: x509: unknown authority: check --tls-ca"},
		{"lost", nil, nil, "error reading from server: EOF", exitUnreachable, "lost the connection to supervisord at unix:///run/x.sock: error reading from server: EOF"},
	} {
		c := newClient(t)
		c.dialErr.Store(x.dial)
		c.denied.Store(x.denied)
		err := c.explain(t.Context(), pb.ConsumerService_List_FullMethodName, status.Error(codes.Unavailable, x.message))
		if exitOf(err) != x.status || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %d %v; want %d %s", x.name, exitOf(err), err, x.status, x.want)
		}
	}
}

func TestNobodyKnowsWhetherALostChangeWasMade(t *testing.T) {
	c := newClient(t)
	for method, unknown := range map[string]bool{
		pb.ConsumerService_Get_FullMethodName: false, pb.ConsumerService_Watch_FullMethodName: false, pb.ConsumerService_ListReceipts_FullMethodName: false,
		pb.ConsumerService_Pause_FullMethodName: true, pb.ConsumerService_Apply_FullMethodName: true, pb.ConsumerService_CancelInFlight_FullMethodName: true,
	} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Nanosecond, timeoutError{time.Second})
		defer cancel()
		for _, lost := range []error{status.Error(codes.Unavailable, "EOF"), status.Error(codes.DeadlineExceeded, "")} {
			err := c.explain(ctx, method, lost)
			if got := strings.Contains(fmt.Sprint(err), "whether it was carried out is not known"); got != unknown {
				t.Errorf("%s: %v", method, err)
			}
		}
	}
	err := noAnswer(t.Context(), endpoint.Endpoint{Network: "tcp", Address: "a:1"}, "")
	if exitOf(err) != exitTimeout || !strings.Contains(err.Error(), "tcp://a:1 gave up") {
		t.Errorf("got %v", err)
	}
}

// What a broker, a producer or another client wrote is shown on a terminal.
func FuzzPrintable(f *testing.F) {
	for _, s := range []string{"orders", "\x1b]0;title\a", "a\xffb", "two\nlines", "\u202e", "\ufffd", "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range printable(s) {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Errorf("printable(%q) has %q", s, r)
			}
		}
		if strings.ContainsAny(oneLine(s), "\n\r") {
			t.Errorf("oneLine(%q) = %q", s, oneLine(s))
		}
		if again := printable(printable(s)); again != printable(s) {
			t.Errorf("printable(%q) changes what is printable", s)
		}
	})
}

func FuzzConditions(f *testing.F) {
	for _, s := range []string{"drained", "state=PAUSED,STOPPED", "lag<10", "inflight=0", "=", "state=", "lag<-9223372036854775809"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, err := parseCondition(s)
		if err != nil {
			if exitOf(err) != exitUsage {
				t.Errorf("parseCondition(%q) = %v", s, err)
			}
			return
		}
		if !c.drained && c.figure == nil && len(c.states) == 0 {
			t.Errorf("parseCondition(%q) asks for nothing", s)
		}
	})
}

func FuzzUntil(f *testing.F) {
	for _, s := range []string{"15:30", "2026-12-24", "2026-12-24 18:00", "2026-12-24T18:00:00Z", "0000-00-00", "99:99"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if at, err := parseUntil(s, noon()); err == nil && !at.After(noon()) {
			t.Errorf("parseUntil(%q) = %s, which has passed", s, at)
		}
	})
}
