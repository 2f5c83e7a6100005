package console

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Options of a console.
type Options struct {
	// Profiles serves /debug/pprof too, which shows what is in memory.
	Profiles bool
	Log      *slog.Logger
}

// Console answers:
//   - GET /livez: 200 as long as the process answers at all. It depends on no
//     broker and no consumer: a restart would mend none of them.
//   - GET /readyz: 200 when the API takes requests; 503 before the store is
//     loaded and from the beginning of a shutdown. The body says why.
//   - GET /metrics: Prometheus' text format.
//   - /debug/pprof, if asked for.
//
// It is safe for concurrent use.
type Console struct {
	source  atomic.Pointer[Source]
	handler http.Handler
}

// New makes a console that is not ready yet.
func New(o Options) *Console {
	c := &Console{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", c.livez)
	mux.HandleFunc("GET /readyz", c.readyz)
	mux.Handle("GET /metrics", c.metrics(o.Log))
	if o.Profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	c.handler = mux
	return c
}

// Show gives the console the supervisor to show: the store is loaded.
func (c *Console) Show(s Source) { c.source.Store(&s) }

// ServeHTTP answers one request.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	c.handler.ServeHTTP(w, r)
}

func (c *Console) shown() Source {
	if s := c.source.Load(); s != nil {
		return *s
	}
	return nil
}

func (*Console) livez(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") }

func (c *Console) readyz(w http.ResponseWriter, _ *http.Request) {
	switch s := c.shown(); {
	case s == nil:
		say(w, http.StatusServiceUnavailable, "not ready: the store is not loaded yet")
	case s.ShuttingDown():
		say(w, http.StatusServiceUnavailable, "not ready: shutting down")
	default:
		say(w, http.StatusOK, "ok")
	}
}

func say(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	io.WriteString(w, text+"\n") //nolint:errcheck // the client may be gone
}

// maxScrapes at the same time: one of 10,000 busy consumers takes a second or
// two of a core and some 180 MB, most of it in the library.
const maxScrapes = 3

func (c *Console) metrics(log *slog.Logger) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		newCollector(c.shown, time.Now),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog:            scrapeLog{log},
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: maxScrapes,
	})
}

// scrapeLog takes what promhttp reports.
type scrapeLog struct{ log *slog.Logger }

func (l scrapeLog) Println(v ...any) { l.log.Warn("metrics scrape", "error", fmt.Sprint(v...)) }
