package console

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/seed-111f5b8e/supervisord/supervisor"
)

func TestListen(t *testing.T) {
	for _, c := range []struct {
		addr   string
		remote bool
		want   error
	}{
		{"127.0.0.1:0", false, nil},
		{"127.0.0.2:0", false, nil},
		{"localhost:0", false, nil},
		{"0.0.0.0:0", false, ErrRemote},
		{":0", false, ErrRemote},
		{"[::]:0", false, ErrRemote},
		{"192.0.2.1:9600", false, ErrRemote},
		{"127.0.0.1:0", true, nil},
		{":0", true, nil},
	} {
		l, err := Listen(c.addr, c.remote)
		if !errors.Is(err, c.want) {
			t.Errorf("%s, remote %t: got %v, want %v", c.addr, c.remote, err, c.want)
		}
		if l != nil {
			_ = l.Close()
		}
	}
	for _, bad := range []string{"", "9600", "127.0.0.1:x", "127.0.0.1:99999"} {
		if l, err := Listen(bad, true); err == nil {
			_ = l.Close()
			t.Errorf("%q was accepted", bad)
		}
	}
}

// served runs a console on a port of its own until the test ends.
func served(t *testing.T, source Source) (url string, stop func() error) {
	t.Helper()
	l, err := Listen("127.0.0.1:0", false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	log := slog.New(slog.DiscardHandler)
	c := New(Options{Log: log})
	c.Show(source)
	go func() { done <- c.Serve(ctx, l, log) }()
	return l.Addr().String(), func() error {
		cancel(errors.New("the test ends"))
		return <-done
	}
}

func TestServe(t *testing.T) {
	addr, stop := served(t, &fixed{})
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for host, want := range map[string]int{
		"":                 200,
		"localhost:1":      200,
		"LocalHost":        200,
		"[::1]":            200,
		"127.0.0.9:80":     200,
		"attacker.example": 403,
		"192.0.2.1:9600":   403,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/livez", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if text := body(t, resp); resp.StatusCode != want {
			t.Errorf("host %q: got %d %s, want %d", host, resp.StatusCode, text, want)
		}
		if resp.Header.Get("X-Content-Type-Options") != "nosniff" && want == 200 {
			t.Errorf("headers %v", resp.Header)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", addr); err == nil {
		_ = conn.Close()
		t.Error("still listening")
	}
}

// stuck is a supervisor that does not answer a scrape.
type stuck struct {
	*fixed
	asked, release chan struct{}
}

func (s stuck) Each(func(supervisor.Snapshot)) {
	close(s.asked)
	<-s.release
}

// An answer that is not done does not hold up the end.
func TestServeEndsInTime(t *testing.T) {
	source := stuck{&fixed{}, make(chan struct{}), make(chan struct{})}
	addr, stop := served(t, source)
	defer close(source.release)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	<-source.asked
	start := time.Now()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > endTimeout+2*time.Second {
		t.Errorf("took %s", took)
	}
	if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is still there")
	}
}

func TestServeTellsWhyItEnded(t *testing.T) {
	l, err := Listen("127.0.0.1:0", false)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	log := slog.New(slog.DiscardHandler)
	if err := New(Options{Log: log}).Serve(t.Context(), l, log); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
