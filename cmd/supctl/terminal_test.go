package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// atTerminal is a console before a daemon of its own.
func atTerminal(t *testing.T, bin string) *console {
	t.Helper()
	w, err := newWorld(t.TempDir(), bin, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	if err := w.daemon("start"); err != nil {
		t.Fatal(err)
	}
	c := newConsole(t, map[string]string{"SUPCTL_ADDR": w.socket()})
	c.now = time.Now
	c.stdinTTY, c.stderrTTY = true, true
	return c
}

// apply applies a spec for each name.
func (c *console) apply(names ...string) exit {
	var specs strings.Builder
	for _, n := range names {
		fmt.Fprintf(&specs, "---\nname: %[1]s\nsource: {connection: main, nats: {stream: %[1]s}}\nhandler: {log: {}}\n", n)
	}
	c.stdin = strings.NewReader(specs.String())
	return c.supctl("apply", "-f", "-")
}

func testConfirmation(t *testing.T, bin string) {
	t.Helper()
	c := atTerminal(t, bin)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	if got := c.apply("a", "b"); got != exitOK {
		t.Fatal(c.err.String())
	}
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

// readerFunc is a reader with one answer, which may take its time.
type readerFunc func() string

func (f readerFunc) Read(p []byte) (int, error) { return copy(p, f()), nil }

// What was confirmed is done and nothing else, though another consumer has come
// while the question stood.
func testConfirmedIsWhatIsDone(t *testing.T, bin string) {
	t.Helper()
	c, other := atTerminal(t, bin), newConsole(t, nil)
	if got := c.apply("a"); got != exitOK {
		t.Fatal(c.err.String())
	}
	other.getenv, other.now = c.getenv, c.now
	c.stdin = readerFunc(func() string {
		if got := other.apply("b"); got != exitOK {
			t.Error(other.err.String())
		}
		return "y\n"
	})
	if got := c.supctl("delete", "--all", "--force"); got != exitConflict || !strings.Contains(c.err.String(), "2 consumers match, not the 1 expected") {
		t.Errorf("exit status %d: %s", got, c.err.String())
	}
	if got := c.supctl("list", "-o", "name"); got != exitOK || c.out.String() != "default/a\ndefault/b\n" {
		t.Errorf("exit status %d: %s", got, c.out.String())
	}
}

// An apply that does not fit into one request is all or nothing too.
func testLargeApply(t *testing.T, bin string) {
	t.Helper()
	c := atTerminal(t, bin)
	const count = 2000
	specs := func(last string) io.Reader {
		var b strings.Builder
		for i := range count {
			connection := "main"
			if i == count-1 {
				connection = last
			}
			fmt.Fprintf(&b, "---\nname: c%d\nstart: STOPPED\nsource: {connection: %s, nats: {stream: S, filter_subjects: [%s]}}\nhandler: {log: {}}\n",
				i, connection, strings.Repeat("s", 600))
		}
		return strings.NewReader(b.String())
	}
	c.stdin = specs("other")
	if got := c.supctl("apply", "-f", "-"); got != exitUsage || !strings.Contains(c.err.String(), fmt.Sprintf("<stdin>:%d:22: source.connection: ", 5*count-1)) {
		t.Fatalf("exit status %d: %s", got, c.err.String())
	}
	if got := c.supctl("list", "-o", "name"); got != exitOK || c.out.Len() > 0 {
		t.Errorf("exit status %d: %s", got, c.out.String())
	}
	c.stdin = specs("main")
	if got := c.supctl("apply", "-f", "-", "-o", "name"); got != exitOK || strings.Count(c.out.String(), "\n") != count {
		t.Errorf("exit status %d: %s", got, c.err.String())
	}
	// They are several pages.
	if got := c.supctl("list", "-o", "name"); got != exitOK || strings.Count(c.out.String(), "\n") != count {
		t.Errorf("exit status %d: %s", got, c.err.String())
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
