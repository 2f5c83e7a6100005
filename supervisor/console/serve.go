package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/netutil"
)

const (
	readTimeout = 5 * time.Second
	// writeTimeout also bounds the profiles that may be asked for.
	writeTimeout = time.Minute
	idleTimeout  = time.Minute
	// endTimeout is what answers under way get at the end.
	endTimeout = time.Second

	maxHeader      = 16 << 10
	maxConnections = 64
)

// ErrRemote refuses to show the process to other machines by accident.
var ErrRemote = errors.New("not a loopback address; nothing here asks who is calling")

// Listen opens the console's address ("127.0.0.1:9600"; port 0 picks one). One
// that other machines can reach is ErrRemote unless remote allows it.
func Listen(addr string, remote bool) (net.Listener, error) {
	_, _, err := net.SplitHostPort(addr)
	var a *net.TCPAddr
	if err == nil {
		a, err = net.ResolveTCPAddr("tcp", addr)
	}
	if err != nil {
		return nil, fmt.Errorf("http address %q: %w; write one such as 127.0.0.1:9600", addr, err)
	}
	if !remote && !a.IP.IsLoopback() {
		return nil, fmt.Errorf("http address %q: %w; write 127.0.0.1:%d, or allow it", addr, ErrRemote, a.Port)
	}
	l, err := net.ListenTCP("tcp", a)
	if err != nil {
		return nil, fmt.Errorf("http address %q: %w; is another supervisord running? choose another address", addr, err)
	}
	return l, nil
}

// Serve answers on l until ctx ends, then closes it and returns within a
// second or two; nil when ctx ended it. End ctx last of all: readiness is asked
// for during a shutdown.
func (c *Console) Serve(ctx context.Context, l net.Listener, log *slog.Logger) error {
	var h http.Handler = c
	if a, ok := l.Addr().(*net.TCPAddr); ok && a.IP.IsLoopback() {
		h = localOnly(c)
	}
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: readTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(netutil.LimitListener(l, maxConnections)) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve the console: %w", err)
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if srv.Shutdown(ending) != nil {
		srv.Close() //nolint:errcheck // the listener is closed already
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the console: %w", err)
	}
	return nil
}

// localOnly refuses requests by another name than a loopback one: a web page
// whose name was made to resolve to this machine could read the answers.
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLocal(r.Host) {
			say(w, http.StatusForbidden, "refused: ask by localhost or a loopback address")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isLocal(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	if strings.EqualFold(host, "localhost") || host == "" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}
