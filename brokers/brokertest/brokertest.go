// Package brokertest holds every driver to the contract of package brokers.
//
// A driver's test implements [Harness] for a broker of its own and calls [Run],
// or [RunInBubbles] when the broker lives in the process and can run in virtual
// time. Each behaviour is one function whose comment is the promise it checks;
// the table lists them with what they need. What a broker cannot do it does not
// declare, so nothing is skipped unseen: the run ends with a count.
package brokertest

import (
	"context"
	"flag"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// Harness is one broker, and a client of the test's own to fill it, to look into
// it and to disturb it. Its methods return within ctx.
type Harness interface {
	Driver() brokers.Driver
	Features() Features

	// Connection is a configuration that works, or one whose credentials the
	// broker refuses. The latter is asked for with Features.Credentials only.
	Connection(valid bool) *supervisorv1.Connection
	// Secrets are what Env.Secret resolves: values by reference. No value may
	// appear in an error or in the log.
	Secrets() map[string]string

	// Source makes a fresh, empty source as o wants, and returns a spec with its
	// defaults filled in that consumes it and has a dead letter target. The spec
	// names the source in the calls below.
	Source(ctx context.Context, o SourceOptions) (*supervisorv1.ConsumerSpec, error)
	// Publish adds messages in order, and returns when they are stored.
	Publish(ctx context.Context, s *supervisorv1.ConsumerSpec, ms []Message) error
	// Count asks the broker.
	Count(ctx context.Context, s *supervisorv1.ConsumerSpec) (Count, error)
	// DeadLetters reads what is in the dead letter target.
	DeadLetters(ctx context.Context, s *supervisorv1.ConsumerSpec) ([]Message, error)
	// Disturb causes a fault that Features declares, and returns when it is there.
	Disturb(ctx context.Context, f Fault, s *supervisorv1.ConsumerSpec) error
}

// SourceOptions is what a behaviour wants of its source.
type SourceOptions struct {
	// Absent: neither the source nor its dead letter target is there.
	Absent bool
	// NoTarget: the source is there, its dead letter target is not.
	NoTarget bool
	// Missing is the spec's policy; unspecified: the driver's default.
	Missing supervisorv1.Missing
	// Partitions; 0: one, where there are any.
	Partitions int
	// AckDeadline is the time after which the broker redelivers what is not
	// settled; asked for with Features.AckDeadline only.
	AckDeadline time.Duration
	// DeliveryLimit takes a message away after so many deliveries; asked for with
	// Features.DeliveryLimit only.
	DeliveryLimit int
}

// Message is one message.
type Message struct {
	ID      string
	Key     []byte
	Body    []byte
	Headers []brokers.Header
}

// Count is what the broker says of a source.
type Count struct {
	// Remaining messages are not acked, whether a consumer has them or not; above
	// a position, where there are positions.
	Remaining int64
	// Members are the subscriptions that the broker knows; with Features.Members.
	Members int
}

// Fault is something that goes wrong with a broker.
type Fault uint8

// The faults, and what ends them.
const (
	// Cut breaks the connections of the driver; dialling again works.
	Cut Fault = iota + 1
	// Freeze stops the broker without closing anything, until Thaw.
	Freeze
	Thaw
	// Kill ends the broker; what it has stored stays. Restart brings it back.
	Kill
	Restart
	// Delete removes the source, Recreate makes it again.
	Delete
	Recreate
	// Forbid takes from the driver the right to consume the source, until Permit.
	Forbid
	Permit
	// Redeliver takes away what consumers have, without telling them.
	Redeliver
	// Lose makes connections useless, so that Lost is closed.
	Lose
	// Block keeps publications waiting, as a memory or disk alarm does, and lets
	// consumers go on, until Unblock.
	Block
	Unblock
)

func (f Fault) String() string {
	return [...]string{
		"", "Cut", "Freeze", "Thaw", "Kill", "Restart", "Delete", "Recreate", "Forbid", "Permit", "Redeliver", "Lose",
		"Block", "Unblock",
	}[f]
}

// Redelivery is how well a broker counts earlier deliveries.
type Redelivery uint8

// How Delivery.Redelivered counts.
const (
	NotCounted Redelivery = iota
	// Flagged: 1 stands for any number.
	Flagged
	Counted
)

// Features is what broker, driver and harness can do. What is not declared is
// not run.
type Features struct {
	Faults []Fault
	// Survives: a connection that breaks and is dialled again at once ends no
	// subscription.
	Survives bool
	// Credentials are checked by the broker.
	Credentials bool
	// Revokes: a right that is taken away ends what began with it.
	Revokes bool
	// Finishes: its subscriptions are Finishers.
	Finishes bool
	// Create: the driver makes a missing source when the spec says so.
	Create bool
	// Members are counted by the harness.
	Members bool
	// Order: what is given back comes again in its old order.
	Order bool
	// Delay: Settlement.After is kept.
	Delay bool
	// Names: a published ID becomes Delivery.Name. Keys and Headers likewise.
	Names, Keys, Headers bool
	// Redelivery tells how Delivery.Redelivered counts.
	Redelivery Redelivery
	// Partitions: SourceOptions.Partitions works.
	Partitions bool
	// Seek: the connection is a brokers.Positioner.
	Seek bool
	// DeliveryLimit: SourceOptions.DeliveryLimit works.
	DeliveryLimit bool
	// AckDeadline is the shortest that SourceOptions can ask for; 0: none.
	AckDeadline time.Duration

	// Patience is how long anything may take; default 10 s.
	Patience time.Duration
	// Prompt is what "at once" means; default 1 s.
	Prompt time.Duration
	// Quiet is how long nothing must come to believe that nothing comes; default
	// 300 ms.
	Quiet time.Duration
}

func (f *Features) setDefaults() {
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{{&f.Patience, 10 * time.Second}, {&f.Prompt, time.Second}, {&f.Quiet, 300 * time.Millisecond}} {
		if *d.v <= 0 {
			*d.v = d.d
		}
	}
}

// behaviour is one promise of the contract.
type behaviour struct {
	name string
	run  func(*run)
	// faults and needs are what the harness must declare; needs may be nil.
	faults []Fault
	needs  func(Features) bool
}

func (b *behaviour) possible(f Features) bool {
	for _, fault := range b.faults {
		if !slices.Contains(f.Faults, fault) {
			return false
		}
	}
	return b.needs == nil || b.needs(f)
}

// Run checks a driver on one broker. The behaviours share a connection, and at
// the end no goroutine is left but the harness's own.
func Run(t *testing.T, h Harness, own ...goleak.Option) {
	t.Helper()
	own = append(own, goleak.IgnoreCurrent())
	s := newSuite(t, h)
	s.each(t, func(t *testing.T, b *behaviour) { s.check(t, b) })
	s.close(t)
	(&run{T: t, suite: s}).eventually("goroutines end", func(context.Context) error { return goleak.Find(own...) })
}

// RunInBubbles checks a driver in virtual time: each behaviour in a bubble of its
// own, with a harness of its own.
func RunInBubbles(t *testing.T, fresh func() Harness) {
	t.Helper()
	all := newSuite(t, fresh())
	defer all.close(t)
	all.each(t, func(t *testing.T, b *behaviour) {
		synctest.Test(t, func(t *testing.T) {
			s := newSuite(t, fresh())
			t.Cleanup(func() { s.close(t) }) // behind what behaviours left open
			s.check(t, b)
		})
	})
}

// each runs the behaviours that the features allow, and tells how many.
func (s *suite) each(t *testing.T, check func(*testing.T, *behaviour)) {
	t.Helper()
	ran, possible := 0, 0
	var left []string
	for _, b := range behaviours() {
		if !b.possible(s.features) {
			left = append(left, b.name)
			continue
		}
		possible++
		t.Run(b.name, func(t *testing.T) {
			ran++
			check(t, &b)
		})
	}
	t.Logf("brokertest: %s: %d behaviours ran; not declared: %s", s.h.Driver().Kind(), ran, strings.Join(left, ", "))
	if f := flag.Lookup("test.run"); ran != possible && (f == nil || !strings.Contains(f.Value.String(), "/")) {
		t.Errorf("%d behaviours ran, but the features allow %d", ran, possible)
	}
}
