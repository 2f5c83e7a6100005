//nolint:forbidigo // every test here runs in a bubble of virtual time
package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"github.com/seed-111f5b8e/supervisord/supervisor/handlers"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
	"github.com/seed-111f5b8e/supervisord/supervisor/store"
	"google.golang.org/protobuf/types/known/durationpb"
)

// rig is a supervisor over the memory broker, in a bubble of virtual time.
type rig struct {
	t       *testing.T
	ctx     context.Context //nolint:containedctx // the test's own
	broker  *memory.Broker
	driver  *mortal
	path    string
	fault   atomic.Pointer[error]
	hung    atomic.Pointer[chan struct{}]
	store   *store.Store
	s       *supervisor.Supervisor
	handle  supervisor.HandlerFunc
	opened  func(*supervisor.Supervisor)
	handles map[string]supervisor.Handler
	kind    supervisor.HandlerKind // of handlers "go"; the rig's own when nil
	jitter  func() float64         // of backoffs; random when nil
	limits  *pb.Limits
	moved   func(from, event string) // hears each move; nil: nobody does
}

// inBubble runs a test in virtual time against a fresh supervisor.
func inBubble(t *testing.T, f func(r *rig)) {
	t.Helper()
	inBubbleWith(t, memory.Options{CreateTargets: true}, f)
}

func inBubbleWith(t *testing.T, o memory.Options, f func(r *rig)) {
	t.Helper()
	dir := fastDir(t)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, dir, o)
		r.open()
		defer func() {
			if r.s != nil {
				r.close()
			}
		}()
		f(r)
		if r.s != nil {
			r.close()
		}
		if err := r.broker.Misuse(); err != nil {
			t.Errorf("the broker's contract was broken: %v", err)
		}
	})
}

// fastDir is a folder in memory where there is one: that syncs reach the disk is
// tested with the store.
func fastDir(t *testing.T) string {
	t.Helper()
	in := os.TempDir()
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
		in = "/dev/shm"
	}
	dir, err := os.MkdirTemp(in, "sim") //nolint:usetesting // in memory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func newRig(t *testing.T, dir string, o memory.Options) *rig {
	r := &rig{t: t, ctx: t.Context(), broker: memory.NewBroker(o), path: filepath.Join(dir, "state.db")}
	r.handles = map[string]supervisor.Handler{
		"test": supervisor.HandlerFunc(func(ctx context.Context, m *supervisor.Message) supervisor.Outcome {
			if r.handle == nil {
				return supervisor.Ack()
			}
			return r.handle(ctx, m)
		}),
	}
	return r
}

// setFault lets every write of the store fail from now on; nil: no more.
func (r *rig) setFault(err error) { r.fault.Store(&err) }

// hang lets every write of the store wait until thaw is called.
func (r *rig) hang() (thaw func()) {
	hung := make(chan struct{})
	r.hung.Store(&hung)
	return func() {
		r.hung.Store(nil)
		close(hung)
	}
}

