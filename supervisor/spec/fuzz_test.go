package spec_test

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
)

// A file is refused with a line and what is wrong, or gives consumers that hold
// what the checks promise; with its defaults written down a spec means the same.
func FuzzSpec(f *testing.F) {
	f.Add([]byte(least))
	e := env()
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := spec.Load([]spec.File{{Name: "f", Data: data}}, e)
		if err != nil {
			wantPlaced(t, err)
			return
		}
		for _, c := range all {
			if c.Concurrency < 1 || c.MaxMessages < c.Concurrency || c.MaxBytes < 1 || c.Soft <= 0 || c.Soft > c.Hard ||
				c.Attempts < 1 || c.Backoff.Initial <= 0 || c.Backoff.Initial > c.Backoff.Max || c.HandlerTimeout <= 0 ||
				c.Kind == "" || c.HandlerKind == "" || !spec.IsName(c.Name) || !spec.IsName(c.Namespace) {
				t.Fatalf("accepted %+v", c)
			}
			again, faults := spec.Check(c.Full, e)
			if len(faults) > 0 || !proto.Equal(again.Full, c.Full) {
				t.Fatalf("with its defaults it is another spec: %v\n%v\n%v", faults, c.Full, again)
			}
		}
	})
}

// FuzzDaemon does the same for configurations.
func FuzzDaemon(f *testing.F) {
	f.Add([]byte("connections: [{name: a, nats: {embedded: true}}]"))
	d := drivers()
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := spec.LoadDaemon(spec.File{Name: "f", Data: data}, d); err != nil {
			wantPlaced(t, err)
		}
	})
}

// FuzzWire feeds what a client may send.
func FuzzWire(f *testing.F) {
	f.Add([]byte("\x12\x01a"))
	e := env()
	f.Fuzz(func(t *testing.T, data []byte) {
		s := new(pb.ConsumerSpec)
		if proto.Unmarshal(data, s) != nil {
			return
		}
		before := proto.CloneOf(s)
		c, faults := spec.Check(s, e)
		if (c == nil) != (len(faults) > 0) || !proto.Equal(s, before) {
			t.Fatalf("%v: %v and %v", s, c, faults)
		}
		for _, fault := range faults {
			if fault.Message == "" {
				t.Fatalf("%v says nothing", fault)
			}
		}
	})
}

func wantPlaced(t *testing.T, err error) {
	t.Helper()
	var faults textform.Faults
	if !errors.As(err, &faults) {
		t.Fatal(err)
	}
	for _, fault := range faults {
		if fault.File != "f" || fault.Line < 1 || fault.Column < 1 || fault.Message == "" {
			t.Fatalf("%+v has no place", fault)
		}
	}
}
