package brokertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// suite is what the behaviours of one run share.
type suite struct {
	h        Harness
	features Features
	log      *journal
	dir      string
	conn     brokers.Conn
}

func newSuite(t testing.TB, h Harness) *suite {
	s := &suite{h: h, features: h.Features(), log: &journal{}, dir: t.TempDir()}
	s.features.setDefaults()
	return s
}

// journal collects what the driver logs and returns as errors.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// env is what the driver gets.
func (s *suite) env() brokers.Env {
	secrets := s.h.Secrets()
	return brokers.Env{
		DataDir: s.dir,
		Log:     slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Secret: func(ref string) (string, error) {
			if v, ok := secrets[ref]; ok {
				return v, nil
			}
			return "", fmt.Errorf("%s cannot be resolved: set it", ref)
		},
	}
}

// check runs one behaviour, and then looks for secrets in what was said.
func (s *suite) check(t *testing.T, b *behaviour) {
	r := &run{T: t, suite: s}
	r.connected()
	b.run(r)
	s.keptSecret(t)
}

func (s *suite) keptSecret(t *testing.T) {
	said := s.log.String()
	for ref, secret := range s.h.Secrets() {
		if secret != "" && strings.Contains(said, secret) {
			t.Errorf("the value of %s appears in the log or in an error", ref)
		}
	}
}

// close ends the connection, and a harness that has a Close.
func (s *suite) close(t *testing.T) {
	if c, ok := s.h.(interface{ Close() }); ok {
		defer c.Close()
	}
	if s.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.features.Patience)
	defer cancel()
	if err := s.conn.Close(ctx); err != nil {
		t.Errorf("close the connection: %v", err)
	}
	s.keptSecret(t)
}

// run is one behaviour under way.
type run struct {
	*testing.T
	*suite
}

// connected waits until the shared connection works, and opens it anew when it
// was lost.
func (r *run) connected() {
	r.Helper()
	c := r.h.Connection(true)
	if faults := r.h.Driver().CheckConnection(c); len(faults) > 0 {
		r.Fatalf("the harness's connection is wrong: %v", faults)
	}
	r.eventually("connect", func(ctx context.Context) error {
		if r.conn != nil && r.isLost() {
			r.note(r.conn.Close(ctx))
			r.conn = nil
		}
		if r.conn != nil {
			return r.conn.Err()
		}
		conn, err := r.h.Driver().Open(ctx, c, r.env())
		if err == nil {
			r.conn, err = conn, conn.Err()
		}
		return err
	})
}

func (r *run) isLost() bool {
	select {
	case <-r.conn.Lost():
		return true
	default:
		return false
	}
}

// within is a context that ends after d.
func (r *run) within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), d)
}

// eventually tries until f returns nil, and fails with its last error when that
// takes longer than the patience.
func (r *run) eventually(what string, f func(context.Context) error) {
	r.Helper()
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := r.saw(f(ctx))
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			r.Fatalf("%s: not within %v: %v", what, r.features.Patience, err)
		}
	}
}

// saw writes an error down, to be searched for secrets, and returns it.
func (r *run) saw(err error) error {
	r.note(err)
	return err
}

func (r *run) note(err error) {
	if err != nil {
		fmt.Fprintln(r.log, err)
	}
}

// ok ends the behaviour on an error.
func (r *run) ok(what string, err error) {
	r.Helper()
	if r.saw(err) != nil {
		r.Fatalf("%s: %v", what, err)
	}
}

// class demands an error of one of these classes.
func (r *run) class(what string, err error, want ...brokers.Class) {
	r.Helper()
	r.note(err)
	e, ok := errors.AsType[*brokers.Error](err)
	switch {
	case !ok:
		r.Fatalf("%s: got %v, want a *brokers.Error of class %v", what, err, want)
	case !slices.Contains(want, e.Class):
		r.Fatalf("%s: class %v, want %v: %v", what, e.Class, want, err)
	case e.Op == "" || e.Err == nil || e.Err.Error() == "":
		r.Errorf("%s: the error does not say what was tried and what the broker said: %#v", what, e)
	}
}

// source makes a source.
func (r *run) source(o SourceOptions) *supervisorv1.ConsumerSpec {
	r.Helper()
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	s, err := r.h.Source(ctx, o)
	r.ok("make a source", err)
	return s
}

// plan parses a spec.
func (r *run) plan(s *supervisorv1.ConsumerSpec) brokers.Plan {
	r.Helper()
	p, faults := r.h.Driver().Parse(s)
	if len(faults) > 0 {
		r.Fatalf("the harness's spec is wrong: %v", faults)
	}
	if p.Origin == "" || p.DeadLetter == nil || p.DeadLetter.String() == "" {
		r.Fatalf("the plan does not name its source and its dead letter target: %+v", p)
	}
	return p
}

// publish adds n messages with the bodies that body(first), body(first+1) ... make.
func (r *run) publish(s *supervisorv1.ConsumerSpec, first, n int) {
	r.Helper()
	ms := make([]Message, n)
	for i := range ms {
		ms[i] = Message{Body: []byte(body(first + i))}
	}
	r.publishAll(s, ms)
}

func (r *run) publishAll(s *supervisorv1.ConsumerSpec, ms []Message) {
	r.Helper()
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	r.ok("publish", r.h.Publish(ctx, s, ms))
}

// body tells messages apart.
func body(i int) string { return fmt.Sprintf("m%06d", i) }

// bodies are body(first) to body(first+n-1).
func bodies(first, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = body(first + i)
	}
	return out
}

func (r *run) count(s *supervisorv1.ConsumerSpec) Count {
	r.Helper()
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	c, err := r.h.Count(ctx, s)
	r.ok("count", err)
	return c
}

// remains demands that the broker has n messages that are not acked, at once.
func (r *run) remains(s *supervisorv1.ConsumerSpec, n int64) {
	r.Helper()
	if got := r.count(s).Remaining; got != n {
		r.Errorf("%d messages remain at the broker, want %d", got, n)
	}
}

// settled waits until the broker has nothing that is not acked.
func (r *run) settled(s *supervisorv1.ConsumerSpec) {
	r.Helper()
	r.eventually("count what remains", func(ctx context.Context) error {
		c, err := r.h.Count(ctx, s)
		if err == nil && c.Remaining != 0 {
			err = fmt.Errorf("%d messages remain at the broker, want none", c.Remaining)
		}
		return err
	})
}

// disturb causes a fault.
func (r *run) disturb(f Fault, s *supervisorv1.ConsumerSpec) {
	r.Helper()
	ctx, cancel := r.within(r.features.Patience)
	defer cancel()
	r.ok(f.String(), r.h.Disturb(ctx, f, s))
}
