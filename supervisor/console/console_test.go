package console

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixed is a supervisor that stands still.
type fixed struct {
	consumers    []supervisor.Snapshot
	info         *supervisorv1.GetServerInfoResponse
	shuttingDown bool
}

func (f *fixed) Each(do func(supervisor.Snapshot)) {
	for _, s := range f.consumers {
		do(s)
	}
}
func (f *fixed) Info() *supervisorv1.GetServerInfoResponse { return f.info }
func (f *fixed) ShuttingDown() bool                        { return f.shuttingDown }
func (*fixed) BytesInFlight() int64                        { return 4711 }
func (*fixed) HardLimitsFired() int64                      { return 3 }

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func wantAnswer(t *testing.T, h http.Handler, path string, status int, words string) {
	t.Helper()
	if code, body := get(t, h, path); code != status || !strings.Contains(body, words) {
		t.Errorf("%s: got %d %q, want %d %q", path, code, body, status, words)
	}
}

func TestHealth(t *testing.T) {
	c := New(Options{Log: slog.New(slog.DiscardHandler)})
	wantAnswer(t, c, "/livez", 200, "ok")
	wantAnswer(t, c, "/readyz", 503, "the store is not loaded yet")
	wantAnswer(t, c, "/metrics", 200, "go_goroutines")
	c.Show(&fixed{})
	wantAnswer(t, c, "/readyz", 200, "ok")
	c.Show(&fixed{shuttingDown: true})
	wantAnswer(t, c, "/livez", 200, "ok")
	wantAnswer(t, c, "/readyz", 503, "shutting down")
}

func TestMethods(t *testing.T) {
	c := New(Options{Log: slog.New(slog.DiscardHandler), Profiles: true})
	for _, path := range []string{"/livez", "/readyz", "/metrics", "/debug/pprof/"} {
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, nil))
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: got %d", path, w.Code)
		}
	}
	wantAnswer(t, c, "/", 404, "")
}

func TestProfilesOnlyWhenAskedFor(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/cmdline", "/debug/pprof/symbol"} {
		wantAnswer(t, New(Options{Log: log}), path, 404, "")
		wantAnswer(t, New(Options{Log: log, Profiles: true}), path, 200, "")
	}
}

// body reads an answer.
func body(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return string(b)
}
