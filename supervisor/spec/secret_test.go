package spec_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
)

func TestSecret(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return "file:" + path
	}
	t.Setenv("SPEC_TEST_SECRET", " hunter2\n")
	for ref, want := range map[string]string{
		"env:SPEC_TEST_SECRET":                       " hunter2\n",
		write("plain", "hunter2"):                    "hunter2",
		write("newline", "hunter2\n"):                "hunter2",
		write("windows", "hunter2\r\n"):              "hunter2",
		write("two newlines", "hunter2\n\n"):         "hunter2\n",
		write("largest", strings.Repeat("x", 65536)): strings.Repeat("x", 65536),
	} {
		if got, err := spec.Secret(ref); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", ref, got, err, want)
		}
	}
}

func TestSecretFaults(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"empty": "", "newline": "\n", "large": strings.Repeat("hunter2", 10_000)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SPEC_TEST_EMPTY", "")
	for ref, want := range map[string]string{
		"hunter2":                     "write env:NAME or file:PATH",
		"":                            "write env:NAME or file:PATH",
		"env:":                        "write env:NAME or file:PATH",
		"env:a hunter2":               "write env:NAME or file:PATH",
		"file:a\x00hunter2":           "write env:NAME or file:PATH",
		"env:SPEC_TEST_UNSET":         "variable SPEC_TEST_UNSET is not set",
		"env:SPEC_TEST_EMPTY":         "variable SPEC_TEST_EMPTY is empty",
		"file:" + dir + "/none":       "none: no such file",
		"file:" + dir:                 "is no regular file",
		"file:" + dir + "/fifo":       "fifo is no regular file",
		"file:" + dir + "/empty":      "empty is empty",
		"file:" + dir + "/newline":    "newline is empty",
		"file:" + dir + "/large":      "large is larger than 64KiB",
		"file:" + dir + "/empty/more": "not a directory",
	} {
		got, err := spec.Secret(ref)
		if !errors.Is(err, spec.ErrSecret) || !strings.Contains(err.Error(), want) || got != "" {
			t.Errorf("%q is %q, %v; want an error with %q", ref, got, err, want)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v repeats the value", err)
		}
	}
}
