package textform

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// form is how people write a value.
type form uint8

const (
	formPlain form = iota
	formDuration
	formTime
	formSize
	formSecret
)

func wellKnown(md protoreflect.MessageDescriptor) form {
	switch md.FullName() {
	case "google.protobuf.Duration":
		return formDuration
	case "google.protobuf.Timestamp":
		return formTime
	}
	return formPlain
}

func formOf(fd protoreflect.FieldDescriptor) form {
	switch {
	case fd.Message() != nil:
		return wellKnown(fd.Message())
	case fd.Kind() == protoreflect.Int64Kind && proto.GetExtension(fd.Options(), supervisorv1.E_Unit) == supervisorv1.Unit_UNIT_BYTES:
		return formSize
	case IsSecret(fd):
		return formSecret
	}
	return formPlain
}

// IsSecret tells whether a field holds a secret, which only a reference may name.
func IsSecret(fd protoreflect.FieldDescriptor) bool {
	secret, _ := proto.GetExtension(fd.Options(), supervisorv1.E_Secret).(bool)
	return secret
}

var secretRef = regexp.MustCompile(`^(env:[A-Za-z_][A-Za-z0-9_]*|file:[^\x00]+)$`)

var errSecret = errors.New("holds a secret: write env:NAME or file:PATH, never the secret itself")

// CheckSecret reports whether ref is "env:NAME" or "file:PATH". The error never
// repeats it.
func CheckSecret(ref string) error {
	if !secretRef.MatchString(ref) {
		return errSecret
	}
	return nil
}

// scalar reads one value; the error goes on after the field's name.
func scalar(fd protoreflect.FieldDescriptor, n *yaml.Node) (protoreflect.Value, error) {
	tag := n.ShortTag()
	switch formOf(fd) {
	case formDuration:
		return durationValue(n.Value, tag)
	case formTime:
		return timeValue(n.Value, tag)
	case formSize:
		return sizeValue(n.Value, tag)
	case formSecret:
		return protoreflect.ValueOfString(n.Value), CheckSecret(n.Value)
	}
	switch fd.Kind() {
	case protoreflect.StringKind:
		if tag != "!!str" {
			return protoreflect.Value{}, fmt.Errorf("is %s; a string is expected: put it in quotes", kindOf(n))
		}
		return protoreflect.ValueOfString(n.Value), nil
	case protoreflect.BytesKind:
		b, err := base64.StdEncoding.DecodeString(n.Value)
		if err != nil {
			return protoreflect.Value{}, errors.New("is no base64")
		}
		return protoreflect.ValueOfBytes(b), nil
	case protoreflect.BoolKind:
		return boolValue(n)
	case protoreflect.EnumKind:
		return enumValue(fd.Enum(), n)
	default:
		return number(fd, n)
	}
}

func durationValue(text, tag string) (protoreflect.Value, error) {
	v, err := time.ParseDuration(text)
	if err != nil || (tag != "!!str" && tag != "!!int") {
		return protoreflect.Value{}, fmt.Errorf(`%q is no duration: write a number and its unit, like "200ms", "30s" or "1m30s"`, clip(text))
	}
	return protoreflect.ValueOfMessage(durationpb.New(v).ProtoReflect()), nil
}

func timeValue(text, tag string) (protoreflect.Value, error) {
	t, err := time.Parse(time.RFC3339Nano, text)
	ts := timestamppb.New(t)
	if err != nil || ts.CheckValid() != nil || (tag != "!!str" && tag != "!!timestamp") {
		return protoreflect.Value{}, fmt.Errorf("%q is no time: write it like 2006-01-02T15:04:05Z (RFC 3339)", clip(text))
	}
	return protoreflect.ValueOfMessage(ts.ProtoReflect()), nil
}

func sizeValue(text, tag string) (protoreflect.Value, error) {
	n, err := ParseSize(text)
	if err == nil && tag != "!!str" && tag != "!!int" {
		err = fmt.Errorf("%q is no size", clip(text))
	}
	return protoreflect.ValueOfInt64(n), err
}

func boolValue(n *yaml.Node) (protoreflect.Value, error) {
	isTrue, isFalse := strings.EqualFold(n.Value, "true"), strings.EqualFold(n.Value, "false")
	if n.ShortTag() != "!!bool" || !isTrue && !isFalse {
		return protoreflect.Value{}, fmt.Errorf("%q is neither true nor false", clip(n.Value))
	}
	return protoreflect.ValueOfBool(isTrue), nil
}

