package spec_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
)

const least = "name: orders\nsource: {connection: main, nats: {stream: ORDERS}}\nhandler: {log: {}}\n"

func TestDefaults(t *testing.T) {
	c := check(t, least)
	want := &spec.Consumer{
		Namespace: "default", Name: "orders", Connection: "main", Kind: "nats", Plan: c.Plan,
		HandlerKind: "log", HandlerTimeout: 30 * time.Second, Concurrency: 1, Ordering: pb.Ordering_ORDERING_NONE,
		MaxMessages: 100, MaxBytes: 64 << 20, Attempts: 5, Backoff: spec.Backoff{Initial: 200 * time.Millisecond, Max: 30 * time.Second},
		RestartAttempts: 20, RestartBackoff: spec.Backoff{Initial: 200 * time.Millisecond, Max: 30 * time.Second},
		Soft: 15 * time.Second, Hard: 25 * time.Second, Start: pb.DesiredState_DESIRED_STATE_RUNNING,
	}
	wantConsumer(t, c, want)
	if c.Plan.Source == nil || c.Plan.Origin != "stream ORDERS" {
		t.Errorf("the driver's plan is %+v", c.Plan)
	}
	if !proto.Equal(c.Written, read(t, least)) {
		t.Errorf("written is %v", c.Written)
	}
	if got := yamlOf(t, c.Full); got != `namespace: default
name: orders
source:
  connection: main
  nats:
    stream: ORDERS
handler:
  timeout: 30s
  log: {}
concurrency: 1
ordering: NONE
max_in_flight:
  messages: 100
  bytes: 64MiB
retry:
  mode: IN_PLACE
  attempts: 5
  backoff:
    initial: 200ms
    max: 30s
stop:
  soft: 15s
  hard: 25s
start: RUNNING
restart:
  backoff:
    initial: 200ms
    max: 30s
  attempts: 20
` {
		t.Errorf("with defaults it is\n%s", got)
	}
}

func TestAllWritten(t *testing.T) {
	c := check(t, `
namespace: shop
name: orders-2
labels: {team: payments}
source: {connection: local, memory: {queue: q}}
handler: {timeout: 10ms, http: {url: "http://b"}}
concurrency: 300
ordering: KEY
key: {header: customer}
lanes: 7
max_in_flight: {messages: 400, bytes: 1MiB}
retry: {mode: IN_PLACE, attempts: 1, backoff: {initial: 1s, max: 1s}}
dead_letter: {topic: dead}
stop: {soft: 1h, hard: 24h}
start: STOPPED
restart: {attempts: 3, backoff: {initial: 2s, max: 3s}}
`)
	wantConsumer(t, c, &spec.Consumer{
		Namespace: "shop", Name: "orders-2", Labels: map[string]string{"team": "payments"}, Connection: "local", Kind: "memory", Plan: c.Plan,
		HandlerKind: "http", HandlerTimeout: 10 * time.Millisecond, Concurrency: 300, Ordering: pb.Ordering_ORDERING_KEY,
		KeyHeader: "customer", Lanes: 7, MaxMessages: 400, MaxBytes: 1 << 20, Attempts: 1,
		Backoff: spec.Backoff{Initial: time.Second, Max: time.Second}, RestartAttempts: 3,
		RestartBackoff: spec.Backoff{Initial: 2 * time.Second, Max: 3 * time.Second},
		Soft:           time.Hour, Hard: 24 * time.Hour, Start: pb.DesiredState_DESIRED_STATE_STOPPED,
	})
	if c.Plan.DeadLetter == nil {
		t.Error("no dead letter target")
	}
}

// Defaults that depend on other fields.
func TestDependentDefaults(t *testing.T) {
	for concurrency, want := range map[string][2]int{"1": {16, 100}, "4": {16, 100}, "5": {20, 100}, "250": {1000, 250}, "10000": {40000, 10000}} {
		// JetStream's bound on pending acks would be too small for most.
		c := check(t, "name: a\nsource: {connection: local, memory: {queue: q}}\nhandler: {log: {}}\nordering: KEY\nconcurrency: "+concurrency)
		if c.Lanes != want[0] || c.MaxMessages != want[1] || c.KeyHeader != "" || !c.Full.GetKey().GetBroker() {
			t.Errorf("concurrency %s: %d lanes and %d messages with key %v, want %v", concurrency, c.Lanes, c.MaxMessages, c.Full.GetKey(), want)
		}
	}
}

