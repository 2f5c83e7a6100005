package rabbitmq

import (
	"math"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/protobuf/types/known/structpb"
)

// table makes AMQP arguments of what a spec holds. Numbers without a fraction
// become integers, as the broker wants them; names are checked in order, so that
// faults come in one.
func (f *faults) table(path string, in *structpb.Struct) amqp.Table {
	out := amqp.Table{}
	names := make([]string, 0, len(in.GetFields()))
	for name := range in.GetFields() {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if len(name) == 0 || len(name) > mostName {
			f.addf(path, "has a name of %d bytes; use 1 to %d", len(name), mostName)
			continue
		}
		out[name] = f.value(path+"."+name, in.GetFields()[name])
	}
	return out
}

func (f *faults) value(path string, v *structpb.Value) any {
	switch k := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		return k.StringValue
	case *structpb.Value_BoolValue:
		return k.BoolValue
	case *structpb.Value_NumberValue:
		return f.number(path, k.NumberValue)
	case *structpb.Value_StructValue:
		return f.table(path, k.StructValue)
	case *structpb.Value_ListValue:
		list := make([]any, 0, len(k.ListValue.GetValues()))
		for _, e := range k.ListValue.GetValues() {
			list = append(list, f.value(path, e))
		}
		return list
	}
	f.addf(path, "has no value; give one or remove it")
	return nil
}

// number is an integer where n is one that a float64 holds exactly.
func (f *faults) number(path string, n float64) any {
	const exact = 1 << 53
	switch {
	case n != math.Trunc(n):
		return n
	case math.Abs(n) > exact:
		f.addf(path, "is too large to be exact; use at most 2^53")
	}
	return int64(n)
}
