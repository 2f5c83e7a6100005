package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// noon is when the tests of this package take place.
func noon() time.Time { return time.Date(2026, 12, 1, 12, 0, 0, 0, time.FixedZone("CET", 3600)) }

// console is an environment whose output a test reads.
type console struct {
	*environment
	out, err bytes.Buffer
}

func newConsole(t *testing.T, env map[string]string) *console {
	t.Helper()
	c := &console{}
	c.environment = &environment{
		stdin: strings.NewReader(""), stdout: &c.out, stderr: &c.err,
		getenv:    func(k string) string { return env[k] },
		now:       noon,
		size:      func() (int, int) { return 60, 24 },
		configDir: t.TempDir(),
	}
	return c
}

// supctl runs a command line and gives its exit status.
func (c *console) supctl(args ...string) exit {
	c.out.Reset()
	c.err.Reset()
	return report(c.environment, run(context.Background(), args, c.environment))
}

// golden compares with a file in testdata/golden, or writes it when
// $UPDATE_GOLDEN is set.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name+".txt")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n%s\nwant:\n%s", file, got, want)
	}
}