// open starts the supervisor over what the store holds.
func (r *rig) open() {
	r.t.Helper()
	st, err := store.Open(r.path, store.Options{Fault: func(string) error {
		if hung := r.hung.Load(); hung != nil {
			<-*hung
		}
		if err := r.fault.Load(); err != nil {
			return *err
		}
		return nil
	}})
	if err != nil {
		r.t.Fatalf("open store: %v", err)
	}
	driver := &mortal{Driver: &memory.Driver{Broker: r.broker}}
	drivers := map[string]brokers.Driver{"memory": driver}
	daemon, faults := spec.CheckDaemon(&pb.DaemonConfig{Limits: r.limits, Connections: []*pb.Connection{{
		Name: "main", Broker: &pb.Connection_Memory{Memory: &pb.MemoryConnection{}},
	}}}, drivers)
	if len(faults) > 0 {
		r.t.Fatalf("daemon config: %v", faults)
	}
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(testWriter{r.t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if r.moved != nil {
		log = slog.New(moves{log.Handler(), r.moved})
	}
	s, err := supervisor.New(supervisor.Options{
		Daemon: daemon, Drivers: []brokers.Driver{driver}, Store: st, Log: log, Jitter: r.jitter,
		Handlers: []supervisor.HandlerKind{r.handlers()},
	})
	if err != nil {
		r.t.Fatalf("new supervisor: %v", err)
	}
	r.store, r.s, r.driver = st, s, driver
	if r.opened != nil {
		r.opened(s)
	}
}

func (r *rig) handlers() supervisor.HandlerKind {
	if r.kind != nil {
		return r.kind
	}
	return handlers.Go(r.handles)
}

// moves hears the moves that are logged.
type moves struct {
	slog.Handler
	moved func(from, event string)
}

func (m moves) Enabled(context.Context, slog.Level) bool { return true }

func (m moves) WithAttrs(a []slog.Attr) slog.Handler { return moves{m.Handler.WithAttrs(a), m.moved} }

func (m moves) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "moved" {
		row := map[string]string{}
		r.Attrs(func(a slog.Attr) bool {
			row[a.Key] = a.Value.String()
			return true
		})
		m.moved(row["from"], row["event"])
	}
	if !m.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return m.Handler.Handle(ctx, r)
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(string(b))
	return len(b), nil
}

// close shuts the supervisor down and returns the receipts.
func (r *rig) close() []*pb.Receipt {
	r.t.Helper()
	receipts, err := r.s.Shutdown(r.ctx)
	if err != nil {
		r.t.Logf("shutdown: %v", err)
	}
	if err := r.store.Close(); err != nil {
		r.t.Errorf("close store: %v", err)
	}
	r.s, r.store = nil, nil
	return receipts
}

// mortal is a driver of a process that may die: then nobody gets to the broker
// any more.
type mortal struct {
	*memory.Driver
	dead  atomic.Bool
	dials atomic.Int64
}

func (d *mortal) Open(ctx context.Context, c *pb.Connection, env brokers.Env) (brokers.Conn, error) {
	d.dials.Add(1)
	if d.dead.Load() {
		return nil, &brokers.Error{Class: brokers.Refused, Op: "connect", Err: errors.New("the process is dead")}
	}
	return d.Driver.Open(ctx, c, env)
}

// crash ends the supervisor as kill -9 does: the broker loses its connections,
// and what it had not yet written is lost. What runs of it goes on in vain.
func (r *rig) crash() {
	r.t.Helper()
	synctest.Wait() // no write is under way
	state, err := os.ReadFile(r.path)
	if err != nil {
		r.t.Fatal(err)
	}
	r.path += "-"
	if err := os.WriteFile(r.path, state, 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.driver.dead.Store(true)
	r.broker.Lose()
	old, kept := r.s, r.store
	r.s, r.store = nil, nil
	ctx, cancel := context.WithCancelCause(r.ctx)
	cancel(errors.New("killed"))
	_, _ = old.Shutdown(ctx) // of no interest: nobody would have seen it
	_ = kept.Close()
}

// newSpec is a consumer of queue name with the test handler.
func newSpec(name string, change ...func(*pb.ConsumerSpec)) *pb.ConsumerSpec {
	s := &pb.ConsumerSpec{
		Name: name,
		Source: &pb.Source{
			Connection: "main", Broker: &pb.Source_Memory{Memory: &pb.MemorySource{Queue: name}},
		},
		Handler: &pb.Handler{
			Timeout: durationpb.New(10 * time.Second), Kind: &pb.Handler_Go{Go: &pb.GoHandler{Name: "test"}},
		},
	}
	for _, c := range change {
		c(s)
	}
	return s
}

func (r *rig) apply(specs ...*pb.ConsumerSpec) *pb.ApplyResponse {
	r.t.Helper()
	out, err := r.tryApply(specs...)
	if err != nil {
		r.t.Fatalf("apply: %v", err)
	}
	return out
}

func (r *rig) tryApply(specs ...*pb.ConsumerSpec) (*pb.ApplyResponse, error) {
	req := &pb.ApplyRequest{}
	for _, s := range specs {
		req.Items = append(req.Items, &pb.ApplyItem{Spec: s})
	}
	return r.s.Apply(r.ctx, "alice", req)
}

// publish puts n messages into a queue, with bodies prefix-0 to prefix-(n-1).
func (r *rig) publish(queue, prefix string, n int) {
	r.t.Helper()
	ms := make([]memory.Message, n)
	for i := range ms {
		ms[i] = memory.Message{ID: fmt.Sprintf("%s-%d", prefix, i), Key: fmt.Appendf(nil, "k%d", i%7), Body: fmt.Appendf(nil, "%s-%d", prefix, i)}
	}
	_ = r.broker.Create(queue, memory.QueueOptions{}) // there already is as good
	if err := r.broker.Publish(queue, ms...); err != nil {
		r.t.Fatalf("publish: %v", err)
	}
}

// do carries a verb out on one consumer.
func (r *rig) do(v pb.Verb, name string, change ...func(*supervisor.Command)) *pb.VerbResult {
	r.t.Helper()
	out, err := r.try(v, name, change...)
	if err != nil {
		r.t.Fatalf("%v %s: %v", v, name, err)
	}
	return out
}

func (r *rig) try(v pb.Verb, name string, change ...func(*supervisor.Command)) (*pb.VerbResult, error) {
	cmd := supervisor.Command{
		Verb: v, Actor: "alice", Target: &pb.Target{Names: []string{name}}, Options: &pb.VerbOptions{Reason: "test"},
	}
	for _, c := range change {
		c(&cmd)
	}
	out, err := r.s.Do(r.ctx, cmd)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

func (r *rig) get(name string) *pb.Consumer {
	r.t.Helper()
	c, err := r.s.Get("", name)
	if err != nil {
		r.t.Fatalf("get %s: %v", name, err)
	}
	return c
}

// await waits, in virtual time, until a consumer is in a state.
func (r *rig) await(name string, want pb.State) *pb.Consumer {
	r.t.Helper()
	for range 10000 {
		c := r.get(name)
		if c.GetStatus().GetState() == want {
			return c
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatalf("%s did not become %v; it is %v", name, want, r.get(name).GetStatus())
	return nil
}

// receipt waits for the receipt of an operation.
func (r *rig) receipt(name, op string) *pb.Receipt {
	r.t.Helper()
	for range 10000 {
		out, err := r.s.Receipts(&pb.ListReceiptsRequest{Name: name, Id: op})
		if err == nil {
			return out.GetReceipts()[0]
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatalf("no receipt %s of %s", op, name)
	return nil
}

// until waits, in virtual time, for a condition.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for range 20000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatalf("never: %s", what)
}