func enumValue(ed protoreflect.EnumDescriptor, n *yaml.Node) (protoreflect.Value, error) {
	names := shortNames(ed)
	for name, number := range names.all() {
		if name == n.Value && number != 0 && n.ShortTag() == "!!str" {
			return protoreflect.ValueOfEnum(number), nil
		}
	}
	text := strings.TrimPrefix(n.Value, enumPrefix(ed))
	if near := nearest(text, names.words()); near != "" {
		return protoreflect.Value{}, fmt.Errorf("%q is unknown; did you mean %s?", clip(n.Value), near)
	}
	return protoreflect.Value{}, fmt.Errorf("%q is unknown; write %s", clip(n.Value), words(names.words(), "or"))
}

// integers are plain decimals: 017 and 0x11 mean other things to other readers.
var integer = regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*)$`)

func number(fd protoreflect.FieldDescriptor, n *yaml.Node) (protoreflect.Value, error) {
	tag := n.ShortTag()
	if tag != "!!int" && tag != "!!float" {
		return protoreflect.Value{}, fmt.Errorf("is %s; a number is expected, without quotes", kindOf(n))
	}
	bits := 64
	switch fd.Kind() {
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind, protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.FloatKind:
		bits = 32
	}
	if fd.Kind() == protoreflect.DoubleKind || fd.Kind() == protoreflect.FloatKind {
		f, err := strconv.ParseFloat(n.Value, bits)
		if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
			return protoreflect.Value{}, fmt.Errorf("%q is no decimal number", clip(n.Value))
		}
		if bits == 32 {
			return protoreflect.ValueOfFloat32(float32(f)), nil
		}
		return protoreflect.ValueOfFloat64(f), nil
	}
	if !integer.MatchString(n.Value) {
		return protoreflect.Value{}, fmt.Errorf("%q is no plain whole number", clip(n.Value))
	}
	return integerValue(fd, n.Value, bits)
}

func integerValue(fd protoreflect.FieldDescriptor, text string, bits int) (protoreflect.Value, error) {
	switch fd.Kind() {
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		u, err := strconv.ParseUint(strings.TrimPrefix(text, "+"), 10, bits)
		if err != nil {
			return protoreflect.Value{}, fmt.Errorf("%s is outside 0 to %d", clip(text), uint64(math.MaxUint64)>>(64-bits))
		}
		if bits == 32 {
			return protoreflect.ValueOfUint32(uint32(u)), nil
		}
		return protoreflect.ValueOfUint64(u), nil
	}
	i, err := strconv.ParseInt(text, 10, bits)
	if err != nil {
		limit := int64(math.MaxInt64) >> (64 - bits)
		return protoreflect.Value{}, fmt.Errorf("%s is outside %d to %d", clip(text), -limit-1, limit)
	}
	if bits == 32 {
		return protoreflect.ValueOfInt32(int32(i)), nil
	}
	return protoreflect.ValueOfInt64(i), nil
}

// mapKey reads a key: a string as it stands, a whole number, or true or false.
func mapKey(fd protoreflect.FieldDescriptor, text string) (protoreflect.MapKey, error) {
	if fd.Kind() == protoreflect.StringKind {
		return protoreflect.ValueOfString(text).MapKey(), nil
	}
	tag := "!!int"
	if fd.Kind() == protoreflect.BoolKind {
		tag = "!!bool"
	}
	v, err := scalar(fd, &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: text})
	if err != nil {
		return protoreflect.MapKey{}, err
	}
	return v.MapKey(), nil
}

// kindOf says what a node is, without its value.
func kindOf(n *yaml.Node) string {
	switch n.ShortTag() {
	case "!!str":
		return "a string"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	case "!!timestamp":
		return "a date or time"
	case "!!seq":
		return "a list"
	case "!!map":
		return "a mapping"
	}
	return "of a type that is not supported here (a tag that begins with !)"
}

// want says what a scalar field takes.
func want(fd protoreflect.FieldDescriptor) string {
	switch formOf(fd) {
	case formDuration:
		return `a duration like "30s"`
	case formTime:
		return "a time like 2006-01-02T15:04:05Z"
	case formSize:
		return `a size like "64MiB"`
	case formSecret:
		return "env:NAME or file:PATH"
	}
	switch fd.Kind() {
	case protoreflect.StringKind, protoreflect.BytesKind:
		return "a string"
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.EnumKind:
		return words(shortNames(fd.Enum()).words(), "or")
	}
	return "a number"
}
