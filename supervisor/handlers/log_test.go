package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"reflect"
	"strings"
	"testing"
	"unicode"

	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

func logSpec(level string, body int64) *supervisorv1.ConsumerSpec {
	return &supervisorv1.ConsumerSpec{Handler: &supervisorv1.Handler{Kind: &supervisorv1.Handler_Log{
		Log: &supervisorv1.LogHandler{Level: level, Body: &body},
	}}}
}

func TestLog(t *testing.T) {
	for _, c := range []struct {
		name string
		spec *supervisorv1.ConsumerSpec
		body string
		want map[string]any
	}{
		{"no body", logSpec("", 0), "secret", map[string]any{"level": "INFO"}},
		{"body", logSpec("WARN", 100), "a\nb", map[string]any{"level": "WARN", "body": "a\nb"}},
		{"cut between characters", logSpec("ERROR", 4), "abcé", map[string]any{"level": "ERROR", "body": "abc"}},
		{"binary", logSpec("", 100), "\xff\x00", map[string]any{"level": "INFO", "body": `"\xff\x00"`}},
		{"binary, cut", logSpec("", 2), "\x80\x80\x80\x80", map[string]any{"level": "INFO", "body": `"\x80\x80"`}},
		{"below the level", logSpec("DEBUG", 0), "x", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			h, err := Log().New(c.spec, supervisor.HandlerEnv{Log: slog.New(slog.NewJSONHandler(&out, nil))})
			if err != nil {
				t.Fatal(err)
			}
			m := message()
			m.Key, m.Body = []byte("k"), []byte(c.body)
			if o := h.Handle(t.Context(), m); o != supervisor.Ack() {
				t.Errorf("got %+v", o)
			}
			if c.want == nil {
				if out.Len() > 0 {
					t.Errorf("logged %s", out.String())
				}
				return
			}
			var got map[string]any
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatalf("%v: %s", err, out.String())
			}
			delete(got, "time")
			want := map[string]any{
				"msg": "message", "id": "ORDERS:7", "subject": "orders.new", "key": "k",
				"size": 7.0, "attempt": 1.0, "redelivered": 0.0,
			}
			maps.Copy(want, c.want)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
		})
	}
}

// One message is one line of printable text, whatever is in it.
func FuzzLogLine(f *testing.F) {
	f.Add("id\n", "s\x1b[2J", []byte("\r\x00"), []byte("\xff\n"))
	f.Add("\u009b", "\u202e", []byte("\u2028"), []byte("\x7f"))
	f.Fuzz(func(t *testing.T, id, subject string, key, body []byte) {
		var out bytes.Buffer
		h, err := Log().New(logSpec("", 100), supervisor.HandlerEnv{Log: slog.New(slog.NewTextHandler(&out, nil))})
		if err != nil {
			t.Fatal(err)
		}
		m := message()
		m.Name, m.Subject, m.Key, m.Body = id, subject, key, body
		h.Handle(context.Background(), m)
		line, end, _ := strings.Cut(out.String(), "\n")
		if end != "" || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q", out.String())
		}
	})
}

func TestLogCheck(t *testing.T) {
	wantFaults(t, Log().Check(logSpec("INFO", 64<<10)))
	wantFaults(t, Log().Check(logSpec("info", -1)),
		`handler.log.level: "info" is not a level; write DEBUG, INFO, WARN or ERROR`,
		"handler.log.body: between 0 and 64KiB")
	wantFaults(t, Log().Check(logSpec("", 64<<10+1)), "handler.log.body: between 0 and 64KiB")
}
