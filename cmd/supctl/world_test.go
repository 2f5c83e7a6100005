package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// patience bounds what a script waits for; nothing takes as long.
const patience = 30 * time.Second

// world is what surrounds one test: a daemon with a folder and a broker of its
// own, and the service that its http handlers call.
type world struct {
	bin, dir string
	// nats and tcp are where the broker and, with certificates, the daemon listen.
	nats, tcp  string
	env        []string
	gate       *gate
	service    *httptest.Server
	running    *exec.Cmd
	log        lines
	background map[string]*job
}

// newWorld lives in dir; env is what else its processes see.
func newWorld(dir, bin string, env []string) (*world, error) {
	broker, err := freeAddress()
	if err != nil {
		return nil, err
	}
	tcp, err := freeAddress()
	if err != nil {
		return nil, err
	}
	w := &world{bin: bin, dir: dir, nats: broker, tcp: tcp, gate: newGate(), background: map[string]*job{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("/gate", w.gate.handle)
	w.service = httptest.NewServer(mux)
	w.env = slices.Concat(env, []string{"XDG_RUNTIME_DIR=" + dir, "HOME=" + dir, "TCP=" + tcp, "SERVICE=" + w.service.URL, "TZ=UTC",
		// Else every supctl that the race detector watches sleeps a second at its end.
		"GORACE=atexit_sleep_ms=0",
	})
	return w, nil
}

func (w *world) socket() string { return filepath.Join(w.dir, "supervisord", "supervisord.sock") }

func (w *world) close() {
	w.gate.open()
	for _, j := range w.background {
		_ = j.cmd.Process.Kill()
		<-j.ended
	}
	if w.running != nil {
		_ = w.end(syscall.SIGKILL)
	}
	w.service.Close()
}

// daemon starts one, or stops (SIGTERM) or kills (SIGKILL) it.
func (w *world) daemon(what string) error {
	switch what {
	case "stop":
		return w.end(syscall.SIGTERM)
	case "kill":
		return w.end(syscall.SIGKILL)
	}
	return w.start(what)
}

// start runs a daemon on its user's socket ("start"), one on TCP that asks for
// certificates ("tls"), or one whose handlers ignore their context ("hung").
func (w *world) start(kind string) error {
	if kind == "hung" {
		return w.launch(exec.Command(filepath.Join(w.bin, "hung"), w.dir), insecure.NewCredentials())
	}
	config := fmt.Sprintf("connections:\n  - {name: main, nats: {embedded: true, listen: %s}}\nshutdown: {soft: 1s, hard: 2s}\n", w.nats)
	args := []string{"serve", "--data-dir", filepath.Join(w.dir, "data"), "--http", "127.0.0.1:0"}
	creds := insecure.NewCredentials()
	if kind == "tls" {
		var err error
		if creds, err = certify(w.dir); err != nil {
			return err
		}
		config += "tls: {cert_file: server.pem, key_file: server.key, client_ca_file: ca.pem}\n"
		args = append(args, "--listen", w.tcp)
	}
	file := filepath.Join(w.dir, "supervisord.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return err
	}
	return w.launch(exec.Command(filepath.Join(w.bin, "supervisord"), append(args, "--config", file)...), creds)
}

func (w *world) launch(cmd *exec.Cmd, creds credentials.TransportCredentials) error {
	cmd.Dir, cmd.Env = w.dir, w.env
	cmd.Stdout, cmd.Stderr = &w.log, &w.log
	if err := cmd.Start(); err != nil {
		return err
	}
	w.running = cmd
	if err := w.ready(creds); err != nil {
		return fmt.Errorf("the daemon does not answer: %w\n%s", err, &w.log)
	}
	return nil
}

// ready returns when the daemon answers.
func (w *world) ready(creds credentials.TransportCredentials) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	target := "unix:" + w.socket()
	if creds.Info().SecurityProtocol == "tls" {
		target = w.tcp
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(creds),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1, MaxDelay: 50 * time.Millisecond}}))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = pb.NewServerServiceClient(conn).GetServerInfo(ctx, &pb.GetServerInfoRequest{}, grpc.WaitForReady(true))
	return err
}

func (w *world) end(sig syscall.Signal) error {
	cmd := w.running
	w.running = nil
	if cmd == nil {
		return errors.New("no daemon runs")
	}
	if err := cmd.Process.Signal(sig); err != nil {
		return err
	}
	err := cmd.Wait()
	if sig == syscall.SIGKILL {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, &w.log)
	}
	return nil
}

func (w *world) publish(subject, count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	nc, err := nats.Connect("nats://" + w.nats)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i := range n {
		if _, err := js.Publish(ctx, subject, []byte(strconv.Itoa(i))); err != nil {
			return err
		}
	}
	return nil
}

// job is a supctl in the background.
type job struct {
	cmd   *exec.Cmd
	out   lines
	ended chan struct{}
}

func (w *world) begin(dir, name string, args []string) error {
	j := &job{ended: make(chan struct{})}
	j.cmd = exec.Command(os.Args[0], args...)
	j.cmd.Args[0] = "supctl"
	j.cmd.Dir, j.cmd.Env = dir, w.env
	j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.out
	if err := j.cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(j.ended)
		_ = j.cmd.Wait() // Its status is asked for later.
	}()
	w.background[name] = j
	return nil
}

// says waits for output that matches.
func (j *job) says(pattern string) error {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	late := time.After(patience)
	ended := j.ended
	for {
		text, more := j.out.read()
		if re.MatchString(text) {
			return nil
		}
		if ended == nil {
			return fmt.Errorf("it has ended and did not say %q but:\n%s", pattern, text)
		}
		select {
		case <-more:
		case <-ended:
			ended = nil // What it wrote last is read once more.
		case <-late:
			return fmt.Errorf("it does not say %q but:\n%s", pattern, text)
		}
	}
}

func (j *job) ends(code string) error {
	select {
	case <-j.ended:
	case <-time.After(patience):
		return fmt.Errorf("it does not end:\n%s", &j.out)
	}
	if got := strconv.Itoa(j.cmd.ProcessState.ExitCode()); got != code {
		return fmt.Errorf("exit status %s, want %s:\n%s", got, code, &j.out)
	}
	return nil
}

// lines is output that a reader can wait for.
type lines struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{} // closed with the next write
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
	return l.b.Write(p)
}

func (l *lines) read() (string, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more == nil {
		l.more = make(chan struct{})
	}
	return l.b.String(), l.more
}

func (l *lines) String() string {
	text, _ := l.read()
	return text
}

// gate holds handler calls until it is opened.
type gate struct {
	mu      sync.Mutex
	waiting int
	changed chan struct{} // closed and replaced with each call that comes or goes
	opened  chan struct{}
	once    sync.Once
}

func newGate() *gate { return &gate{changed: make(chan struct{}), opened: make(chan struct{})} }

func (g *gate) open() { g.once.Do(func() { close(g.opened) }) }

func (g *gate) count(by int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting += by
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *gate) handle(rw http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	g.count(1)
	defer g.count(-1)
	select {
	case <-g.opened:
		rw.WriteHeader(http.StatusNoContent)
	case <-r.Context().Done():
	}
}

func (g *gate) await(count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	late := time.After(patience)
	for {
		g.mu.Lock()
		waiting, changed := g.waiting, g.changed
		g.mu.Unlock()
		if waiting == n {
			return nil
		}
		select {
		case <-changed:
		case <-late:
			return fmt.Errorf("%d calls wait at the gate, not %d", waiting, n)
		}
	}
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
