package textform

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Option changes how a message is written.
type Option uint8

const (
	// Unpopulated writes unset fields too: zero values, UNSPECIFIED, [] and {};
	// null where a field tells unset from zero. For programs that read it;
	// Decode refuses nulls and UNSPECIFIED.
	Unpopulated Option = 1 << iota
	// Compact writes JSON in a single line.
	Compact
)

// EncodeYAML writes a message in block style, fields in the order of the schema.
func EncodeYAML(m proto.Message, opts ...Option) ([]byte, error) {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(tree(m.ProtoReflect(), join(opts))); err != nil {
		return nil, fmt.Errorf("write %s as YAML: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	if err := enc.Close(); err != nil {
		return nil, fmt.Errorf("write %s as YAML: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return out.Bytes(), nil
}

// EncodeJSON writes a message, fields in the order of the schema, and a newline
// at the end. All integers are JSON numbers, also those of 64 bits.
func EncodeJSON(m proto.Message, opts ...Option) ([]byte, error) {
	o := join(opts)
	var flat bytes.Buffer
	if err := writeJSON(&flat, tree(m.ProtoReflect(), o)); err != nil {
		return nil, fmt.Errorf("write %s as JSON: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	flat.WriteByte('\n')
	if o&Compact != 0 {
		return flat.Bytes(), nil
	}
	var out bytes.Buffer
	if err := json.Indent(&out, flat.Bytes(), "", "  "); err != nil {
		return nil, fmt.Errorf("write %s as JSON: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return out.Bytes(), nil
}

// FormatValue writes the value of one field, for people: a scalar as it stands
// in YAML but without quotes, "" for an empty string, a list as [a, b], a
// message as compact JSON.
func FormatValue(fd protoreflect.FieldDescriptor, v protoreflect.Value) string {
	n := fieldTree(fd, v, 0)
	switch {
	case fd.IsList():
		items := make([]string, len(n.Content))
		for i, item := range n.Content {
			items[i] = nodeText(item)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case n.Kind == yaml.ScalarNode && n.Value == "":
		return `""`
	}
	return nodeText(n)
}

func nodeText(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode {
		return n.Value
	}
	var out bytes.Buffer
	if err := writeJSON(&out, n); err != nil {
		return err.Error()
	}
	return out.String()
}

func join(opts []Option) Option {
	var all Option
	for _, o := range opts {
		all |= o
	}
	return all
}

// tree is what YAML and JSON are written from.
func tree(m protoreflect.Message, o Option) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		var value *yaml.Node
		switch {
		case m.Has(fd):
			value = fieldTree(fd, m.Get(fd), o)
		case o&Unpopulated == 0, fd.ContainingOneof() != nil && !fd.ContainingOneof().IsSynthetic():
			continue
		case fd.HasPresence():
			value = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
		default:
			value = fieldTree(fd, m.Get(fd), o)
		}
		n.Content = append(n.Content, text(string(fd.Name())), value)
	}
	return flowIfEmpty(n)
}

func flowIfEmpty(n *yaml.Node) *yaml.Node {
	if len(n.Content) == 0 {
		n.Style = yaml.FlowStyle
	}
	return n
}

func fieldTree(fd protoreflect.FieldDescriptor, v protoreflect.Value, o Option) *yaml.Node {
	switch {
	case fd.IsList():
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for i := range v.List().Len() {
			n.Content = append(n.Content, valueTree(fd, v.List().Get(i), o))
		}
		return flowIfEmpty(n)
	case fd.IsMap():
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for _, key := range sortedKeys(v.Map()) {
			n.Content = append(n.Content, text(key.String()), valueTree(fd.MapValue(), v.Map().Get(key), o))
		}
		return flowIfEmpty(n)
	}
	return valueTree(fd, v, o)
}

func sortedKeys(m protoreflect.Map) []protoreflect.MapKey {
	keys := make([]protoreflect.MapKey, 0, m.Len())
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

func valueTree(fd protoreflect.FieldDescriptor, v protoreflect.Value, o Option) *yaml.Node {
	switch formOf(fd) {
	case formDuration:
		return text(durationText(v.Message()))
	case formTime:
		return text(timeText(v.Message()))
	case formSize:
		if s := ExactSize(v.Int()); strings.HasSuffix(s, "B") {
			return text(s)
		}
		return plain("!!int", strconv.FormatInt(v.Int(), 10))
	}
	switch fd.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		if s, ok := v.Message().Interface().(*structpb.Struct); ok {
			return freeTree(s)
		}
		return tree(v.Message(), o)
	case protoreflect.StringKind:
		return text(v.String())
	case protoreflect.BytesKind:
		return text(base64.StdEncoding.EncodeToString(v.Bytes()))
	case protoreflect.BoolKind:
		return plain("!!bool", strconv.FormatBool(v.Bool()))
	case protoreflect.EnumKind:
		return enumTree(fd.Enum(), v.Enum())
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		return floatTree(fd, v.Float())
	}
	return plain("!!int", v.String())
}

func enumTree(ed protoreflect.EnumDescriptor, n protoreflect.EnumNumber) *yaml.Node {
	if ed.Values().ByNumber(n) == nil {
		return plain("!!int", strconv.Itoa(int(n)))
	}
	return text(shortName(ed, n))
}

func floatTree(fd protoreflect.FieldDescriptor, f float64) *yaml.Node {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return text(strconv.FormatFloat(f, 'g', -1, 64))
	}
	bits := 64
	if fd.Kind() == protoreflect.FloatKind {
		bits = 32
	}
	s := strconv.FormatFloat(f, 'g', -1, bits)
	if integer.MatchString(s) {
		return plain("!!int", s)
	}
	return plain("!!float", s)
}

func plain(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

// text is a string; in double quotes where anything in it could be read
// otherwise.
func text(s string) *yaml.Node {
	s = strings.ToValidUTF8(s, string(unicode.ReplacementChar))
	n := plain("!!str", s)
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.TrimSpace(s) != s || oldBool.MatchString(s) {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// oldBool is what readers of YAML 1.1 take for true and false.
var oldBool = regexp.MustCompile(`^(?i:y|n|yes|no|on|off)$`)

// durationText falls back to seconds for what Go's durations cannot hold.
func durationText(m protoreflect.Message) string {
	d := &durationpb.Duration{}
	proto.Merge(d, m.Interface())
	if v := d.AsDuration(); proto.Equal(durationpb.New(v), d) {
		return ExactDuration(v)
	}
	return fmt.Sprintf("%ds%dns", d.GetSeconds(), d.GetNanos())
}

func timeText(m protoreflect.Message) string {
	t := &timestamppb.Timestamp{}
	proto.Merge(t, m.Interface())
	if t.CheckValid() != nil {
		return fmt.Sprintf("%ds%dns", t.GetSeconds(), t.GetNanos())
	}
	return t.AsTime().Format(time.RFC3339Nano)
}

func writeJSON(out *bytes.Buffer, n *yaml.Node) error {
	switch {
	case n.Kind == yaml.SequenceNode:
		out.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := writeJSON(out, item); err != nil {
				return err
			}
		}
		out.WriteByte(']')
	case n.Kind == yaml.MappingNode:
		out.WriteByte('{')
		for i := 0; i < len(n.Content); i += 2 {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := writeString(out, n.Content[i].Value); err != nil {
				return err
			}
			out.WriteByte(':')
			if err := writeJSON(out, n.Content[i+1]); err != nil {
				return err
			}
		}
		out.WriteByte('}')
	case n.Tag == "!!str":
		return writeString(out, n.Value)
	default:
		out.WriteString(n.Value)
	}
	return nil
}

// writeString escapes more than JSON must: what is not printable, so that the
// text is YAML too. (Beyond the basic plane YAML takes all as it is, and does
// not know JSON's surrogate pairs.)
func writeString(out *bytes.Buffer, s string) error {
	var quoted bytes.Buffer
	enc := json.NewEncoder(&quoted)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return err
	}
	for _, r := range strings.TrimSuffix(quoted.String(), "\n") {
		if r > '~' && r <= 0xffff && !unicode.IsPrint(r) {
			fmt.Fprintf(out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	return nil
}
