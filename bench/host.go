package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/seed-111f5b8e/supervisord/brokers"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"github.com/seed-111f5b8e/supervisord/supervisor/handlers"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
	"github.com/seed-111f5b8e/supervisord/supervisor/store"
)

const (
	actor      = "bench"
	connection = "main"
	// handlerName is the Go function that specs name unless told otherwise.
	handlerName = "noop"
	// mostInFlight bounds both sides where they do the same work.
	mostInFlight = 1000
)

// host is a supervisor as a program embeds it, with its state in a folder that
// goes with it.
type host struct {
	*supervisor.Supervisor
	store *store.Store
	dir   string
}

// newHost starts a supervisor with one connection of the driver's kind. Its
// consumers may call the given functions.
func newHost(d brokers.Driver, conn *pb.Connection, functions map[string]supervisor.Handler) (*host, error) {
	daemon, faults := spec.CheckDaemon(&pb.DaemonConfig{
		Connections: []*pb.Connection{conn},
		Limits:      &pb.Limits{ConsumersPerNamespace: new(int32(100_000))},
	}, map[string]brokers.Driver{d.Kind(): d})
	if len(faults) > 0 {
		return nil, joinFaults(faults)
	}
	dir, err := os.MkdirTemp("", "supervisord-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the state: %w", err)
	}
	st, err := store.Open(filepath.Join(dir, "state.db"), store.Options{})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s, err := supervisor.New(supervisor.Options{
		Daemon: daemon, Drivers: []brokers.Driver{d}, Handlers: []supervisor.HandlerKind{handlers.Go(functions)},
		Store: st, DataDir: dir, Log: slog.New(slog.DiscardHandler), Version: "bench",
	})
	if err != nil {
		return nil, errors.Join(err, st.Close(), os.RemoveAll(dir))
	}
	return &host{s, st, dir}, nil
}

// supervise hosts one consumer that calls handler, and pauses it once it runs.
func supervise(ctx context.Context, d brokers.Driver, conn *pb.Connection, s *pb.ConsumerSpec, handler supervisor.Handler) (*host, error) {
	h, err := newHost(d, conn, map[string]supervisor.Handler{handlerName: handler})
	if err != nil {
		return nil, err
	}
	err = h.apply(ctx, s)
	if err == nil {
		err = h.await(ctx, pb.State_STATE_RUNNING, 1, s.GetName())
	}
	if err == nil {
		err = h.pause(ctx, s.GetName())
	}
	if err != nil {
		return nil, errors.Join(err, h.close(ctx))
	}
	return h, nil
}

// close ends all consumers and removes the folder.
func (h *host) close(ctx context.Context) error {
	_, err := h.Shutdown(ctx)
	return errors.Join(err, h.store.Close(), os.RemoveAll(h.dir))
}

// apply creates consumers; it does not wait until they run.
func (h *host) apply(ctx context.Context, specs ...*pb.ConsumerSpec) error {
	const atOnce = 1000
	for len(specs) > 0 {
		r := &pb.ApplyRequest{}
		for _, s := range specs[:min(atOnce, len(specs))] {
			r.Items = append(r.Items, &pb.ApplyItem{Spec: s})
		}
		specs = specs[len(r.GetItems()):]
		if _, err := h.Apply(ctx, actor, r); err != nil {
			if e, ok := errors.AsType[*supervisor.Error](err); ok {
				err = errors.Join(err, joinFaults(e.Faults))
			}
			return fmt.Errorf("apply: %w", err)
		}
	}
	return nil
}

// verb carries v out on one consumer and returns when it was accepted, a kill
// when it is done.
func (h *host) verb(ctx context.Context, v pb.Verb, name string) (*pb.VerbResult, error) {
	out, err := h.Do(ctx, supervisor.Command{
		Verb: v, Actor: actor, Target: &pb.Target{Names: []string{name}}, Options: &pb.VerbOptions{},
	})
	if err != nil {
		return nil, fmt.Errorf("%v %s: %w", v, name, err)
	}
	return out[0], nil
}

// errSeen ends a watch that saw what it waited for.
var errSeen = errors.New("seen")

// await returns when consumers are in a state: the named ones, or n of all.
// It fails at once when one of them has FAILED.
func (h *host) await(ctx context.Context, state pb.State, n int, names ...string) error {
	in := make(map[string]struct{}, n)
	for {
		clear(in)
		err := h.Watch(ctx, &pb.WatchRequest{Names: names}, func(r *pb.WatchResponse) error {
			c := r.GetConsumer()
			if c == nil {
				return nil
			}
			name := c.GetSpec().GetName()
			switch c.GetStatus().GetState() {
			case state:
				in[name] = struct{}{}
			case pb.State_STATE_FAILED:
				return fmt.Errorf("%s has FAILED: %s", name, c.GetStatus().GetReason())
			default:
				delete(in, name)
			}
			if len(in) == n {
				return errSeen
			}
			return nil
		})
		e, ours := errors.AsType[*supervisor.Error](err)
		switch {
		case errors.Is(err, errSeen):
			return nil
		case ours && e.Reason == pb.ErrorReason_ERROR_REASON_SLOW_WATCHER:
			continue
		}
		return err
	}
}

// side compares one consumer: it works while it is not paused.
func (h *host) side(name string) side {
	return side{
		name: name,
		start: func(ctx context.Context) error {
			if _, err := h.verb(ctx, pb.Verb_VERB_RESUME, name); err != nil {
				return err
			}
			return h.await(ctx, pb.State_STATE_RUNNING, 1, name)
		},
		stop: func(ctx context.Context) error { return h.pause(ctx, name) },
		count: func() (int64, error) {
			c, err := h.Get("", name)
			return c.GetStatus().GetCounters().GetAcked(), err
		},
	}
}

func (h *host) pause(ctx context.Context, name string) error {
	if _, err := h.verb(ctx, pb.Verb_VERB_PAUSE, name); err != nil {
		return err
	}
	return h.await(ctx, pb.State_STATE_PAUSED, 1, name)
}

// newSpec is a consumer with a handler of this process.
func newSpec(name string, source *pb.Source, change ...func(*pb.ConsumerSpec)) *pb.ConsumerSpec {
	source.Connection = connection
	s := &pb.ConsumerSpec{
		Namespace: "default", Name: name, Source: source,
		Handler: &pb.Handler{
			Timeout: durationpb.New(10 * time.Second),
			Kind:    &pb.Handler_Go{Go: &pb.GoHandler{Name: handlerName}},
		},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

func slots(n int32) func(*pb.ConsumerSpec) {
	return func(s *pb.ConsumerSpec) { s.Concurrency = new(n) }
}

// bounded lets at most mostInFlight messages be in flight.
func bounded(s *pb.ConsumerSpec) { s.MaxInFlight = &pb.MaxInFlight{Messages: new(int32(mostInFlight))} }

func noop() supervisor.Handler {
	return supervisor.HandlerFunc(func(context.Context, *supervisor.Message) supervisor.Outcome { return supervisor.Ack() })
}

// ends is what is to be closed, the last first.
type ends []func(context.Context) error

func (e *ends) add(f func(context.Context) error) { *e = append(*e, f) }

func (e *ends) close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // also after an interrupt
	var errs []error
	for _, f := range slices.Backward(*e) {
		errs = append(errs, f(ctx))
	}
	*e = nil
	return errors.Join(errs...)
}

func joinFaults(faults []brokers.Fault) error {
	errs := make([]error, len(faults))
	for i, f := range faults {
		errs[i] = f
	}
	return errors.Join(errs...)
}
