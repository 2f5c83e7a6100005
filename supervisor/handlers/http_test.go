package handlers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-111f5b8e/supervisord/supervisor"
)

func TestHTTPAnswers(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		header map[string]string
		want   verdict
	}{
		{"200", 200, nil, verdict{action: ack}},
		{"202", 202, nil, verdict{action: ack}},
		{"204", 204, nil, verdict{action: ack}},
		{"300", 300, nil, verdict{action: retryLater}},
		{"304", 304, nil, verdict{action: retryLater}},
		{"400", 400, nil, verdict{action: deadLetter}},
		{"401", 401, nil, verdict{action: deadLetter}},
		{"404", 404, nil, verdict{action: deadLetter}},
		{"408", 408, nil, verdict{action: retryLater}},
		{"409", 409, nil, verdict{action: deadLetter}},
		{"413", 413, nil, verdict{action: deadLetter}},
		{"425", 425, nil, verdict{action: retryLater}},
		{"431", 431, nil, verdict{action: deadLetter}},
		{"500", 500, nil, verdict{action: retryLater}},
		{"504", 504, nil, verdict{action: retryLater}},
		{"599", 599, nil, verdict{action: retryLater}},
		{"429 plain", 429, nil, verdict{action: retryLater}},
		{"429 seconds", 429, map[string]string{"Retry-After": "7"}, verdict{action: retryLater, after: 7 * time.Second}},
		{"503 seconds", 503, map[string]string{"Retry-After": " 90 "}, verdict{action: retryLater, after: 90 * time.Second}},
		{"503 zero", 503, map[string]string{"Retry-After": "0"}, verdict{action: retryLater}},
		{"503 capped", 503, map[string]string{"Retry-After": "86400"}, verdict{action: retryLater, after: time.Hour}},
		{"503 beyond int64", 503, map[string]string{"Retry-After": strings.Repeat("9", 30)}, verdict{action: retryLater, after: time.Hour}},
		{"503 negative", 503, map[string]string{"Retry-After": "-5"}, verdict{action: retryLater}},
		{"503 nonsense", 503, map[string]string{"Retry-After": "soon"}, verdict{action: retryLater}},
		{"500 has no Retry-After", 500, map[string]string{"Retry-After": "7"}, verdict{action: retryLater}},
		{"503 date by the server's clock", 503, map[string]string{
			"Date":        "Wed, 01 Jan 2020 00:00:00 GMT",
			"Retry-After": "Wed, 01 Jan 2020 00:00:30 GMT",
		}, verdict{action: retryLater, after: 30 * time.Second}},
		{"503 date past", 503, map[string]string{
			"Date":        "Wed, 01 Jan 2020 00:01:00 GMT",
			"Retry-After": "Wed, 01 Jan 2020 00:00:00 GMT",
		}, verdict{action: retryLater}},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				for k, v := range c.header {
					w.Header().Set(k, v)
				}
				w.WriteHeader(c.status)
			}))
			defer srv.Close()
			got := newHTTP(t, httpSpec(srv.URL, nil), nil).post(t.Context(), message())
			if got.action != c.want.action || got.after != c.want.after {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if (got.err == nil) != (c.want.action == ack) {
				t.Errorf("err %v", got.err)
			}
		})
	}
}

func TestRetryAfterDateWithoutServerClock(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	h := http.Header{"Retry-After": {now.Add(40 * time.Second).Format(http.TimeFormat)}}
	if got := retryAfter(h, now); got != 40*time.Second {
		t.Errorf("got %s, want 40s", got)
	}
}

func TestVerdictIsOutcome(t *testing.T) {
	err := errors.New("why")
	for _, c := range []struct {
		v    verdict
		want supervisor.Outcome
	}{
		{verdict{action: ack}, supervisor.Ack()},
		{verdict{action: retryLater, err: err}, supervisor.Retry(err)},
		{verdict{action: retryLater, err: err, after: time.Second}, supervisor.RetryAfter(err, time.Second)},
		{verdict{action: deadLetter, err: err}, supervisor.DeadLetter(err)},
	} {
		if got := c.v.outcome(); got != c.want {
			t.Errorf("%+v: got %+v, want %+v", c.v, got, c.want)
		}
	}
}

