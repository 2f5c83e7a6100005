// Package spec checks what users write: it turns a consumer's spec and the
// daemon's configuration into plain values with their defaults, or into
// everything that is wrong with them.
//
// Every fault has the path of its field; package textform finds the line. A
// value that is refused is taken as its default in the checks that follow, so
// that one mistake is reported once.
package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/seed-111f5b8e/supervisord/brokers"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// Env is what a spec may refer to.
type Env struct {
	// Drivers by their kind.
	Drivers map[string]brokers.Driver
	// Connections by their name.
	Connections map[string]*pb.Connection
	// Handlers by their kind.
	Handlers map[string]HandlerKind
}

// HandlerKind checks the specs of one kind of handler.
type HandlerKind interface {
	// Kind is the name of the field in the oneof Handler.kind.
	Kind() string
	// Check reports what is wrong with this kind's part of a spec whose
	// defaults are filled in, with paths from the spec's root. It does no I/O.
	Check(s *pb.ConsumerSpec) []brokers.Fault
}

// Backoff doubles from Initial to Max.
type Backoff struct{ Initial, Max time.Duration }

// Consumer is a spec that passed all checks, with its defaults. It is not
// changed after Check and may be shared.
type Consumer struct {
	Namespace, Name string
	Labels          map[string]string
	// Connection by name, and Kind, its driver.
	Connection, Kind string
	Plan             brokers.Plan

	HandlerKind    string
	HandlerTimeout time.Duration
	Concurrency    int
	Ordering       pb.Ordering
	// KeyHeader is the header that holds the key with ordering KEY; "" is the
	// broker's own key.
	KeyHeader string
	// Lanes with ordering KEY, else 0.
	Lanes int
	// MaxMessages and MaxBytes bound what is in flight, queued and running.
	MaxMessages int
	MaxBytes    int64

	// Attempts is how often a message is handled before it is dead-lettered.
	Attempts int
	Backoff  Backoff
	// RestartAttempts is how many failures in a row the broker may answer.
	RestartAttempts int
	RestartBackoff  Backoff
	// Soft and Hard limits of a stop, both from the closing of the intake.
	Soft, Hard time.Duration
	// Start is the desired state at creation.
	Start pb.DesiredState

	// Written is the spec as the user wrote it; Full has the defaults. A lean
	// Consumer has neither.
	Written, Full *pb.ConsumerSpec

	packed []byte // of a lean one: Full
}

// Lean is the same without the specs, which are most of what it holds; the full
// one can still be had.
func (c *Consumer) Lean() *Consumer {
	if c == nil {
		return nil
	}
	packed, err := proto.Marshal(c.Full)
	if err != nil {
		return c // it came over the wire; keep it as it is
	}
	out := *c
	out.Written, out.Full, out.packed = nil, nil, packed
	return &out
}

// FullSpec is the spec with its defaults, also of a lean Consumer.
func (c *Consumer) FullSpec() (*pb.ConsumerSpec, error) {
	if c.Full != nil {
		return c.Full, nil
	}
	s := &pb.ConsumerSpec{}
	if err := proto.Unmarshal(c.packed, s); err != nil {
		return nil, fmt.Errorf("unpack the spec: %w", err)
	}
	return s, nil
}

// Check reports everything that is wrong with a spec, the driver's and the
// handler's faults included, or gives the checked consumer. It does no I/O,
// keeps nothing of s, and is safe for concurrent use.
func Check(s *pb.ConsumerSpec, env Env) (*Consumer, []brokers.Fault) {
	if s == nil {
		s = &pb.ConsumerSpec{}
	}
	out := &Consumer{
		Written: proto.CloneOf(s),
		Full:    proto.CloneOf(s),
	}
	c := &checker{}
	c.scrub(out.Full.ProtoReflect(), "")
	c.identity(out)
	c.core(out)
	c.source(out, env)
	c.handler(out, env)
	if len(c.faults) > 0 {
		return nil, c.faults
	}
	return out, nil
}

// source checks where messages come from, and asks the driver.
func (c *checker) source(out *Consumer, env Env) {
	src := out.Full.GetSource()
	if src == nil {
		c.faultf("source", "is missing: name a connection and one of %s", list(env.Drivers))
		return
	}
	out.Connection, out.Kind = src.GetConnection(), memberOf(src, "broker")
	if c.connection(out, env); out.Kind == "" {
		c.faultf("source", "has no broker: add one of %s", list(env.Drivers))
		return
	}
	driver := env.Drivers[out.Kind]
	if driver == nil {
		c.faultf("source."+out.Kind, "this program has no driver for it; it has %s", list(env.Drivers))
		return
	}
	plan, faults := driver.Parse(out.Full)
	out.Plan = plan
	c.add(faults)
}

// add takes over faults of a driver or a handler, but for fields that have one.
func (c *checker) add(faults []brokers.Fault) {
	for _, f := range faults {
		if !c.has(f.Path) {
			c.faults = append(c.faults, f)
		}
	}
}

// connection checks the named connection against the namespace and the broker.
func (c *checker) connection(out *Consumer, env Env) {
	const path = "source.connection"
	conn := env.Connections[out.Connection]
	switch {
	case out.Connection == "":
		c.faultf(path, "is missing: name one of the daemon's connections: %s", list(env.Connections))
	case conn == nil:
		c.faultf(path, "there is no connection %q; the daemon has %s", clip(out.Connection), list(env.Connections))
	case !c.has("namespace") && len(conn.GetNamespaces()) > 0 && !slices.Contains(conn.GetNamespaces(), out.Full.GetNamespace()):
		c.faultf(path, "namespace %q may not use connection %q: its namespaces in the daemon's configuration do not name it",
			clip(out.Full.GetNamespace()), out.Connection)
	default:
		if kind := ConnectionKind(conn); out.Kind != "" && kind != out.Kind {
			c.faultf("source."+out.Kind, "connection %q is of broker %s: write source.%s, or name another connection", out.Connection, kind, kind)
		}
	}
}

// handler checks what all handlers have, and asks the kind.
func (c *checker) handler(out *Consumer, env Env) {
	h := out.Full.GetHandler()
	out.HandlerKind = memberOf(h, "kind")
	if out.HandlerKind == "" {
		c.faultf("handler", "is missing: add one of %s", list(env.Handlers))
		return
	}
	kind := env.Handlers[out.HandlerKind]
	if kind == nil {
		c.faultf("handler."+out.HandlerKind, "this program has no such handler; it has %s", list(env.Handlers))
		return
	}
	c.add(kind.Check(out.Full))
}

// ConnectionKind is the kind of a connection's driver; "" without one.
func ConnectionKind(c *pb.Connection) string { return memberOf(c, "broker") }

// memberOf is the name of the member that is set in a oneof; "" without.
func memberOf(m proto.Message, oneof string) string {
	r := m.ProtoReflect()
	for i := range r.Descriptor().Oneofs().Len() {
		one := r.Descriptor().Oneofs().Get(i)
		if string(one.Name()) != oneof {
			continue
		}
		if fd := r.WhichOneof(one); fd != nil {
			return string(fd.Name())
		}
	}
	return ""
}

// list names what there is, for messages.
func list[T any](known map[string]T) string {
	if len(known) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(known)), ", ")
}
