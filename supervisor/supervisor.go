// Package supervisor hosts many message consumers in one process and moves
// each through its life. A [Supervisor] owns the consumers; each is an actor
// with a message path of its own. Programs register handlers as [HandlerKind]
// and brokers as drivers, and so build a supervisord of their own.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/lifecycle"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
	"github.com/seed-111f5b8e/supervisord/supervisor/store"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Options of a [Supervisor].
type Options struct {
	Daemon   *spec.Daemon
	Drivers  []brokers.Driver
	Handlers []HandlerKind
	// Store is open already; the caller closes it after Shutdown.
	Store *store.Store
	Log   *slog.Logger
	// DataDir is where drivers may keep files, each in a folder of its own.
	DataDir string
	Version string
	// Jitter draws from [0,1) for backoffs; default math/rand.
	Jitter func() float64
}

// Supervisor hosts consumers. Its methods are safe for concurrent use.
type Supervisor struct {
	o        Options
	machine  *lifecycle.Machine
	clock    *clock
	hub      *hub
	recorder *recorder
	env      spec.Env
	links    map[string]*link
	kinds    map[string]HandlerKind
	bytes    *budget
	started  time.Time

	// reaping bounds the closings that go on behind stopped consumers; it ends
	// with the process.
	reaping     context.Context //nolint:containedctx // the supervisor's own lifetime
	stopReaping context.CancelCauseFunc

	hardLimits atomic.Int64
	made       atomic.Uint64 // consumers
	closing    atomic.Bool
	// accepting ends when the shutdown begins, and with it waits for the store.
	accepting     context.Context //nolint:containedctx // the supervisor's own lifetime
	stopAccepting context.CancelCauseFunc
	ended         chan struct{} // closed when Shutdown is through
	outcome       shutdown
	stopMeters    context.CancelCauseFunc
	meters        sync.WaitGroup

	applying  chan struct{} // full while an Apply or Delete is under way
	mu        sync.RWMutex
	consumers map[key]*consumer
	budgets   map[string]*budget
	requests  map[string]chan struct{} // ids under way; closed when they are through
}

// newHandlerTimeout bounds the making of a handler at a start.
const newHandlerTimeout = 30 * time.Second

// New loads what the store holds and starts every consumer as desired. One
// whose operation was under way when the process died gets an INTERRUPTED
// receipt.
func New(o Options) (*Supervisor, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	s := &Supervisor{
		o: o, machine: lifecycle.NewMachine(), clock: newClock(), hub: newHub(o.Store.Boot()),
		links: map[string]*link{}, kinds: map[string]HandlerKind{}, started: time.Now(),
		ended: make(chan struct{}), applying: make(chan struct{}, 1), requests: map[string]chan struct{}{},
		bytes: newBudget(o.Daemon.BytesInFlight, nil), consumers: map[key]*consumer{}, budgets: map[string]*budget{},
	}
	s.reaping, s.stopReaping = context.WithCancelCause(context.Background())
	s.accepting, s.stopAccepting = context.WithCancelCause(context.Background())
	s.recorder = newRecorder(s)
	s.wire()
	recs, err := o.Store.Load()
	if err != nil {
		return nil, fmt.Errorf("load consumers: %w", err)
	}
	if err := s.interrupted(recs); err != nil {
		return nil, err
	}
	made := make([]*consumer, 0, len(recs))
	for _, rec := range recs {
		cfg, fault := s.check(rec.GetSpec())
		c := newConsumer(s, rec, cfg, fault)
		if err := c.recall(); err != nil {
			return nil, err
		}
		made = append(made, c)
	}
	go s.recorder.run()
	for _, c := range made {
		s.add(c)
	}
	s.startMeters()
	return s, nil
}

// recall takes up where an earlier process left off.
func (c *consumer) recall() error {
	rows, err := c.s.o.Store.Transitions(c.key.namespace, c.key.name, 1)
	if err != nil {
		return fmt.Errorf("load the history of %s: %w", c.key, err)
	}
	receipts, err := c.s.o.Store.Receipts(c.key.namespace, c.key.name, 1)
	if err != nil {
		return fmt.Errorf("load the receipts of %s: %w", c.key, err)
	}
	for _, row := range rows {
		c.rows = row.GetSequence()
	}
	for _, r := range receipts {
		c.receiptID.Store(new(r.GetId()))
	}
	return nil
}

// wire makes links and tables from the configuration.
func (s *Supervisor) wire() {
	s.env = spec.Env{
		Drivers: map[string]brokers.Driver{}, Connections: map[string]*pb.Connection{},
		Handlers: map[string]spec.HandlerKind{},
	}
	for _, d := range s.o.Drivers {
		s.env.Drivers[d.Kind()] = d
	}
	for _, h := range s.o.Handlers {
		s.env.Handlers[h.Kind()] = h
		s.kinds[h.Kind()] = h
	}
	for _, c := range s.o.Daemon.Connections {
		d := s.env.Drivers[kindOf(c)]
		s.env.Connections[c.GetName()] = c
		s.links[c.GetName()] = newLink(c, d, brokers.Env{
			DataDir: s.o.DataDir, Log: s.o.Log.With("connection", c.GetName()), Secret: spec.Secret,
		}, s.o.Jitter)
	}
}

