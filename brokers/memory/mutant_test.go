package memory_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/brokertest"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// mutant is a driver with one fault built in, on one kind of broker, and the
// behaviour that has to find it.
type mutant struct {
	name, kind, behaviour string
	sub                   func(brokers.Subscription) brokers.Subscription
	conn                  func(brokers.Conn) brokers.Conn
	open                  func(brokers.Env)
}

// mutantDriver wraps what the memory driver makes.
type mutantDriver struct {
	brokers.Driver
	m *mutant
}

type mutantConn struct {
	brokers.Conn
	m *mutant
}

type mutantHarness struct {
	*harness
	m *mutant
}

func (h mutantHarness) Driver() brokers.Driver { return mutantDriver{h.driver, h.m} }

func (d mutantDriver) Open(ctx context.Context, c *supervisorv1.Connection, env brokers.Env) (brokers.Conn, error) {
	if d.m.open != nil {
		d.m.open(env)
	}
	conn, err := d.Driver.Open(ctx, c, env)
	if err != nil {
		return nil, err
	}
	if d.m.conn != nil {
		conn = d.m.conn(conn)
	}
	return mutantConn{conn, d.m}, nil
}

func (c mutantConn) Subscribe(ctx context.Context, source any, o brokers.Observer) (brokers.Subscription, error) {
	s, err := c.Conn.Subscribe(ctx, source, o)
	if err != nil || c.m.sub == nil {
		return s, err
	}
	return c.m.sub(s), nil
}

// twisted is a subscription of which single calls are replaced.
type twisted struct {
	brokers.Subscription
	receive func(context.Context, brokers.Credit) ([]brokers.Delivery, error)
	settle  func(context.Context, []brokers.Settlement) error
	hold    func(context.Context, []*brokers.Delivery) (brokers.Report, error)
	flow    func(context.Context) error
	close   func(context.Context, []*brokers.Delivery) (brokers.Report, error)
	lag     func(context.Context) (brokers.Lag, error)
	caps    func() brokers.Capabilities
}

func (s *twisted) Receive(ctx context.Context, c brokers.Credit) ([]brokers.Delivery, error) {
	if s.receive != nil {
		return s.receive(ctx, c)
	}
	return s.Subscription.Receive(ctx, c)
}

func (s *twisted) Settle(ctx context.Context, st []brokers.Settlement) error {
	if s.settle != nil {
		return s.settle(ctx, st)
	}
	return s.Subscription.Settle(ctx, st)
}

func (s *twisted) Hold(ctx context.Context, ds []*brokers.Delivery) (brokers.Report, error) {
	if s.hold != nil {
		return s.hold(ctx, ds)
	}
	return s.Subscription.Hold(ctx, ds)
}

func (s *twisted) Flow(ctx context.Context) error {
	if s.flow != nil {
		return s.flow(ctx)
	}
	return s.Subscription.Flow(ctx)
}

func (s *twisted) Close(ctx context.Context, ds []*brokers.Delivery) (brokers.Report, error) {
	if s.close != nil {
		return s.close(ctx, ds)
	}
	return s.Subscription.Close(ctx, ds)
}

func (s *twisted) Lag(ctx context.Context) (brokers.Lag, error) {
	if s.lag != nil {
		return s.lag(ctx)
	}
	return s.Subscription.Lag(ctx)
}

func (s *twisted) Capabilities() brokers.Capabilities {
	if s.caps != nil {
		return s.caps()
	}
	return s.Subscription.Capabilities()
}

// twist makes a mutant's sub from a function that replaces calls.
func twist(f func(*twisted)) func(brokers.Subscription) brokers.Subscription {
	return func(s brokers.Subscription) brokers.Subscription {
		t := &twisted{Subscription: s}
		f(t)
		return t
	}
}

// caps makes a mutant's sub that lies about capabilities.
func caps(f func(*brokers.Capabilities)) func(brokers.Subscription) brokers.Subscription {
	return twist(func(t *twisted) {
		t.caps = func() brokers.Capabilities {
			c := t.Subscription.Capabilities()
			f(&c)
			return c
		}
	})
}

// reports makes a mutant's sub whose reports are changed.
func reports(f func(*brokers.Report)) func(brokers.Subscription) brokers.Subscription {
	return twist(func(t *twisted) {
		t.hold = func(ctx context.Context, ds []*brokers.Delivery) (brokers.Report, error) {
			rep, err := t.Subscription.Hold(ctx, ds)
			f(&rep)
			return rep, err
		}
		t.close = func(ctx context.Context, ds []*brokers.Delivery) (brokers.Report, error) {
			rep, err := t.Subscription.Close(ctx, ds)
			f(&rep)
			return rep, err
		}
	})
}

// outcomes makes a mutant's sub that sends other outcomes than it is given.
func outcomes(f func(brokers.Outcome) brokers.Outcome) func(brokers.Subscription) brokers.Subscription {
	return twist(func(t *twisted) {
		t.settle = func(ctx context.Context, st []brokers.Settlement) error {
			out := make([]brokers.Settlement, len(st))
			for i, s := range st {
				out[i] = brokers.Settlement{Delivery: s.Delivery, Outcome: f(s.Outcome), AfterMillis: s.AfterMillis}
			}
			return t.Subscription.Settle(ctx, out)
		}
	})
}

// receives makes a mutant's sub that receives otherwise.
func receives(f func(context.Context, brokers.Subscription, brokers.Credit) ([]brokers.Delivery, error)) func(brokers.Subscription) brokers.Subscription {
	return twist(func(t *twisted) {
		t.receive = func(ctx context.Context, c brokers.Credit) ([]brokers.Delivery, error) {
			return f(ctx, t.Subscription, c)
		}
	})
}

// receiveErrors makes a mutant's sub whose Receive errors are changed.
func receiveErrors(f func(*brokers.Error) error) func(brokers.Subscription) brokers.Subscription {
	return receives(func(ctx context.Context, s brokers.Subscription, c brokers.Credit) ([]brokers.Delivery, error) {
		batch, err := s.Receive(ctx, c)
		if e, ok := errors.AsType[*brokers.Error](err); ok {
			return batch, f(e)
		}
		return batch, err
	})
}

// publisher is a Conn whose Publish is replaced.
type publisher struct {
	brokers.Conn
	publish func(context.Context, []brokers.Publication) error
}

func (p publisher) Publish(ctx context.Context, ps []brokers.Publication) error {
	return p.publish(ctx, ps)
}

// TestMutants runs the suite against drivers with a fault, each in a process of
// its own, and demands that the behaviour in question fails.
func TestMutants(t *testing.T) {
	if name := os.Getenv("MUTANT"); name != "" {
		for _, m := range mutants() {
			if m.name == name {
				h := kinds()[m.kind]
				brokertest.RunInBubbles(t, func() brokertest.Harness { return mutantHarness{h(), &m} })
			}
		}
		return
	}
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestMutants$/^"+m.behaviour+"$", "-test.v")
			cmd.Env = append(os.Environ(), "MUTANT="+m.name)
			out, err := cmd.CombinedOutput()
			_, failed := errors.AsType[*exec.ExitError](err)
			if !failed || !bytes.Contains(out, []byte("--- FAIL: TestMutants/"+m.behaviour)) && !strings.Contains(string(out), "panic") {
				t.Errorf("%s did not find it: %v\n%s", m.behaviour, err, out)
			}
		})
	}
}