func wantConsumer(t *testing.T, got, want *spec.Consumer) {
	t.Helper()
	g, w := *got, *want
	g.Written, g.Full = nil, nil
	if len(g.Labels) == 0 {
		g.Labels = nil
	}
	if !equal(g, w) {
		t.Errorf("got  %+v\nwant %+v", g, w)
	}
}

// Everything that is wrong in a file comes at once, at its line.
func TestAllFaultsOfAFile(t *testing.T) {
	_, err := spec.Load([]spec.File{
		{Name: "a.yaml", Data: []byte(`name: orders
labels: {team: "a b"}
source:
  connection: mian
  nats: {stream: ORDERS}
hndler: {log: {}}
concurrency: 16
max_in_flight: {messages: 8, bytes: 64mb}
stop:
  soft: 30s
  hard: 25s
`)},
		{Name: "b.yaml", Data: []byte("name: orders\nnamespace: default\nsource: {connection: main, nats: {stream: ORDERS}}\nhandler: {log: {}}\n---\n" + least)},
	}, env())
	wantLines(t, err, []string{
		`a.yaml:2:16: labels["team"]: "a b" is no label: write letters, digits, -, _ and ., beginning and ending with a letter or digit, at most 63`,
		`a.yaml:4:15: source.connection: there is no connection "mian"; the daemon has closed, local, main`,
		`a.yaml:6:1: hndler: unknown field; did you mean handler?`,
		`a.yaml:8:27: max_in_flight.messages: 8 is less than concurrency, which is 16: slots would stay idle`,
		`a.yaml:8:37: max_in_flight.bytes: "64mb" is no size: did you mean 64MB?`,
		`a.yaml:10:9: stop.soft: 30s is longer than hard, which is 25s`,
		`b.yaml:1:7: name: "orders" is there already, at a.yaml:1: give each consumer a name of its own`,
		`b.yaml:6:7: name: "orders" is there already, at a.yaml:1: give each consumer a name of its own`,
	})
}

func TestLoad(t *testing.T) {
	all, err := spec.Load([]spec.File{{Name: "a", Data: []byte(least + "---\nnamespace: shop\n" + least)}, {Name: "b", Data: []byte(strings.Replace(least, "orders", "other", 1))}}, env())
	if err != nil {
		t.Fatal(err)
	}
	got := make([]string, 0, len(all))
	for _, c := range all {
		got = append(got, c.Namespace+"/"+c.Name)
	}
	wantSame(t, got, []string{"default/orders", "shop/orders", "default/other"})
}

// What only a program can send: these never come from a file.
func TestWireFaults(t *testing.T) {
	s := read(t, least)
	s.Ordering, s.Start = 9, -1
	s.Stop = &pb.Stop{Soft: &durationpb.Duration{Seconds: 1, Nanos: -1}, Hard: &durationpb.Duration{Seconds: 300_000_000_000}}
	s.GetSource().GetNats().ProtoReflect().SetUnknown([]byte{0x98, 0x06, 0x01}) // field 99, a varint
	before := proto.CloneOf(s)
	_, faults := spec.Check(s, env())
	wantFaults(t, faults, []string{
		`source.nats: has a field (number 99) that this program does not know, so it is older than its client: update it, or leave the field out`,
		`ordering: has a value (number 9) that this program does not know, so it is older than its client: update it, or write another value`,
		`stop.soft: is no valid duration: seconds and nanos must have one sign, and be less than 10,000 years`,
		`start: has a value (number -1) that this program does not know, so it is older than its client: update it, or write another value`,
		`stop.hard: 2562047h47m16.854775807s is too long: at most 24h`,
	})
	if !proto.Equal(s, before) {
		t.Error("Check changed what it was given")
	}
	if _, faults := spec.Check(nil, spec.Env{}); len(faults) != 3 {
		t.Errorf("nothing at all: %v", faults)
	}
}