// interrupted writes the receipts of operations that a death cut short.
func (s *Supervisor) interrupted(recs []*pb.Consumer) error {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	return s.o.Store.Update(ctx, func(tx *store.Tx) error {
		for _, rec := range recs {
			op := rec.GetDesired().GetOperation()
			if op == nil {
				continue
			}
			rec.Desired.Operation = nil
			r := &pb.Receipt{
				Id: op.GetId(), Namespace: rec.GetSpec().GetNamespace(), Name: rec.GetSpec().GetName(),
				Verb: op.GetVerb(), Actor: op.GetActor(), Reason: op.GetReason(), Started: op.GetStarted(),
				Outcome: pb.ReceiptOutcome_RECEIPT_OUTCOME_INTERRUPTED, Release: pb.Release_RELEASE_PENDING,
			}
			if err := errors.Join(tx.PutConsumer(rec), tx.PutReceipt(r)); err != nil {
				return err
			}
		}
		return nil
	})
}

// check turns a stored spec into a config, or a reason why it cannot run.
func (s *Supervisor) check(sp *pb.ConsumerSpec) (*spec.Consumer, error) {
	cfg, faults := spec.Check(sp, s.env)
	if len(faults) == 0 {
		return cfg, nil
	}
	errs := make([]error, 0, len(faults))
	for _, f := range faults {
		errs = append(errs, f)
	}
	return nil, fmt.Errorf("the spec does not fit this daemon's configuration: %w", errors.Join(errs...))
}

// add starts an actor; the caller holds applying, or nobody else is there yet.
func (s *Supervisor) add(c *consumer) {
	s.mu.Lock()
	s.consumers[c.key] = c
	s.mu.Unlock()
	go c.run()
}

func (s *Supervisor) budgetOf(namespace string) *budget {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.budgets[namespace]
	if b == nil {
		b = newBudget(s.o.Daemon.BytesInFlightPerNamespace, s.bytes)
		s.budgets[namespace] = b
	}
	return b
}

func (s *Supervisor) find(namespace, name string) (*consumer, error) {
	k := key{namespaceOr(namespace), name}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if c := s.consumers[k]; c != nil {
		return c, nil
	}
	return nil, errorf(pb.ErrorReason_ERROR_REASON_NOT_FOUND, "no consumer %s", k)
}

// all lists consumers in the order of their names.
func (s *Supervisor) all() []*consumer {
	s.mu.RLock()
	out := make([]*consumer, 0, len(s.consumers))
	for _, c := range s.consumers {
		out = append(out, c)
	}
	s.mu.RUnlock()
	slices.SortFunc(out, func(a, b *consumer) int { return compareKeys(a.key, b.key) })
	return out
}

func (s *Supervisor) putConsumer(ctx context.Context, rec *pb.Consumer) error {
	return s.o.Store.Update(ctx, func(tx *store.Tx) error { return tx.PutConsumer(rec) })
}

// newHandler makes a handler. One that is not there when ctx ends is closed
// when it comes.
func (s *Supervisor) newHandler(ctx context.Context, cfg *spec.Consumer, env HandlerEnv) (Handler, error) {
	ctx, cancel := context.WithTimeout(ctx, newHandlerTimeout)
	defer cancel()
	var h Handler
	made := Go(func() (err error) {
		full, err := cfg.FullSpec()
		if err == nil {
			h, err = s.kinds[cfg.HandlerKind].New(full, env)
		}
		return err
	})
	select {
	case err := <-made:
		return h, err
	case <-ctx.Done():
	}
	go func() {
		if <-made != nil {
			return
		}
		if closer, ok := h.(io.Closer); ok {
			if err := <-Go(closer.Close); err != nil {
				env.Log.Warn("closing a handler that came too late", "error", err)
			}
		}
	}()
	return nil, fmt.Errorf("it was not ready in %s: look at what it waits for, then start the consumer", newHandlerTimeout)
}

func (c *consumer) handlerEnv() HandlerEnv { return HandlerEnv{Log: c.log, Secret: spec.Secret} }

// Info tells of the process.
func (s *Supervisor) Info() *pb.GetServerInfoResponse {
	out := &pb.GetServerInfoResponse{
		Version: s.o.Version, Started: timestamppb.New(s.started), States: map[string]int32{},
		ShuttingDown: s.closing.Load(), StoreWritable: s.o.Store.Writable() == nil,
	}
	users := map[string]int32{}
	for _, c := range s.all() {
		out.Consumers++
		out.States[short(c.view.Load().state.Public())]++
		users[c.rec.Load().GetSpec().GetSource().GetConnection()]++
	}
	for _, d := range s.o.Drivers {
		out.Drivers = append(out.Drivers, d.Kind())
	}
	slices.Sort(out.GetDrivers())
	for name, l := range s.links {
		up, why := l.status()
		out.Connections = append(out.Connections, &pb.ConnectionInfo{
			Name: name, Driver: l.driver.Kind(), Connected: up, Reason: why, Consumers: users[name],
		})
	}
	slices.SortFunc(out.GetConnections(), func(a, b *pb.ConnectionInfo) int {
		return compareKeys(key{name: a.GetName()}, key{name: b.GetName()})
	})
	return out
}

// ShuttingDown tells whether Shutdown was called.
func (s *Supervisor) ShuttingDown() bool { return s.closing.Load() }

// kindOf is the driver of a connection: the field of its oneof that is set.
func kindOf(c *pb.Connection) string {
	m := c.ProtoReflect()
	if f := m.WhichOneof(m.Descriptor().Oneofs().ByName("broker")); f != nil {
		return string(f.Name())
	}
	return ""
}
