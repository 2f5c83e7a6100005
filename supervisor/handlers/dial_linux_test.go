package handlers

import (
	"context"
	"errors"
	"net"
	"net/http/httptrace"
	"strconv"
	"syscall"
	"testing"
)

// A dial to a host that does not answer outlives its call; it does not outlive
// the handler. (That no goroutine is left is checked after all tests.)
func TestHTTPCloseEndsDials(t *testing.T) {
	url := "http://" + deafListener(t)
	h := newHTTP(t, httpSpec(url, nil), nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	dialling := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		ConnectStart: func(_, _ string) { cancel(errors.New("killed")) },
	})
	got := h.post(dialling, message())
	if got.action != retryLater || context.Cause(ctx) == nil {
		t.Errorf("got %+v", got)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if got := h.post(t.Context(), message()); got.action != retryLater || !errors.Is(got.err, context.Canceled) {
		t.Errorf("after Close: got %+v", got)
	}
}

// deafListener is an address that takes no connection any more: its backlog is
// full and nobody accepts.
func deafListener(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) }) //nolint:errcheck // the test is over
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	in4, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		t.Fatalf("bound to %v", name)
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(in4.Port))
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return addr
}
