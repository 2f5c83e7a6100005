package textform_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
)

// messages are roots that users read or write.
func messages() []proto.Message {
	return []proto.Message{
		&supervisorv1.ConsumerSpec{}, &supervisorv1.DaemonConfig{}, &supervisorv1.WatchResponse{},
		&supervisorv1.PauseRequest{}, &supervisorv1.GetServerInfoResponse{},
	}
}

// What is written is read back as the same message, by both forms, and says the
// same when it is written again.
func TestRoundTrip(t *testing.T) {
	for _, root := range messages() {
		t.Run(string(root.ProtoReflect().Descriptor().Name()), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				want := root.ProtoReflect().New()
				fill(t, want)
				readsBack(t, must(textform.EncodeYAML(want.Interface()))(t), want)
				readsBack(t, must(textform.EncodeJSON(want.Interface()))(t), want)
				readsBack(t, must(textform.EncodeJSON(want.Interface(), textform.Compact))(t), want)
			})
		})
	}
}

func readsBack(t *rapid.T, text []byte, want protoreflect.Message) {
	docs, err := textform.Decode("f", text, func() proto.Message { return want.New().Interface() })
	if err != nil {
		t.Fatalf("%v\nin:\n%s", err, text)
	}
	if len(docs) != 1 || !proto.Equal(docs[0].Message, want.Interface()) {
		t.Fatalf("read %d documents: %s\nwant %s\nfrom:\n%s", len(docs), prototext.Format(docs[0].Message), prototext.Format(want.Interface()), text)
	}
}

type fatal interface{ Fatal(args ...any) }

func must(text []byte, err error) func(fatal) []byte {
	return func(t fatal) []byte {
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
}

func fill(t *rapid.T, m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !rapid.Bool().Draw(t, string(fd.Name())) {
			continue
		}
		switch {
		case fd.IsList():
			list := m.Mutable(fd).List()
			for range rapid.IntRange(1, 3).Draw(t, "items") {
				list.Append(draw(t, fd, list.NewElement()))
			}
		case fd.IsMap():
			values := m.Mutable(fd).Map()
			for range rapid.IntRange(1, 3).Draw(t, "entries") {
				key := protoreflect.ValueOfString(rapid.String().Draw(t, "key")).MapKey()
				values.Set(key, draw(t, fd.MapValue(), values.NewValue()))
			}
		default:
			m.Set(fd, draw(t, fd, m.NewField(fd)))
		}
	}
}

func draw(t *rapid.T, fd protoreflect.FieldDescriptor, zero protoreflect.Value) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.MessageKind:
		return drawMessage(t, fd, zero)
	case protoreflect.StringKind:
		if textform.IsSecret(fd) {
			return protoreflect.ValueOfString(rapid.StringMatching(`env:[A-Z_][A-Z0-9_]{0,9}|file:/[ -~]{1,20}`).Draw(t, "secret"))
		}
		return protoreflect.ValueOfString(awkward().Draw(t, "string"))
	case protoreflect.EnumKind:
		n := rapid.IntRange(1, fd.Enum().Values().Len()-1).Draw(t, "enum")
		return protoreflect.ValueOfEnum(fd.Enum().Values().Get(n).Number())
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rapid.Bool().Draw(t, "bool"))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(rapid.Int32().Draw(t, "int32"))
	case protoreflect.Int64Kind:
		if proto.GetExtension(fd.Options(), supervisorv1.E_Unit) == supervisorv1.Unit_UNIT_BYTES {
			return protoreflect.ValueOfInt64(rapid.Int64Range(0, 1<<20).Draw(t, "n") << rapid.IntRange(0, 40).Draw(t, "shift"))
		}
		return protoreflect.ValueOfInt64(rapid.Int64().Draw(t, "int64"))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(rapid.Uint64().Draw(t, "uint64"))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(rapid.Float64().Draw(t, "double"))
	}
	t.Fatalf("no values for %s", fd.FullName())
	return zero
}

func drawMessage(t *rapid.T, fd protoreflect.FieldDescriptor, zero protoreflect.Value) protoreflect.Value {
	switch fd.Message().FullName() {
	case "google.protobuf.Duration":
		return protoreflect.ValueOfMessage(durationpb.New(time.Duration(rapid.Int64().Draw(t, "duration"))).ProtoReflect())
	case "google.protobuf.Timestamp":
		// The years that RFC 3339 can write.
		seconds := rapid.Int64Range(-62135596800, 253402300799).Draw(t, "seconds")
		at := time.Unix(seconds, rapid.Int64Range(0, 999_999_999).Draw(t, "nanos"))
		return protoreflect.ValueOfMessage(timestamppb.New(at).ProtoReflect())
	}
	if s, ok := zero.Message().Interface().(*structpb.Struct); ok {
		s.Fields = map[string]*structpb.Value{}
		for range rapid.IntRange(0, 3).Draw(t, "arguments") {
			s.Fields[awkward().Draw(t, "key")] = drawAny(t, 2)
		}
		return zero
	}
	fill(t, zero.Message())
	return zero
}

// drawAny gives what a free value may be, nested so deep.
func drawAny(t *rapid.T, deep int) *structpb.Value {
	switch rapid.IntRange(0, 3+min(deep, 1)*2).Draw(t, "kind") {
	case 0:
		return structpb.NewBoolValue(rapid.Bool().Draw(t, "bool"))
	case 1:
		return structpb.NewNumberValue(rapid.Float64().Draw(t, "double"))
	case 2:
		return structpb.NewNumberValue(float64(rapid.Int32().Draw(t, "int")))
	case 3:
		return structpb.NewStringValue(awkward().Draw(t, "string"))
	case 4:
		list := &structpb.ListValue{}
		for range rapid.IntRange(0, 2).Draw(t, "items") {
			list.Values = append(list.Values, drawAny(t, deep-1))
		}
		return structpb.NewListValue(list)
	}
	s := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for range rapid.IntRange(0, 2).Draw(t, "entries") {
		s.Fields[awkward().Draw(t, "key")] = drawAny(t, deep-1)
	}
	return structpb.NewStructValue(s)
}

// awkward gives strings, and often those that YAML would take for something else.
func awkward() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.String(),
		rapid.StringMatching(`[-~#*&!|>'"%@{}\[\]:,? \t\n\r0-9.a-z\\<=]{0,8}`),
		rapid.SampledFrom([]string{
			"", "~", "null", "true", "No", "on", "0x1f", "017", "1_000", "1:30", ".5", ".inf", "1e3", "<<", "=",
			"2024-01-01", "- a", "a: b", "a #b", "---", "...", "\u0085", "\u2028", "\ufeff", "\x00", "\x7f", "a\u00a0", "\U0010ffff",
		}),
	)
}
