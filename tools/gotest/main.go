// Command gotest runs "go test -json" with its arguments and tells what came
// of it: go's closing line of every package, all output of what failed, how
// many tests each package ran, and how many ran in all. It fails when go test
// does, when no test ran, and when one was skipped: a skipped test is a promise
// that nobody checks.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
}

// run returns when go test has ended and all its output was read.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...) //nolint:gosec // the arguments are make's
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	s := newSummary(stdout)
	readErr := s.read(out)
	waitErr := cmd.Wait()
	return errors.Join(waitErr, readErr, s.close())
}
