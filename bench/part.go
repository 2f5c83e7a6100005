package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// part is this program once more, as a process of its own: what this process
// uses is then the client's alone. It ends when this process does.
type part struct {
	// line is the first that it printed.
	line string
	cmd  *exec.Cmd
	in   io.Closer
}

// startPart runs a hidden subcommand and returns when it has said a line.
func startPart(ctx context.Context, args ...string) (*part, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	p := &part{cmd: cmd, in: in}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s did not come up: %w", args[0], err), p.stop())
	}
	p.line = strings.TrimSpace(line)
	return p, nil
}

func (p *part) stop() error {
	err := p.in.Close()
	if e := p.cmd.Wait(); e != nil {
		err = errors.Join(err, fmt.Errorf("%s ended: %w", p.cmd.Args[1], e))
	}
	return err
}

// serve is what a part does once it serves: it says its line and returns when
// its input ends or ctx does.
func serve(ctx context.Context, w io.Writer, line string) error {
	if _, err := fmt.Fprintln(w, line); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}
