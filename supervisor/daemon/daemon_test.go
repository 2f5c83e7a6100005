package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"github.com/seed-111f5b8e/supervisord/supervisor/daemon"
)

func program() daemon.Program {
	return daemon.Program{
		Name: "mine", Version: "v0.0.1", Drivers: []brokers.Driver{&memory.Driver{}},
		Handlers: map[string]supervisor.Handler{"ack": supervisor.HandlerFunc(
			func(context.Context, *supervisor.Message) supervisor.Outcome { return supervisor.Ack() })},
	}
}

// write puts files into a folder of the test's own and returns it.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestMisuseIsExplained(t *testing.T) {
	dir := write(t, map[string]string{
		"config.yaml": "connections:\n  - {name: main, memory: {}}\n",
		"bad.yaml":    "connections:\n  - {name: main, memori: {}}\nshutdown: {soft: 3s, hard: 1s}\n",
		"spec.yaml":   "name: a\nsource: {connection: mian, memory: {queue: q}}\nhandler: {go: {name: ack}}\nconcurrency: 0\n",
	})
	cases := map[string]struct {
		args []string
		code int
		says []string
	}{
		"unknown flag":     {[]string{"serve", "--frob"}, 2, []string{"--frob", "serve --help"}},
		"extra argument":   {[]string{"serve", "extra"}, 2, []string{`"extra"`}},
		"bad config":       {[]string{"validate", "--config", dir + "/bad.yaml"}, 1, []string{"bad.yaml:2:", "memori", "bad.yaml:3:", "shutdown.soft"}},
		"no such config":   {[]string{"validate", "--config", dir + "/none.yaml"}, 1, []string{"none.yaml"}},
		"bad spec":         {[]string{"serve", "--config", dir + "/config.yaml", "--apply", dir + "/spec.yaml", "--data-dir", dir + "/data"}, 1, []string{"nothing was applied", "spec.yaml:2:", `"mian"`, "spec.yaml:4:", "concurrency"}},
		"tcp without tls":  {[]string{"serve", "--listen", "0.0.0.0:0", "--http", "", "--data-dir", dir + "/data"}, 1, []string{"tls", "unix socket"}},
		"console outside":  {[]string{"serve", "--http", "0.0.0.0:0", "--listen", dir + "/s", "--data-dir", dir + "/data"}, 1, []string{"loopback"}},
		"nothing to apply": {[]string{"serve", "--apply", dir + "/none", "--data-dir", dir + "/data"}, 1, []string{"none"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := program().Run(t.Context(), c.args, &out, &out)
			if got := daemon.ExitCode(err); got != c.code {
				t.Errorf("exit code %d, want %d", got, c.code)
			}
			for _, want := range c.says {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("it says %v, without %q", err, want)
				}
			}
		})
	}
}

func TestValidate(t *testing.T) {
	dir := write(t, map[string]string{
		"config.yaml": "connections:\n  - {name: main, memory: {}}\n",
		"spec.yaml":   "name: a\nsource: {connection: main, memory: {queue: q}}\nhandler: {go: {name: ack}}\n",
	})
	var out bytes.Buffer
	if err := program().Run(t.Context(), []string{"validate", "--config", dir + "/config.yaml", "--apply", dir + "/spec.yaml"}, &out, &out); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "1 connections, 1 consumers") {
		t.Errorf("it says %q", got)
	}
}

// output is a buffer that the daemon writes and the test reads.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
	up chan struct{}
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if bytes.Contains(p, []byte("supervisord is up")) {
		close(o.up)
	}
	return o.b.Write(p)
}

// TestServeWithoutAConfiguration: a daemon with nothing in it starts and ends.
func TestServeWithoutAConfiguration(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancelCause(t.Context())
	out := &output{up: make(chan struct{})}
	done := make(chan error, 1)
	go func() {
		done <- program().Run(ctx, []string{"serve", "--data-dir", dir, "--listen", dir + "/s", "--http", ""}, out, out)
	}()
	select {
	case <-out.up:
	case err := <-done:
		t.Fatalf("it ended: %v", err)
	case <-time.After(30 * time.Second):
		t.Fatal("it did not come up")
	}
	// A second one on the same data is refused at once.
	var second bytes.Buffer
	err := program().Run(t.Context(), []string{"serve", "--data-dir", dir, "--listen", dir + "/s2", "--http", ""}, &second, &second)
	if err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("the second one says %v", err)
	}
	cancel(errors.New("the test ends it"))
	if err := <-done; err != nil {
		t.Errorf("it ended with %v", err)
	}
}
