package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
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

// world is a broker, a daemon, handlers and a publisher.
type world struct {
	t      *testing.T
	ctx    context.Context //nolint:containedctx // the test's own
	dir    string
	socket string
	port   int
	broker *process
	daemon *process
	ledger *ledger
	nc     *nats.Conn
	js     jetstream.JetStream
	conn   *grpc.ClientConn
	api    pb.ConsumerServiceClient
	names  []string
}

const httpHandler, deafHandler = `http: {url: "%s/%s"}`, `go: {name: deaf}`

func newWorld(t *testing.T, consumers int) *world {
	t.Helper()
	return newWorldWith(t, consumers, httpHandler)
}

func newWorldWith(t *testing.T, consumers int, handler string) *world {
	t.Helper()
	w := &world{t: t, ctx: t.Context(), dir: t.TempDir(), ledger: newLedger(t)}
	sock, err := os.MkdirTemp("", "e2e-") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(sock) })
	w.socket = filepath.Join(sock, "s.sock")
	w.port = freePort(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w.broker = &process{t: t, make: func() *exec.Cmd {
		c := exec.Command(self)
		c.Env = append(os.Environ(), fmt.Sprintf("%s=%d", serverEnv, w.port), serverEnv+"_DIR="+filepath.Join(w.dir, "js"))
		return c
	}}
	w.broker.start()
	t.Cleanup(w.broker.stop)
	w.connect()
	w.configure(consumers, handler)
	w.daemon = &process{t: t, make: func() *exec.Cmd {
		program := bin.supervisord
		if handler == deafHandler {
			program = self
		}
		c := exec.Command(program, "serve", "--config", filepath.Join(w.dir, "config.yaml"),
			"--data-dir", filepath.Join(w.dir, "data"), "--listen", "unix://"+w.socket, "--http", "",
			"--apply", filepath.Join(w.dir, "specs"))
		if handler == deafHandler {
			c.Env = append(os.Environ(), ledgerEnv+"="+w.ledger.url)
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

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()                     //nolint:errcheck // only its port is wanted
	return l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert,errcheck // it is
}

func (w *world) connect() {
	w.t.Helper()
	nc, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", w.port), nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		w.t.Fatal(err)
	}
	w.nc, w.js = nc, js
	w.eventually("the broker is up", 30*time.Second, func() bool {
		ctx, cancel := context.WithTimeout(w.ctx, time.Second)
		defer cancel()
		_, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "E2E", Subjects: []string{"e2e.>"}})
		return err == nil
	})
}

const specText = `
name: %[1]s
labels: {kind: e2e}
source: {connection: main, nats: {stream: E2E, filter_subjects: ["e2e.%[1]s"], ack_wait: 5s}}
handler: {timeout: 60s, %[2]s}
concurrency: 4
max_in_flight: {messages: 32}
retry: {attempts: 100, backoff: {initial: 20ms, max: 200ms}}
restart: {backoff: {initial: 100ms, max: 1s}}
stop: {soft: 3s, hard: 6s}
`

func (w *world) configure(consumers int, handler string) {
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
    nats: {urls: ["nats://127.0.0.1:%d"]}
shutdown: {soft: 3s, hard: 6s}
log: {level: info}
`, w.port))
	for i := range consumers {
		name := fmt.Sprintf("c%02d", i)
		w.names = append(w.names, name)
		h := handler
		if strings.Contains(h, "%s") {
			h = fmt.Sprintf(h, w.ledger.url, name)
		}
		write("specs/"+name+".yaml", fmt.Sprintf(specText, name, h))
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
