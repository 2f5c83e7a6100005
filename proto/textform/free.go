package textform

import (
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
)

// isFree tells whether a message holds what users write as they like: a mapping
// of any values.
func isFree(md protoreflect.MessageDescriptor) bool {
	return md != nil && md.FullName() == "google.protobuf.Struct"
}

// free reads a mapping of any values into m, as far as it can be read; false when
// n is none.
func (d *decoder) free(m protoreflect.Message, n *yaml.Node, path string) bool {
	out, ok := m.Interface().(*structpb.Struct)
	if !ok {
		d.faultAtf(n, path, "cannot be read here")
		return false
	}
	if n = d.visit(n, path); n == nil {
		return false
	}
	entries, ok := d.entries(n, path, fieldPath)
	if !ok {
		return false
	}
	out.Fields = make(map[string]*structpb.Value, len(entries))
	for _, e := range entries {
		if v := d.any(e.value, fieldPath(path, e.key.Value)); v != nil {
			out.Fields[e.key.Value] = v
		}
	}
	return true
}

// any reads any value; nil when it cannot be read.
func (d *decoder) any(n *yaml.Node, path string) *structpb.Value {
	if n = d.visit(n, path); n == nil {
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		s := &structpb.Struct{}
		if !d.free(s.ProtoReflect(), n, path) {
			return nil
		}
		return structpb.NewStructValue(s)
	case yaml.SequenceNode:
		list := &structpb.ListValue{}
		for i, item := range n.Content {
			if v := d.any(item, indexPath(path, i)); v != nil {
				list.Values = append(list.Values, v)
			}
		}
		return structpb.NewListValue(list)
	}
	return d.anyScalar(n, path)
}

func (d *decoder) anyScalar(n *yaml.Node, path string) *structpb.Value {
	switch n.ShortTag() {
	case "!!bool":
		b, err := strconv.ParseBool(strings.ToLower(n.Value))
		if err != nil {
			d.faultAtf(n, path, "is neither true nor false")
			return nil
		}
		return structpb.NewBoolValue(b)
	case "!!int":
		var i int64
		if err := n.Decode(&i); err != nil || int64(float64(i)) != i {
			d.faultAtf(n, path, "is a number beyond 2^53, which cannot be kept exactly: write it in quotes, or a smaller one")
			return nil
		}
		return structpb.NewNumberValue(float64(i))
	case "!!float":
		var f float64
		if err := n.Decode(&f); err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			d.faultAtf(n, path, "is no finite number")
			return nil
		}
		return structpb.NewNumberValue(f)
	case "!!str", "!!timestamp":
		return structpb.NewStringValue(n.Value)
	}
	d.faultAtf(n, path, "is %s; a string, a number, true, false, a list or a mapping is expected", kindOf(n))
	return nil
}

// freeTree is what a free mapping is written from.
func freeTree(s *structpb.Struct) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	m := s.ProtoReflect().Get(s.ProtoReflect().Descriptor().Fields().ByName("fields")).Map()
	for _, key := range sortedKeys(m) {
		n.Content = append(n.Content, text(key.String()), anyTree(s.GetFields()[key.String()]))
	}
	return flowIfEmpty(n)
}

func anyTree(v *structpb.Value) *yaml.Node {
	switch k := v.GetKind().(type) {
	case *structpb.Value_BoolValue:
		return plain("!!bool", strconv.FormatBool(k.BoolValue))
	case *structpb.Value_NumberValue:
		return numberTree(k.NumberValue)
	case *structpb.Value_StringValue:
		return text(k.StringValue)
	case *structpb.Value_StructValue:
		return freeTree(k.StructValue)
	case *structpb.Value_ListValue:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, item := range k.ListValue.GetValues() {
			n.Content = append(n.Content, anyTree(item))
		}
		return flowIfEmpty(n)
	}
	return plain("!!null", "null")
}

// numberTree writes integers as such, as far as they are kept exactly.
func numberTree(f float64) *yaml.Node {
	const exact = 1 << 53
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return text(strconv.FormatFloat(f, 'g', -1, 64))
	case f == math.Trunc(f) && math.Abs(f) <= exact && !(f == 0 && math.Signbit(f)):
		return plain("!!int", strconv.FormatInt(int64(f), 10))
	}
	s := strconv.FormatFloat(f, 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return plain("!!float", s)
}
