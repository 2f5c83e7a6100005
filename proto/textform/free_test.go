package textform_test

import (
	"strings"
	"testing"

	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
	"google.golang.org/protobuf/proto"
)

// A mapping of any values is written as such, and what cannot be kept is named
// with its line.
func TestFreeMappings(t *testing.T) {
	read := func(arguments string) (*supervisorv1.ConsumerSpec, error) {
		s := &supervisorv1.ConsumerSpec{}
		docs, err := textform.Decode("a.yaml", []byte("source:\n  rabbitmq:\n    queue: q\n    arguments: "+arguments+"\n"),
			func() proto.Message { return s })
		if err == nil && len(docs) != 1 {
			t.Fatalf("%d documents", len(docs))
		}
		return s, err
	}
	s, err := read(`{x-max-length: 100000, x-overflow: reject-publish, x-single-active-consumer: true, ratio: 0.5, list: [a, 1, {b: c}]}`)
	if err != nil {
		t.Fatal(err)
	}
	got := s.GetSource().GetRabbitmq().GetArguments().GetFields()
	if got["x-max-length"].GetNumberValue() != 100000 || got["x-overflow"].GetStringValue() != "reject-publish" ||
		!got["x-single-active-consumer"].GetBoolValue() || got["ratio"].GetNumberValue() != 0.5 || len(got["list"].GetListValue().GetValues()) != 3 {
		t.Errorf("read %v", got)
	}
	out, err := textform.EncodeYAML(s)
	if err != nil || !strings.Contains(string(out), "x-max-length: 100000\n") {
		t.Errorf("written as %s, %v", out, err)
	}
	for in, want := range map[string]string{
		"{a: 9007199254740993}": "a.yaml:4:20: source.rabbitmq.arguments.a: is a number beyond 2^53",
		"{a: .inf}":             "is no finite number",
		"{a: ~}":                "is empty",
		"{a: 1, a: 2}":          "is given twice",
		"[a]":                   "a mapping is expected",
	} {
		if _, err := read(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
}
