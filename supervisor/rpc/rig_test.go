package rpc

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"github.com/seed-111f5b8e/supervisord/supervisor/handlers"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
	"github.com/seed-111f5b8e/supervisord/supervisor/store"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a supervisor over the memory broker, served on a unix socket.
type rig struct {
	t      testing.TB
	s      *supervisor.Supervisor
	broker *memory.Broker
	server *Server
	socket string
	logged *logs
	served chan error
	stop   func()
}

func newRig(t testing.TB, kinds ...supervisor.HandlerKind) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{t: t, logged: &logs{}, broker: memory.NewBroker(memory.Options{CreateTargets: true}), socket: filepath.Join(dir, "run", "s.sock")}
	r.s = r.supervise(dir, kinds...)
	l, err := Listen("unix://"+r.socket, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.serve(l)
	return r
}

// supervise starts a supervisor that ends with the test.
func (r *rig) supervise(dir string, kinds ...supervisor.HandlerKind) *supervisor.Supervisor {
	r.t.Helper()
	st, err := store.Open(filepath.Join(dir, "state.db"), store.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	driver := &memory.Driver{Broker: r.broker}
	daemon, faults := spec.CheckDaemon(&pb.DaemonConfig{Connections: []*pb.Connection{{
		Name: "main", Broker: &pb.Connection_Memory{Memory: &pb.MemoryConnection{}},
	}}}, map[string]brokers.Driver{"memory": driver})
	if len(faults) > 0 {
		r.t.Fatal(faults)
	}
	ack := supervisor.HandlerFunc(func(context.Context, *supervisor.Message) supervisor.Outcome { return supervisor.Ack() })
	s, err := supervisor.New(supervisor.Options{
		Daemon: daemon, Drivers: []brokers.Driver{driver}, Store: st, Log: slog.New(slog.DiscardHandler), Version: "v-test",
		Handlers: append(kinds, handlers.Go(map[string]supervisor.Handler{"ack": ack})),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		_, err := s.Shutdown(context.Background())
		if err := errors.Join(err, st.Close()); err != nil {
			r.t.Error(err)
		}
	})
	return s
}

// serve serves until the test ends, or stop.
func (r *rig) serve(l *Listener) {
	r.server = New(r.s, l, slog.New(slog.NewTextHandler(r.logged, nil)))
	r.served = make(chan error, 1)
	go func() { r.served <- r.server.Serve() }()
	r.stop = sync.OnceFunc(func() {
		r.server.Stop()
		if err := <-r.served; err != nil {
			r.t.Error(err)
		}
	})
	r.t.Cleanup(r.stop)
}

// dial opens a connection of its own.
func (r *rig) dial(o ...grpc.DialOption) *grpc.ClientConn {
	r.t.Helper()
	conn, err := grpc.NewClient("unix:"+r.socket, append(o, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (r *rig) client() pb.ConsumerServiceClient { return pb.NewConsumerServiceClient(r.dial()) }

// apply makes consumers that acknowledge everything.
func (r *rig) apply(names ...string) {
	r.t.Helper()
	req := &pb.ApplyRequest{}
	for _, name := range names {
		req.Items = append(req.Items, &pb.ApplyItem{Spec: newSpec(name)})
	}
	if _, err := r.client().Apply(context.Background(), req); err != nil {
		r.t.Fatal(err)
	}
}

func newSpec(name string) *pb.ConsumerSpec {
	return &pb.ConsumerSpec{
		Name:    name,
		Source:  &pb.Source{Connection: "main", Broker: &pb.Source_Memory{Memory: &pb.MemorySource{Queue: name}}},
		Handler: &pb.Handler{Timeout: durationpb.New(1e9), Kind: &pb.Handler_Go{Go: &pb.GoHandler{Name: "ack"}}},
	}
}

func named(names ...string) *pb.Target { return &pb.Target{Names: names} }

// panicking is a kind of handler whose check has a fault of its own.
type panicking struct{}

const secretPanic = "a detail for the log only"

func (panicking) Kind() string { return "log" }

func (panicking) Check(*pb.ConsumerSpec) []brokers.Fault { panic(secretPanic) }

func (panicking) New(*pb.ConsumerSpec, supervisor.HandlerEnv) (supervisor.Handler, error) {
	return nil, errors.New("never made")
}

// logs is a log that tests read.
type logs struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// infoOf is the ErrorInfo that every error carries.
func infoOf(t testing.TB, err error) *errdetails.ErrorInfo {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info
		}
	}
	t.Fatalf("no ErrorInfo in %v", err)
	return nil
}

func wantError(t testing.TB, err error, c codes.Code, reason string) {
	t.Helper()
	if got := status.Code(err); got != c {
		t.Fatalf("code %v, want %v: %v", got, c, err)
	}
	if info := infoOf(t, err); info.GetReason() != reason || info.GetDomain() != "supervisord" {
		t.Errorf("reason %q of %q, want %q", info.GetReason(), info.GetDomain(), reason)
	}
}

// pipe is a listener whose connections need no system, for virtual time.
type pipe struct {
	conns chan net.Conn
	done  chan struct{}
	close func()
}

func newPipe() *pipe {
	p := &pipe{conns: make(chan net.Conn), done: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.done) })
	return p
}

func (p *pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipe) Close() error {
	p.close()
	return nil
}

func (*pipe) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p *pipe) dial(ctx context.Context, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
