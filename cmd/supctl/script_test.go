package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"supctl": main})
}

// TestWithADaemon runs supctl as users do, against daemon processes with a
// JetStream inside. See words for what scripts can say beyond testscript's own
// commands.
func TestWithADaemon(t *testing.T) {
	bin := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", bin+"/",
		"github.com/seed-111f5b8e/supervisord/cmd/supervisord", "github.com/seed-111f5b8e/supervisord/cmd/supctl/testdata/hung")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the daemons: %v\n%s", err, out)
	}
	t.Run("scripts", func(t *testing.T) { runScripts(t, bin) })
	t.Run("confirmation", func(t *testing.T) { testConfirmation(t, bin) })
	t.Run("what was confirmed", func(t *testing.T) { testConfirmedIsWhatIsDone(t, bin) })
	t.Run("large apply", func(t *testing.T) { testLargeApply(t, bin) })
}

func runScripts(t *testing.T, bin string) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(e *testscript.Env) error {
			w, err := newWorld(e.WorkDir, bin, e.Vars)
			if err != nil {
				return err
			}
			e.Vars = w.env
			e.Values[worldKey{}] = w
			e.Defer(w.close)
			return nil
		},
		Cmds:               words(),
		RequireUniqueNames: true,
	})
}

type word = func(ts *testscript.TestScript, neg bool, args []string)

// words are the commands of the scripts.
func words() map[string]word {
	return map[string]word{
		// exits CODE ARG...: exactly that exit status of supctl.
		"exits": func(ts *testscript.TestScript, _ bool, args []string) {
			if code := statusOf(ts, args[1:]); strconv.Itoa(code) != args[0] {
				ts.Fatalf("supctl %s: exit status %d, want %s", strings.Join(args[1:], " "), code, args[0])
			}
		},
		// daemon start|stop|kill, and other kinds of daemons: see world.start.
		"daemon": do(func(w *world, args []string) error { return w.daemon(args[0]) }),
		// publish SUBJECT N: N messages, confirmed.
		"publish": do(func(w *world, args []string) error { return w.publish(args[0], args[1]) }),
		// gated N: N handler calls wait at the gate.
		"gated": do(func(w *world, args []string) error { return w.gate.await(args[0]) }),
		// open: calls that wait at the gate, and all to come, are answered.
		"open": do(func(w *world, _ []string) error { w.gate.open(); return nil }),
		// begin NAME ARG...: supctl in the background.
		"begin": func(ts *testscript.TestScript, _ bool, args []string) {
			check(ts, worldOf(ts).begin(ts.MkAbs("."), args[0], args[1:]))
		},
		// says NAME REGEXP: it has written a line like that, or will.
		"says": do(func(w *world, args []string) error { return w.background[args[0]].says(args[1]) }),
		// interrupt NAME: Ctrl-C.
		"interrupt": do(func(w *world, args []string) error { return w.background[args[0]].cmd.Process.Signal(os.Interrupt) }),
		// ends NAME CODE: it ends with that exit status.
		"ends": do(func(w *world, args []string) error { return w.background[args[0]].ends(args[1]) }),
		// fill FILE...: replaces $VARIABLES in them.
		"fill": func(ts *testscript.TestScript, _ bool, args []string) {
			for _, arg := range args {
				file := ts.MkAbs(arg)
				data, err := os.ReadFile(file)
				check(ts, err)
				check(ts, os.WriteFile(file, []byte(os.Expand(string(data), ts.Getenv)), 0o600))
			}
		},
	}
}

func do(f func(w *world, args []string) error) word {
	return func(ts *testscript.TestScript, _ bool, args []string) { check(ts, f(worldOf(ts), args)) }
}

func check(ts *testscript.TestScript, err error) {
	if err != nil {
		ts.Fatalf("%v", err)
	}
}

// statusOf runs supctl and gives its exit status.
func statusOf(ts *testscript.TestScript, args []string) int {
	err := ts.Exec("supctl", args...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	check(ts, err)
	return 0
}

type worldKey struct{}

func worldOf(ts *testscript.TestScript) *world {
	w, ok := ts.Value(worldKey{}).(*world)
	if !ok {
		ts.Fatalf("the script has no world")
	}
	return w
}
