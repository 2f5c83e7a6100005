package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/test/node"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// process is a child that tests kill, freeze and start again.
type process struct {
	t    *testing.T
	make func() *exec.Cmd
	cmd  *exec.Cmd
	out  *bytes.Buffer
	done chan struct{}
}

func (p *process) start() {
	p.t.Helper()
	p.cmd, p.out, p.done = p.make(), &bytes.Buffer{}, make(chan struct{})
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		p.t.Fatalf("start: %v", err)
	}
	go func(c *exec.Cmd, done chan struct{}) { _ = c.Wait(); close(done) }(p.cmd, p.done)
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("signal %v: %v\n%s", s, err, p.tail())
	}
}

// end waits for the process and returns its exit code, -1 for a signal.
func (p *process) end(limit time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT)
		<-p.done
		p.t.Fatalf("the process did not end within %v\n%s", limit, p.tail())
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	p.end(10 * time.Second)
}

func (p *process) stop() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	_ = p.cmd.Process.Kill()
	<-p.done
}

// tail is the end of what the process printed. The process must have ended.
func (p *process) tail() string {
	s := p.out.String()
	return s[max(0, len(s)-6000):]
}

// willRepeat adds up what the receipts that it logged tell will be delivered
// again although it was handled. The process must have ended.
func (p *process) willRepeat() int {
	n := 0
	for field := range strings.FieldsSeq(p.out.String()) {
		if value, ok := strings.CutPrefix(field, "receipt.will_repeat="); ok {
			one, err := strconv.Atoi(value)
			if err != nil {
				p.t.Error(err)
			}
			n += one
		}
	}
	return n
}

// world is a broker, a daemon, handlers and a publisher.
type world struct {
	fixture

	t      *testing.T
	ctx    context.Context //nolint:containedctx // the test's own
	dir    string
	socket string
	http   int // the port of its metrics
	daemon *process
	ledger *ledger
	conn   *grpc.ClientConn
	api    pb.ConsumerServiceClient
	names  []string
}

// password is the daemon's on brokers that want one; it finds it in passwordEnv.
const password, passwordEnv = "secret", "E2E_PASSWORD"

const httpHandler, deafHandler = `http: {url: "%s/%s"}`, `go: {name: deaf}`

func newWorld(t *testing.T, f fixture, consumers int) *world {
	t.Helper()
	return newWorldWith(t, f, consumers, httpHandler)
}

func newWorldWith(t *testing.T, f fixture, consumers int, handler string) *world {
	t.Helper()
	_, ordered := f.(hasOrder)
	w := &world{fixture: f, t: t, ctx: t.Context(), dir: t.TempDir(), ledger: newLedger(t, ordered)}
	sock, err := os.MkdirTemp("", "e2e-") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sock) })
	w.socket = filepath.Join(sock, "s.sock")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if w.http, err = node.FreePort(); err != nil {
		t.Fatal(err)
	}
	for i := range consumers {
		w.names = append(w.names, fmt.Sprintf("c%02d", i))
	}
	w.open(t, w.names)
	w.configure(handler)
	w.daemon = &process{t: t, make: func() *exec.Cmd {
		program := bin.supervisord
		if handler == deafHandler {
			program = self
		}
		c := exec.Command(program, "serve", "--config", filepath.Join(w.dir, "config.yaml"),
			"--data-dir", filepath.Join(w.dir, "data"), "--listen", "unix://"+w.socket, "--http", fmt.Sprintf("127.0.0.1:%d", w.http),
			"--apply", filepath.Join(w.dir, "specs"))
		c.Env = append(os.Environ(), passwordEnv+"="+password)
		if handler == deafHandler {
			c.Env = append(c.Env, ledgerEnv+"="+w.ledger.url)
		}
		return c
	}}
	w.daemon.start()
	t.Cleanup(w.daemon.stop)
	w.dial()
	for _, n := range w.names {
		w.await(n, pb.State_STATE_RUNNING, 30*time.Second)
	}
	return w
}

const specText = `
name: %[1]s
labels: {kind: e2e}
%[3]s
handler: {timeout: 60s, %[2]s}
concurrency: 4
max_in_flight: {messages: 32}
retry: {attempts: 100, backoff: {initial: 20ms, max: 200ms}}
restart: {backoff: {initial: 100ms, max: 1s}}
stop: {soft: 3s, hard: 6s}
`

func (w *world) configure(handler string) {
	w.t.Helper()
	write := func(name, text string) {
		path := filepath.Join(w.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			w.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	write("config.yaml", fmt.Sprintf(`
connections:
  - name: main
    %s
shutdown: {soft: 3s, hard: 6s}
log: {level: info}
`, w.connection()))
	for _, name := range w.names {
		h := handler
		if strings.Contains(h, "%s") {
			h = fmt.Sprintf(h, w.ledger.url, name)
		}
		write("specs/"+name+".yaml", fmt.Sprintf(specText, name, h, w.source(name)))
	}
}

func (w *world) dial() {
	w.t.Helper()
	conn, err := grpc.NewClient("unix://"+w.socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	w.conn, w.api = conn, pb.NewConsumerServiceClient(conn)
}

// eventually polls until ok, and fails loudly after limit.
func (w *world) eventually(what string, limit time.Duration, ok func() bool) {
	w.t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			if w.daemon != nil {
				w.daemon.stop()
				w.t.Fatalf("not within %v: %s\n%s", limit, what, w.daemon.tail())
			}
			w.t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

func (w *world) get(name string) *pb.Consumer {
	ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
	defer cancel()
	out, err := w.api.Get(ctx, &pb.GetRequest{Name: name})
	if err != nil {
		return nil
	}
	return out.GetConsumer()
}

func (w *world) await(name string, s pb.State, limit time.Duration) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%s is %v", name, s), limit, func() bool { return w.get(name).GetStatus().GetState() == s })
}

// receipt waits for the receipt of an operation.
func (w *world) receipt(name, id string, limit time.Duration) *pb.Receipt {
	w.t.Helper()
	var rc *pb.Receipt
	w.eventually("receipt of "+name, limit, func() bool {
		out, err := w.api.ListReceipts(w.ctx, &pb.ListReceiptsRequest{Name: name, Id: id})
		if err != nil {
			return false
		}
		rc = out.GetReceipts()[0]
		return true
	})
	return rc
}

func target(name string) *pb.Target { return &pb.Target{Names: []string{name}} }
