package nats

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// serverEnv makes this test binary a nats-server that runs the file it names.
const serverEnv = "BROKERS_NATS_TEST_SERVER"

func TestMain(m *testing.M) {
	if conf := os.Getenv(serverEnv); conf != "" {
		if err := serve(conf); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serve runs a server until its standard input ends, so that it does not outlive
// the test. SIGHUP reloads the file.
func serve(conf string) error {
	opts, err := server.ProcessConfigFile(conf)
	if err != nil {
		return err
	}
	opts.NoSigs = true
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		return errors.New("the server is not ready")
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	go func() {
		for range hup {
			if err := s.Reload(); err != nil {
				fmt.Println("reload failed:", err)
				continue
			}
			fmt.Println("test server reloaded")
		}
	}()
	fmt.Println("test server up")
	_, _ = io.Copy(io.Discard, os.Stdin)
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

const (
	appUser, appPassword     = "app", "app-s3cret-canary"
	adminUser, adminPassword = "admin", "admin-s3cret"
)

// process is a nats-server in a process of its own, with its files in dir.
type process struct {
	tb   testing.TB
	dir  string
	addr string
	sync string
	// appPassword is the app user's.
	appPassword string

	mu    sync.Mutex
	cmd   *exec.Cmd
	stdin io.Closer
	// seen is how much of what the server printed has been looked at.
	seen int
}

// startProcess runs a server for the length of a test. It syncs each write
// unless lazy, which is for what does not look at durability.
func startProcess(tb testing.TB, lazy bool) *process {
	tb.Helper()
	p := &process{tb: tb, dir: tb.TempDir(), addr: freeAddr(tb), sync: "always", appPassword: appPassword}
	if lazy {
		p.sync = "2m"
	}
	p.configure("")
	p.start()
	tb.Cleanup(func() {
		p.thaw()
		p.kill()
	})
	return p
}

func freeAddr(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func (p *process) conf() string { return filepath.Join(p.dir, "server.conf") }

// configure writes the file; permissions are those of the app user.
func (p *process) configure(permissions string) {
	p.tb.Helper()
	text := fmt.Sprintf(`listen: %q
server_name: test
jetstream { store_dir: %q, sync_interval: %q }
authorization { users: [
  { user: %q, password: %q %s }
  { user: %q, password: %q }
] }
`, p.addr, filepath.Join(p.dir, "data"), p.sync, appUser, p.appPassword, permissions, adminUser, adminPassword)
	if err := os.WriteFile(p.conf(), []byte(text), 0o600); err != nil {
		p.tb.Fatal(err)
	}
}

// output is a file: so no goroutine reads it, and the tests can look for leaks.
func (p *process) output() string { return filepath.Join(p.dir, "output") }

func (p *process) start() {
	p.tb.Helper()
	out, err := os.OpenFile(p.output(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.tb.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverEnv+"="+p.conf())
	cmd.Stdout, cmd.Stderr = out, out
	stdin, err := cmd.StdinPipe()
	if err != nil {
		p.tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.tb.Fatal(err)
	}
	p.mu.Lock()
	p.cmd, p.stdin = cmd, stdin
	p.mu.Unlock()
	p.expect("test server up\n")
}

// expect waits for what the server prints next.
func (p *process) expect(line string) {
	p.tb.Helper()
	poll(p.tb, 30*time.Second, "the server says "+strings.TrimSpace(line), func() bool {
		text, err := os.ReadFile(p.output())
		if err != nil {
			return false
		}
		i := strings.Index(string(text[p.seen:]), line)
		if i >= 0 {
			p.seen += i + len(line)
		}
		return i >= 0
	})
}

// poll tries until f is true.
func poll(tb testing.TB, limit time.Duration, what string, f func() bool) {
	tb.Helper()
	end := time.NewTimer(limit)
	defer end.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-end.C:
			tb.Fatalf("not within %v: %s", limit, what)
		}
	}
}

func (p *process) signal(s os.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(s)
	}
}

// freeze stops the server, and returns when all of it stands still.
func (p *process) freeze() {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	pid := p.cmd.Process.Pid
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		p.tb.Fatal(err)
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		p.tb.Fatalf("the server did not stop: %v %v", status, err)
	}
}

func (p *process) thaw() { p.signal(syscall.SIGCONT) }

// kill ends the server as kill -9 does; its files stay.
func (p *process) kill() {
	p.mu.Lock()
	cmd := p.cmd
	p.cmd = nil
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// settled waits until the server has written the acks of a stream's durable: it
// does so up to 100 ms after it answered them, so that a kill in between makes
// acked messages come again.
func (p *process) settled(stream string) {
	p.tb.Helper()
	file := filepath.Join(p.dir, "data", "jetstream", "$G", "streams", stream, "obs", "worker", "o.dat")
	poll(p.tb, 10*time.Second, "the durable's state is written", func() bool {
		st, err := os.Stat(file)
		return err == nil && time.Since(st.ModTime()) > 300*time.Millisecond
	})
}

// password changes that of the app user.
func (p *process) password(to string) {
	p.tb.Helper()
	p.appPassword = to
	p.reload("")
}

// reload applies permissions to the app user.
func (p *process) reload(permissions string) {
	p.tb.Helper()
	p.configure(permissions)
	p.signal(syscall.SIGHUP)
	p.expect("test server reloaded\n")
}
