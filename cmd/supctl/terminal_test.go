package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// testConfirmation answers questions at a terminal; the daemon is a process.
func testConfirmation(t *testing.T, bin string) {
	t.Helper()
	w, err := newWorld(t.TempDir(), bin, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	if err := w.daemon("start"); err != nil {
		t.Fatal(err)
	}
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	c := newConsole(t, map[string]string{"SUPCTL_ADDR": w.socket()})
	c.now = time.Now
	c.stdin = strings.NewReader("name: a\nsource: {connection: main, nats: {stream: A}}\nhandler: {log: {}}\n---\n" +
		"name: b\nsource: {connection: main, nats: {stream: B}}\nhandler: {log: {}}\n")
	if got := c.supctl("apply", "-f", "-"); got != exitOK {
		t.Fatal(c.err.String())
	}
	c.stdinTTY, c.stderrTTY = true, true
	for _, x := range []struct {
		args   string
		answer string
		status exit
		asks   string
		out    string
	}{
		{"pause a", "", exitOK, "", "a paused in "},
		{"kill a", "n\n", exitGeneral, "kill of 1: a\nIt cuts handlers off", ""},
		{"kill a", "\n", exitGeneral, "Go on? [y/N] ", ""},
		{"kill a", "", exitGeneral, "not confirmed, nothing was done", ""},
		{"kill a b", "y\n", exitOK, "kill of 2: a, b\n", "a killed"},
		{"delete --all", "no\n", exitGeneral, "delete of 2: default/a, default/b\nIt removes the consumers for good", ""},
		{"delete a", "", exitOK, "", "a deleted"},
		{"delete --all --yes", "", exitOK, "", "b deleted"},
	} {
		c.stdin = strings.NewReader(x.answer)
		got := c.supctl(strings.Fields(x.args)...)
		if got != x.status || !strings.Contains(c.err.String(), x.asks) || !strings.HasPrefix(c.out.String(), x.out) || (x.out == "") != (c.out.Len() == 0) {
			t.Errorf("%s, answered %q: exit status %d\nstderr: %s\nstdout: %s", x.args, x.answer, got, c.err.String(), c.out.String())
		}
	}
}

// A Ctrl-C at a question ends it, though the answer never comes.
func TestInterruptedQuestion(t *testing.T) {
	c := newConsole(t, nil)
	c.stdinTTY, c.stderrTTY = true, true
	never, stop := io.Pipe()
	defer func() { _ = stop.Close() }()
	c.stdin = never
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(context.Canceled)
	err := run(ctx, []string{"kill", "a"}, c.environment)
	if got := report(c.environment, err); got != exitInterrupted || !strings.Contains(c.err.String(), "interrupted, nothing was done") {
		t.Errorf("exit status %d: %s", got, c.err.String())
	}
}

// Colours are for terminals whose user has not said no.
func TestColours(t *testing.T) {
	for _, c := range []struct {
		name string
		env  map[string]string
		tty  bool
		flag bool
		want bool
	}{
		{"a terminal", nil, true, false, true},
		{"a pipe", nil, false, false, false},
		{"NO_COLOR", map[string]string{"NO_COLOR": "1"}, true, false, false},
		{"a dumb terminal", map[string]string{"TERM": "dumb"}, true, false, false},
		{"--no-color", nil, true, true, false},
	} {
		a := &app{env: newConsole(t, c.env).environment}
		a.env.stdoutTTY, a.flags.noColor = c.tty, c.flag
		if got := a.color(); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}