func TestHTTPRequest(t *testing.T) {
	var got *http.Request
	var body []byte
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	}))
	defer srv.Close()
	h := newHTTP(t, httpSpec(srv.URL+"/orders?tenant=a", map[string]string{
		"Authorization": "env:TOKEN", "X-Team": "payments", "ce-type": "shop.order",
	}), map[string]string{"env:TOKEN": "Bearer canary"})
	m := message()
	m.Headers = headers{{"Authorization", "Bearer stolen"}, {"Host", "evil"}, {"Content-Type", "application/json"}}
	m.Redelivered = 3
	m.Attempt = 2
	if o := h.Handle(t.Context(), m); o != supervisor.Ack() {
		t.Fatalf("got %+v", o)
	}
	if got.Method != http.MethodPost || got.URL.String() != "/orders?tenant=a" || string(body) != `{"n":1}` || got.ContentLength != 7 {
		t.Errorf("%s %s %q, length %d", got.Method, got.URL, body, got.ContentLength)
	}
	if got.Host != strings.TrimPrefix(srv.URL, "http://") {
		t.Errorf("host %q", got.Host)
	}
	want := map[string]string{
		"Authorization": "Bearer canary", "X-Team": "payments", "User-Agent": "supervisord",
		"Content-Type": "application/json", "Content-Length": "7",
		"Ce-Specversion": "1.0", "Ce-Id": "ORDERS:7", "Ce-Source": "/supervisord/shop/orders",
		"Ce-Type": "shop.order", "Ce-Subject": "orders.new", "Ce-Attempt": "2", "Ce-Redelivered": "3",
		"Message-Header-Authorization": "Bearer%20stolen", "Message-Header-Host": "evil",
	}
	for k, v := range want {
		if got.Header.Get(k) != v {
			t.Errorf("%s: got %q, want %q", k, got.Header.Get(k), v)
		}
	}
	if len(got.Header) != len(want) {
		t.Errorf("got %d headers, want %d: %v", len(got.Header), len(want), got.Header)
	}
}

