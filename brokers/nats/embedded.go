package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// embedded is a server inside this process.
type embedded struct{ server *server.Server }

// startupLimit bounds the recovery of the streams on disk.
const startupLimit = 30 * time.Second

func startEmbedded(ctx context.Context, name string, cfg *supervisorv1.NatsConnection, env brokers.Env) (*embedded, error) {
	op := "start the embedded server"
	if env.DataDir == "" {
		return nil, &brokers.Error{Class: brokers.Refused, Op: op, Err: errors.New("there is no data directory"),
			Remedy: "start the daemon with one"}
	}
	opts := &server.Options{
		ServerName: "supervisord-" + name,
		// Signals are the daemon's: the server would end the process on them.
		NoSigs:     true,
		DontListen: true,
		JetStream:  true,
		StoreDir:   filepath.Join(env.DataDir, name),
		// What was acknowledged survives a power failure; the default syncs every
		// two minutes.
		SyncAlways: true,
	}
	if cfg.GetListen() != "" {
		host, port, fault := loopback(cfg.GetListen())
		if fault != "" {
			return nil, &brokers.Error{Class: brokers.Refused, Op: op, Err: fmt.Errorf("listen %s", fault)}
		}
		opts.Host, opts.Port, opts.DontListen = host, port, false
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, &brokers.Error{Class: brokers.Refused, Op: op, Err: err}
	}
	s.SetLoggerV2(serverLog{env.Log.With("connection", name)}, false, false, false)
	s.Start()
	limit := startupLimit
	if t, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(t))
	}
	if !s.ReadyForConnections(limit) || !s.JetStreamEnabled() {
		e := &embedded{s}
		e.stop()
		return nil, &brokers.Error{Class: brokers.Transient, Op: op, Err: errors.New("it did not come up; see its log"),
			Remedy: "is the address free, the data directory writable and whole?"}
	}
	return &embedded{s}, nil
}

// stop ends the server and waits for it: only then its files are at rest.
func (e *embedded) stop() {
	e.server.Shutdown()
	e.server.WaitForShutdown()
}

// serverLog writes the server's log lines to the daemon's.
type serverLog struct{ log *slog.Logger }

func (l serverLog) Noticef(format string, v ...any) { l.write(slog.LevelDebug, format, v) }
func (l serverLog) Debugf(format string, v ...any)  { l.write(slog.LevelDebug, format, v) }
func (l serverLog) Tracef(format string, v ...any)  { l.write(slog.LevelDebug, format, v) }
func (l serverLog) Warnf(format string, v ...any)   { l.write(slog.LevelWarn, format, v) }
func (l serverLog) Errorf(format string, v ...any)  { l.write(slog.LevelError, format, v) }

// Fatalf must not end the process: the server's own would.
func (l serverLog) Fatalf(format string, v ...any) { l.write(slog.LevelError, format, v) }

func (l serverLog) write(level slog.Level, format string, v []any) {
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, "embedded server", "says", fmt.Sprintf(format, v...))
	}
}
