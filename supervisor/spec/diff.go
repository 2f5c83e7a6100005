package spec

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
)

// hidden stands for a secret in a change.
const hidden = "(hidden)"

// Diff lists the fields in which two specs differ, in the order of the schema:
// a list as a whole, a map entry by entry, a message without fields as "{}". A
// value that is not set is "". Compare specs with their defaults (Full), so
// that writing a default down is no change.
func Diff(before, after *pb.ConsumerSpec) []*pb.FieldChange {
	var d differ
	d.message(before.ProtoReflect(), after.ProtoReflect(), "", false)
	return d.changes
}

type differ struct{ changes []*pb.FieldChange }

// message compares field by field; hot when the message itself is.
func (d *differ) message(a, b protoreflect.Message, path string, hot bool) {
	fields := a.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if a.Has(fd) || b.Has(fd) {
			d.field(fd, a, b, below(path, fd), hot || isHot(fd))
		}
	}
}

func (d *differ) field(fd protoreflect.FieldDescriptor, a, b protoreflect.Message, path string, hot bool) {
	before, after := a.Get(fd), b.Get(fd)
	switch {
	case fd.IsMap():
		d.entries(fd, before.Map(), after.Map(), path, hot)
	case structured(fd):
		n := len(d.changes)
		d.message(before.Message(), after.Message(), path, hot)
		if len(d.changes) == n && a.Has(fd) != b.Has(fd) {
			d.add(path, hot, present(a.Has(fd)), present(b.Has(fd)))
		}
	case a.Has(fd) != b.Has(fd) || !before.Equal(after):
		d.add(path, hot, shown(fd, before, a.Has(fd)), shown(fd, after, b.Has(fd)))
	}
}

// structured tells whether a field has fields of its own that users see.
func structured(fd protoreflect.FieldDescriptor) bool {
	return fd.Message() != nil && !fd.IsList() && fd.Message().ParentFile().Package() == "supervisor.v1"
}

func (d *differ) entries(fd protoreflect.FieldDescriptor, a, b protoreflect.Map, path string, hot bool) {
	keys := map[string]protoreflect.MapKey{}
	collect := func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys[k.String()] = k
		return true
	}
	a.Range(collect)
	b.Range(collect)
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		key := keys[name]
		before, after := a.Get(key), b.Get(key)
		if a.Has(key) != b.Has(key) || !before.Equal(after) {
			d.add(textform.KeyPath(path, name), hot, shown(fd.MapValue(), before, a.Has(key)), shown(fd.MapValue(), after, b.Has(key)))
		}
	}
}

func (d *differ) add(path string, hot bool, before, after string) {
	d.changes = append(d.changes, &pb.FieldChange{Path: path, Hot: hot, Before: before, After: after})
}

func shown(fd protoreflect.FieldDescriptor, v protoreflect.Value, set bool) string {
	switch {
	case !set:
		return ""
	case textform.IsSecret(fd):
		return hidden
	}
	return textform.FormatValue(fd, v)
}

func present(set bool) string {
	if set {
		return "{}"
	}
	return ""
}

func isHot(fd protoreflect.FieldDescriptor) bool {
	hot, _ := proto.GetExtension(fd.Options(), pb.E_Hot).(bool)
	return hot
}
