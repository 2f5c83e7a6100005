package spec

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/seed-111f5b8e/supervisord/proto/textform"
)

// scrub refuses what no field of any message may hold, and clears it: fields
// and enum values of a newer schema, which must not be lost in silence, inline
// secrets, and durations out of form.
func (c *checker) scrub(m protoreflect.Message, path string) {
	if unknown := m.GetUnknown(); len(unknown) > 0 {
		number, _, _ := protowire.ConsumeTag(unknown)
		c.faultf(path, "has a field (number %d) that this program does not know, so it is older than its client: update it, or leave the field out", number)
		m.SetUnknown(nil)
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) {
			continue
		}
		switch at := below(path, fd); {
		case fd.IsMap():
			// Its values are strings everywhere in the schema.
		case fd.IsList():
			for j := range m.Get(fd).List().Len() {
				c.scrubValue(fd, m.Get(fd).List().Get(j), indexed(at, j))
			}
		case !c.scrubValue(fd, m.Get(fd), at):
			m.Clear(fd)
		}
	}
}

// scrubValue is false for a value that is to be cleared.
func (c *checker) scrubValue(fd protoreflect.FieldDescriptor, v protoreflect.Value, path string) bool {
	switch {
	case fd.Enum() != nil:
		if fd.Enum().Values().ByNumber(v.Enum()) == nil {
			c.faultf(path, "has a value (number %d) that this program does not know, so it is older than its client: update it, or write another value", v.Enum())
			return false
		}
	case textform.IsSecret(fd):
		if err := textform.CheckSecret(v.String()); err != nil {
			c.faultf(path, "%s", err)
		}
	case fd.Message() == nil:
	case fd.Message().FullName() == (&durationpb.Duration{}).ProtoReflect().Descriptor().FullName():
		if d, ok := v.Message().Interface().(*durationpb.Duration); !ok || d.CheckValid() != nil {
			c.faultf(path, "is no valid duration: seconds and nanos must have one sign, and be less than 10,000 years")
			return false
		}
	default:
		c.scrub(v.Message(), path)
	}
	return true
}