// A handler's context decides what an unanswered call becomes.
func TestHTTPHanging(t *testing.T) {
	for _, c := range []struct {
		name string
		// answer is what the server sends before it hangs.
		answer string
	}{
		{"no answer", ""},
		{"half a status line", "HTTP/1.1 2"},
		{"body that never ends", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"},
		{"error body that never ends", "HTTP/1.1 400 Bad Request\r\nContent-Length: 9\r\n\r\nab"},
	} {
		t.Run(c.name+", timeout", func(t *testing.T) {
			url, _ := rawServer(t, func(conn net.Conn, _ int) { hang(conn, c.answer) })
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			got := newHTTP(t, httpSpec(url, nil), nil).post(ctx, message())
			if got.action != retryLater || !strings.Contains(got.err.Error(), "no answer within handler.timeout") {
				t.Errorf("got %+v", got)
			}
		})
		t.Run(c.name+", cancelled", func(t *testing.T) {
			arrived := make(chan struct{})
			url, _ := rawServer(t, func(conn net.Conn, _ int) {
				hangAfter(conn, c.answer, func() { close(arrived) })
			})
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				<-arrived
				cancel(errors.New("killed"))
			}()
			got := newHTTP(t, httpSpec(url, nil), nil).post(ctx, message())
			if got.action != retryLater || !strings.Contains(got.err.Error(), "cancelled: killed") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func hang(conn net.Conn, answer string) { hangAfter(conn, answer, func() {}) }

// hangAfter reads a request, sends the answer and then nothing until the
// client is gone.
func hangAfter(conn net.Conn, answer string, sent func()) {
	readRequest(conn)
	io.WriteString(conn, answer) //nolint:errcheck // the client may be gone
	sent()
	io.Copy(io.Discard, conn) //nolint:errcheck // the client may be gone
}

func TestHTTPBrokenAnswers(t *testing.T) {
	for _, c := range []struct {
		name  string
		serve func(net.Conn, int)
		want  action
		words string
	}{
		{"reset", func(conn net.Conn, _ int) {
			readRequest(conn)
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
		}, retryLater, "reset"},
		{"closed without an answer", func(conn net.Conn, _ int) { readRequest(conn) }, retryLater, "EOF"},
		{"not HTTP", func(conn net.Conn, _ int) {
			readRequest(conn)
			io.WriteString(conn, "220 smtp ready\r\n") //nolint:errcheck // the client may be gone
		}, retryLater, "malformed HTTP"},
		{"200 that breaks off", func(conn net.Conn, _ int) {
			readRequest(conn)
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab") //nolint:errcheck // the client may be gone
		}, retryLater, "200 OK, but the answer broke off"},
		{"400 that breaks off", func(conn net.Conn, _ int) {
			readRequest(conn)
			io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\nContent-Length: 9\r\n\r\nab") //nolint:errcheck // the client may be gone
		}, retryLater, "400 Bad Request, but the answer broke off"},
		{"switches protocols", func(conn net.Conn, _ int) {
			hang(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")
		}, retryLater, "nobody asked for"},
		{"200 without end", func(conn net.Conn, _ int) {
			readRequest(conn)
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n") //nolint:errcheck // the client may be gone
			for {
				if _, err := conn.Write(make([]byte, 8<<10)); err != nil {
					return
				}
			}
		}, ack, ""},
		{"header too large", func(conn net.Conn, _ int) {
			readRequest(conn)
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nX: %s\r\n\r\n", strings.Repeat("x", 2*maxAnswer))
		}, retryLater, "exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, _ := rawServer(t, c.serve)
			got := newHTTP(t, httpSpec(url, nil), nil).post(t.Context(), message())
			if got.action != c.want {
				t.Fatalf("got %+v", got)
			}
			if c.words != "" && !strings.Contains(got.err.Error(), c.words) {
				t.Errorf("got %q, want %q in it", got.err, c.words)
			}
		})
	}
}

// A server that closes an idle connection just when it is used again costs no
// attempt.
func TestHTTPStaleConnection(t *testing.T) {
	url, conns := rawServer(t, func(conn net.Conn, n int) {
		readRequest(conn)
		io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n") //nolint:errcheck // seen by the client
		readRequest(conn)
		if n == 2 {
			io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n") //nolint:errcheck // seen by the client
		}
	})
	h := newHTTP(t, httpSpec(url, nil), nil)
	for i := range 2 {
		if got := h.post(t.Context(), message()); got.action != ack {
			t.Fatalf("call %d: %+v", i+1, got)
		}
	}
	if n := conns(); n != 2 {
		t.Errorf("%d connections, want 2: the first was closed under the second call", n)
	}
}

func TestHTTPKeepsConnections(t *testing.T) {
	const slots, rounds = 32, 5
	var mu sync.Mutex
	conns := map[string]bool{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		conns[r.RemoteAddr] = true
		mu.Unlock()
		http.Error(w, strings.Repeat("x", 1000), http.StatusInternalServerError)
	}))
	defer srv.Close()
	h := newHTTP(t, httpSpec(srv.URL, nil), nil)
	for range rounds {
		var wg sync.WaitGroup
		for range slots {
			wg.Go(func() { h.post(t.Context(), message()) })
		}
		wg.Wait()
	}
	if len(conns) > slots {
		t.Errorf("%d connections for %d slots", len(conns), slots)
	}
}

func TestHTTP2(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || r.Header.Get("Idempotency-Key") != "" {
			http.Error(w, r.Proto, http.StatusBadRequest)
		}
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	h := newHTTP(t, httpSpec(srv.URL, nil), nil)
	trusting, ok := srv.Client().Transport.(*http.Transport)
	if !ok {
		t.Fatal("the server has another transport")
	}
	h.transport.TLSClientConfig = trusting.TLSClientConfig
	if got := h.post(t.Context(), message()); got.action != ack {
		t.Errorf("got %+v", got)
	}
}

func TestHTTPRedirectsAreNotFollowed(t *testing.T) {
	followed := false
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		followed = followed || r.URL.Path != "/"
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer srv.Close()
	got := newHTTP(t, httpSpec(srv.URL, nil), nil).post(t.Context(), message())
	if followed || got.action != retryLater {
		t.Errorf("followed %t, got %+v", followed, got)
	}
	if want := `307 Temporary Redirect to "/elsewhere"; redirects are not followed`; !strings.Contains(got.err.Error(), want) {
		t.Errorf("got %q, want %q in it", got.err, want)
	}
}

func TestHTTPIgnoresTheProxyOfTheEnvironment(t *testing.T) {
	url, used := rawServer(t, func(net.Conn, int) {})
	t.Setenv("HTTP_PROXY", url)
	t.Setenv("http_proxy", url)
	// .invalid never resolves: only a proxy could be reached.
	got := newHTTP(t, httpSpec("http://billing.invalid/", nil), nil).post(t.Context(), message())
	if got.action != retryLater || used() != 0 {
		t.Errorf("got %+v, proxy used %d times", got, used())
	}
}
