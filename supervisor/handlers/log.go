package handlers

import (
	"bytes"
	"context"
	"log/slog"
	"strconv"
	"unicode/utf8"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

// maxLogBody is the most of a body that a line may show.
const maxLogBody = 64 << 10

// Log is the kind that writes one line per message to the consumer's log and
// acks it. A message counts as handled when the line was written, which is not
// durable.
func Log() supervisor.HandlerKind { return logKind{} }

type logKind struct{}

func (logKind) Kind() string { return "log" }

func (logKind) Check(s *supervisorv1.ConsumerSpec) []brokers.Fault {
	spec := s.GetHandler().GetLog()
	var faults []brokers.Fault
	if _, ok := logLevel(spec.GetLevel()); !ok {
		faults = append(faults, brokers.Faultf("handler.log.level",
			"%q is not a level; write DEBUG, INFO, WARN or ERROR", spec.GetLevel()))
	}
	if b := spec.GetBody(); b < 0 || b > maxLogBody {
		faults = append(faults, brokers.Faultf("handler.log.body", "must be between 0 and 64KiB"))
	}
	return faults
}

func (logKind) New(s *supervisorv1.ConsumerSpec, env supervisor.HandlerEnv) (supervisor.Handler, error) {
	spec := s.GetHandler().GetLog()
	level, _ := logLevel(spec.GetLevel())
	return logHandler{log: env.Log, level: level, body: int(spec.GetBody())}, nil
}

func logLevel(s string) (slog.Level, bool) {
	switch s {
	case "DEBUG":
		return slog.LevelDebug, true
	case "", "INFO":
		return slog.LevelInfo, true
	case "WARN":
		return slog.LevelWarn, true
	case "ERROR":
		return slog.LevelError, true
	}
	return 0, false
}

type logHandler struct {
	log   *slog.Logger
	level slog.Level
	// body bytes are shown.
	body int
}

func (h logHandler) Handle(ctx context.Context, m *supervisor.Message) supervisor.Outcome {
	if !h.log.Enabled(ctx, h.level) {
		return supervisor.Ack()
	}
	attrs := []slog.Attr{
		slog.String("id", printable([]byte(m.ID()))),
		slog.String("subject", printable([]byte(m.Subject))),
		slog.String("key", printable(m.Key)),
		slog.Int64("size", m.Size),
		slog.Int("attempt", int(m.Attempt)),
		slog.Int("redelivered", int(m.Redelivered)),
	}
	if h.body > 0 {
		attrs = append(attrs, slog.String("body", printable(beginning(m.Body, h.body))))
	}
	h.log.LogAttrs(ctx, h.level, "message", attrs...)
	return supervisor.Ack()
}

// beginning is at most n bytes, not ending within a character.
func beginning(b []byte, n int) []byte {
	if len(b) <= n {
		return b
	}
	for cut := n; cut > 0 && n-cut < utf8.UTFMax; cut-- {
		if utf8.RuneStart(b[cut]) {
			return b[:cut]
		}
	}
	return b[:n]
}

// printable is a text as it is, for slog escapes what terminals would obey but
// for DEL; with that, or when it is not UTF-8, as a quoted Go string.
func printable(b []byte) string {
	if utf8.Valid(b) && !bytes.ContainsRune(b, 0x7f) {
		return string(b)
	}
	return strconv.Quote(string(b))
}
