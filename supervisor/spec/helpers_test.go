package spec_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	"github.com/seed-111f5b8e/supervisord/brokers/nats"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
)

// kind is a handler kind that refuses log handlers of level LOUD.
type kind string

func (k kind) Kind() string { return string(k) }

func (k kind) Check(s *pb.ConsumerSpec) []brokers.Fault {
	if s.GetHandler().GetTimeout() == nil {
		return []brokers.Fault{brokers.Faultf("handler.timeout", "the default is not filled in")}
	}
	if s.GetHandler().GetLog().GetLevel() == "LOUD" {
		return []brokers.Fault{brokers.Faultf("handler.log.level", "is no level")}
	}
	return nil
}

func drivers() map[string]brokers.Driver {
	return map[string]brokers.Driver{"nats": nats.Driver{}, "memory": &memory.Driver{}}
}

func env() spec.Env {
	return spec.Env{
		Drivers: drivers(),
		Connections: map[string]*pb.Connection{
			"main":   {Name: "main", Broker: &pb.Connection_Nats{Nats: &pb.NatsConnection{Embedded: true}}},
			"local":  {Name: "local", Broker: &pb.Connection_Memory{Memory: &pb.MemoryConnection{}}},
			"closed": {Name: "closed", Namespaces: []string{"bank"}, Broker: &pb.Connection_Nats{Nats: &pb.NatsConnection{Embedded: true}}},
		},
		Handlers: map[string]spec.HandlerKind{"log": kind("log"), "http": kind("http")},
	}
}

// read decodes one spec that has no faults in form.
func read(t *testing.T, yaml string) *pb.ConsumerSpec {
	t.Helper()
	s := new(pb.ConsumerSpec)
	if _, err := textform.DecodeOne("f", []byte(yaml), s); err != nil {
		t.Fatal(err)
	}
	return s
}

func check(t *testing.T, yaml string) *spec.Consumer {
	t.Helper()
	c, faults := spec.Check(read(t, yaml), env())
	if len(faults) > 0 {
		t.Fatalf("refused: %v", faults)
	}
	return c
}

func wantLines(t *testing.T, err error, want []string) {
	t.Helper()
	var faults textform.Faults
	if err != nil && !errors.As(err, &faults) {
		t.Fatalf("%T is not faults: %v", err, err)
	}
	got := make([]string, 0, len(faults))
	for _, f := range faults {
		got = append(got, f.Error())
	}
	wantSame(t, got, want)
}

func wantFaults(t *testing.T, faults []brokers.Fault, want []string) {
	t.Helper()
	got := make([]string, 0, len(faults))
	for _, f := range faults {
		got = append(got, f.Error())
	}
	wantSame(t, got, want)
}

// wantSame compares line by line; "..." at the end of a line wanted stands for
// anything: the words of a driver are the driver's.
func wantSame(t *testing.T, got, want []string) {
	t.Helper()
	same := func(g, w string) bool {
		begin, open := strings.CutSuffix(w, "...")
		return g == w || open && strings.HasPrefix(g, begin)
	}
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func yamlOf(t *testing.T, m proto.Message) string {
	t.Helper()
	text, err := textform.EncodeYAML(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
