// Command mutants puts one mistake after another into a copy of the source tree
// and runs the tests that must find it. It fails when a mistake survives, when
// one no longer applies to the source, and when one does not compile.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be stopped
	}
}

func run(ctx context.Context, args []string, w io.Writer) error {
	fs := flag.NewFlagSet("mutants", flag.ContinueOnError)
	only := fs.String("run", "", "only the mutants whose names match this regular expression")
	if err := fs.Parse(args); err != nil {
		return err
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	tree, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer tree.Close() //nolint:errcheck // a temporary folder
	if err := copyTree(ctx, tree); err != nil {
		return err
	}
	var errs []error
	ran := 0
	for _, m := range mutants() {
		if !match.MatchString(m.name) || ctx.Err() != nil {
			continue
		}
		ran++
		began := time.Now()
		by, err := m.try(ctx, tree)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
			fmt.Fprintf(w, "%-48s %v\n", m.name, err)
			continue
		}
		fmt.Fprintf(w, "%-48s dead after %s: %s\n", m.name, time.Since(began).Round(time.Second), by)
	}
	fmt.Fprintf(w, "%d mutants, %d not dead\n", ran, len(errs))
	if ran == 0 {
		errs = append(errs, errors.New("no mutant has such a name"))
	}
	return errors.Join(append(errs, context.Cause(ctx))...)
}

// copyTree copies what git tracks, as it stands in the work tree.
func copyTree(ctx context.Context, tree *os.Root) error {
	out, err := exec.CommandContext(ctx, "git", "ls-files", "-z").Output()
	if err != nil {
		return fmt.Errorf("list the source: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		b, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			return err
		}
		if err := errors.Join(tree.MkdirAll(filepath.Dir(name), 0o700), tree.WriteFile(name, b, 0o600)); err != nil {
			return err
		}
	}
	return nil
}

// failed names the tests that failed, the innermost.
var failed = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)`)

// try makes the mistake, runs the tests, takes it back, and says who found it.
func (m mutant) try(ctx context.Context, tree *os.Root) (by string, err error) {
	source, err := tree.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	if n := bytes.Count(source, []byte(m.old)); n != 1 {
		return "", fmt.Errorf("%s has its place %d times, not once: say anew what it changes", m.file, n)
	}
	wrong := bytes.Replace(source, []byte(m.old), []byte(m.new), 1)
	if err := tree.WriteFile(m.file, wrong, 0o600); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, tree.WriteFile(m.file, source, 0o600)) }()
	c := exec.CommandContext(ctx, "go", append([]string{"test", "-vet=off", "-failfast", "-timeout", "10m", "-run", m.tests}, m.packages...)...)
	c.Dir = tree.Name()
	out, err := c.CombinedOutput()
	found := failed.FindAllSubmatch(out, -1)
	switch {
	case err == nil:
		return "", errors.New("SURVIVED: no test finds it")
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case len(found) > 0:
		return string(found[len(found)-1][1]), nil
	case bytes.Contains(out, []byte("panic: ")):
		return "a panic", nil
	}
	return "", fmt.Errorf("the tests did not run: %s", out[max(0, len(out)-800):])
}
