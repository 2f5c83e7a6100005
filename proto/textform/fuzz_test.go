package textform_test

import (
	"bytes"
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
)

// Decode never panics, every fault has its place inside the file, and what it
// accepts survives being written and read again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(orders))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, root := range []proto.Message{new(supervisorv1.ConsumerSpec), new(supervisorv1.DaemonConfig)} {
			newMessage := func() proto.Message { return root.ProtoReflect().New().Interface() }
			docs, err := textform.Decode("f", data, newMessage)
			if err != nil {
				placed(t, data, err)
				continue
			}
			for _, doc := range docs {
				text, err := textform.EncodeYAML(doc.Message)
				if err != nil {
					t.Fatal(err)
				}
				again, err := textform.Decode("f", text, newMessage)
				if err != nil || len(again) != 1 || !proto.Equal(again[0].Message, doc.Message) {
					t.Fatalf("%q is written as %q and read back otherwise: %v", data, text, err)
				}
			}
		}
	})
}

func placed(t *testing.T, data []byte, err error) {
	t.Helper()
	var faults textform.Faults
	if !errors.As(err, &faults) {
		t.Fatalf("%q: %v", data, err)
	}
	lines := 1 + bytes.Count(data, []byte{'\n'})
	before := 0
	for _, fault := range faults {
		if fault.Line < max(before, 1) || fault.Line > lines || fault.Column < 1 || fault.Message == "" {
			t.Fatalf("%q: %v is misplaced", data, fault)
		}
		before = fault.Line
	}
}
