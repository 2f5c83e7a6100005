// Package node runs real brokers on loopback, each in a process group of its
// own with its own folder and ports, for tests, benchmarks and people. The
// brokers stand in the folders below.
package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Command says how a broker is run.
type Command struct {
	// Path and Args of the program.
	Path string
	Args []string
	// Env is added to the process's own environment.
	Env []string
	// Dir is the broker's folder: its working directory, where its output is
	// appended to the file "output".
	Dir string
	// Detached: it outlives this process.
	Detached bool
	// Ready returns nil once the broker serves; asked again until then.
	Ready func(context.Context) error
}

// ErrRuns means that a broker was started which runs already.
var ErrRuns = errors.New("the broker runs already")

// Process is one broker, run again by Start after each Kill. Its methods are
// safe for concurrent use.
type Process struct {
	command Command

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
}

// New makes a broker that does not run yet.
func New(c Command) *Process { return &Process{command: c} }

// Start runs the broker and returns when it is ready. When it ends first, or ctx
// does, the error holds the end of what it printed.
func (p *Process) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		return ErrRuns
	}
	if err := p.launch(); err != nil {
		return err
	}
	for {
		err := p.command.Ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("the broker ended before it was ready: %w\n%s", err, p.tail())
		case <-ctx.Done():
			p.kill()
			return fmt.Errorf("the broker is not ready: %w: %w\n%s", context.Cause(ctx), err, p.tail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (p *Process) launch() error {
	out, err := os.OpenFile(p.Output(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("output of the broker: %w", err)
	}
	defer func() { _ = out.Close() }()
	cmd := exec.Command(p.command.Path, p.command.Args...) //nolint:noctx // the tests' own; Kill ends it
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.command.Dir, out, out
	cmd.Env = append(os.Environ(), p.command.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if !p.command.Detached {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the broker: %w", err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	p.cmd, p.exited = cmd, exited
	return nil
}

func (p *Process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Kill ends it like a power cut of its own, frozen or not, and returns when it
// is gone. What has ended is left alone.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kill()
}

func (p *Process) kill() {
	if !p.running() {
		return
	}
	p.signal(syscall.SIGKILL)
	<-p.exited
}

// Freeze stops it without closing anything, until Thaw.
func (p *Process) Freeze() { p.locked(syscall.SIGSTOP) }

// Thaw lets it go on.
func (p *Process) Thaw() { p.locked(syscall.SIGCONT) }

func (p *Process) locked(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		p.signal(s)
	}
}

// signal reaches the whole group: a broker may have children.
func (p *Process) signal(s syscall.Signal) { _ = syscall.Kill(-p.cmd.Process.Pid, s) }

// PID of the broker that Start ran last.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Output is the file with what it printed.
func (p *Process) Output() string { return filepath.Join(p.command.Dir, "output") }

func (p *Process) tail() string {
	const most = 4096
	b, err := os.ReadFile(p.Output())
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-most):])
}

// FreePort is a port of loopback that nobody listens on. It is below those that
// the system gives to outgoing connections: a client that tries again and again
// while its broker is down would else meet itself there, or another take it.
func FreePort() (int, error) {
	const first, last, tries = 10000, 30000, 100
	var errs []error
	for range tries {
		port := first + rand.IntN(last-first)
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err == nil {
			return port, l.Close()
		}
		errs = append(errs, err)
	}
	return 0, fmt.Errorf("no free port: %w", errors.Join(errs...))
}
