package textform

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxAliased bounds what the aliases of one document expand to, in keys and values.
const maxAliased = 10_000

// decoder reads one file.
type decoder struct {
	file   string
	faults Faults
	doc    *Document
	// budget of values still to be visited in this document: those that stand
	// there and maxAliased.
	budget int
	spent  bool
}

func (d *decoder) fault(line, column int, path, message string) {
	d.faults = append(d.faults, Fault{File: d.file, Line: max(line, 1), Column: max(column, 1), Path: path, Message: message})
	if d.doc != nil {
		d.doc.faulty = append(d.doc.faulty, path)
	}
}

func (d *decoder) faultAtf(n *yaml.Node, path, format string, args ...any) {
	d.fault(n.Line, n.Column, path, fmt.Sprintf(format, args...))
}

func (d *decoder) document(root *yaml.Node, m proto.Message) Document {
	doc := Document{Message: m, File: d.file, root: root}
	d.doc, d.budget, d.spent = &doc, size(root)+maxAliased, false
	d.message(m.ProtoReflect(), root, "")
	d.doc = nil
	return doc
}

// size counts the values below n, aliases not followed.
func size(n *yaml.Node) int {
	total := 1
	for _, c := range n.Content {
		total += size(c)
	}
	return total
}

// visit follows an alias and charges the budget. It gives nil, and has said
// why, when there is nothing to be read.
func (d *decoder) visit(n *yaml.Node, path string) *yaml.Node {
	if d.spent {
		return nil
	}
	if d.budget--; d.budget < 0 {
		d.spent = true
		d.faultAtf(n, path, "the aliases of this document expand to more than %d values: write them out", maxAliased)
		return nil
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		d.faultAtf(n, path, "is empty: give it a value, {} for all defaults, or remove the line")
		return nil
	}
	return n
}

// entry is a key of a mapping with its value.
type entry struct{ key, value *yaml.Node }

// entries lists a mapping with its merge keys resolved; what stands in the
// mapping itself wins over what is merged; at is the path of a key. false: n is
// no mapping.
func (d *decoder) entries(n *yaml.Node, path string, at func(path, key string) string) ([]entry, bool) {
	if n.Kind != yaml.MappingNode || n.ShortTag() != "!!map" {
		d.faultAtf(n, path, "is %s; a mapping is expected: lines of \"key: value\"", kindOf(n))
		return nil, false
	}
	var all []entry
	seen := make(map[string]*yaml.Node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		switch first := seen[key.Value]; {
		case key.Kind != yaml.ScalarNode || key.ShortTag() == "!!null":
			d.faultAtf(n.Content[i], path, "a key must be a plain word")
		case key.ShortTag() == "!!merge":
		case first != nil:
			d.faultAtf(n.Content[i], at(path, key.Value), "is given twice; first in line %d", first.Line)
		default:
			seen[key.Value] = n.Content[i]
			all = append(all, entry{key, n.Content[i+1]})
		}
	}
	d.budget -= len(n.Content) / 2
	return d.merge(all, seen, n, path, map[*yaml.Node]bool{}), true
}

// merge appends what the merge keys of n bring and is not there yet. Each
// mapping is merged once, so that cycles end.
func (d *decoder) merge(all []entry, seen map[string]*yaml.Node, n *yaml.Node, path string, done map[*yaml.Node]bool) []entry {
	if done[n] {
		return all
	}
	done[n] = true
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].ShortTag() != "!!merge" {
			continue
		}
		for _, from := range d.mergeSources(n.Content[i+1], path) {
			d.budget -= len(from.Content) / 2
			for j := 0; j+1 < len(from.Content); j += 2 {
				key := from.Content[j]
				if key.Kind == yaml.ScalarNode && key.ShortTag() != "!!merge" && seen[key.Value] == nil {
					seen[key.Value] = key
					all = append(all, entry{key, from.Content[j+1]})
				}
			}
			all = d.merge(all, seen, from, path, done)
		}
	}
	return all
}

// mergeSources gives the mappings that the value of a merge key names: one, or
// a list of them.
func (d *decoder) mergeSources(n *yaml.Node, path string) []*yaml.Node {
	at := n
	if n = d.visit(n, path); n == nil {
		return nil
	}
	if n.Kind == yaml.MappingNode {
		return []*yaml.Node{n}
	}
	var from []*yaml.Node
	if n.Kind == yaml.SequenceNode {
		for _, item := range n.Content {
			if item = d.visit(item, path); item == nil {
				return nil
			}
			from = append(from, item)
		}
	}
	for _, m := range from {
		if m.Kind != yaml.MappingNode {
			from = nil
			break
		}
	}
	if from == nil {
		d.faultAtf(at, path, "the merge key << takes a mapping or a list of mappings")
	}
	return from
}

// message reads a mapping into m, as far as it can be read; false when n is none.
func (d *decoder) message(m protoreflect.Message, n *yaml.Node, path string) bool {
	if n = d.visit(n, path); n == nil {
		return false
	}
	entries, ok := d.entries(n, path, fieldPath)
	if !ok {
		return false
	}
	fields := m.Descriptor().Fields()
	members := map[protoreflect.FullName]*yaml.Node{}
	for _, e := range entries {
		fd := fields.ByName(protoreflect.Name(e.key.Value))
		if fd == nil {
			d.unknownField(m.Descriptor(), e.key, path, entries)
			continue
		}
		at := fieldPath(path, string(fd.Name()))
		if one := fd.ContainingOneof(); one != nil && !one.IsSynthetic() {
			if first := members[one.FullName()]; first != nil {
				d.faultAtf(e.key, at, "%s in line %d excludes it: only one of %s may be given",
					first.Value, first.Line, words(memberNames(one), "and"))
				continue
			}
			members[one.FullName()] = e.key
		}
		d.field(m, fd, e.value, at)
	}
	return true
}

var fieldWord = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// unknownField reports a key that names no field; others are those beside it.
func (d *decoder) unknownField(md protoreflect.MessageDescriptor, key *yaml.Node, path string, others []entry) {
	names := make([]string, 0, md.Fields().Len())
	for i := range md.Fields().Len() {
		names = append(names, string(md.Fields().Get(i).Name()))
	}
	// What is no word may be a value, and a secret: it is not repeated.
	if !fieldWord.MatchString(key.Value) {
		d.faultAtf(key, path, `not "key: value": a space may be missing after the colon, or quotes around the key`)
		return
	}
	at := fieldPath(path, key.Value)
	if near := nearest(key.Value, names); near != "" {
		d.faultAtf(key, at, "unknown field; did you mean %s?", near)
		if !slices.ContainsFunc(others, func(e entry) bool { return e.key.Value == near }) {
			d.doc.faulty = append(d.doc.faulty, fieldPath(path, near))
		}
		return
	}
	if len(names) == 0 {
		d.faultAtf(key, at, "unknown field; nothing can be set here: write {}")
		return
	}
	d.faultAtf(key, at, "unknown field; here may stand %s", words(names, "and"))
}

func memberNames(one protoreflect.OneofDescriptor) []string {
	names := make([]string, 0, one.Fields().Len())
	for i := range one.Fields().Len() {
		names = append(names, string(one.Fields().Get(i).Name()))
	}
	return names
}

// field reads the value of one field; a faulty value leaves it unset.
func (d *decoder) field(m protoreflect.Message, fd protoreflect.FieldDescriptor, n *yaml.Node, path string) {
	switch {
	case fd.IsList():
		d.list(m, fd, n, path)
	case fd.IsMap():
		d.mapping(m, fd, n, path)
	default:
		if v, ok := d.value(fd, m.NewField(fd), n, path); ok {
			m.Set(fd, v)
		}
	}
}

func (d *decoder) list(m protoreflect.Message, fd protoreflect.FieldDescriptor, n *yaml.Node, path string) {
	if n = d.visit(n, path); n == nil {
		return
	}
	if n.Kind != yaml.SequenceNode || n.ShortTag() != "!!seq" {
		d.faultAtf(n, path, "is %s; a list is expected: [a, b], or lines of \"- a\"", kindOf(n))
		return
	}
	list := m.Mutable(fd).List()
	for i, item := range n.Content {
		// A faulty item leaves a zero one, so that the others keep their paths.
		v, _ := d.value(fd, list.NewElement(), item, indexPath(path, i))
		list.Append(v)
	}
}

func (d *decoder) mapping(m protoreflect.Message, fd protoreflect.FieldDescriptor, n *yaml.Node, path string) {
	if n = d.visit(n, path); n == nil {
		return
	}
	entries, ok := d.entries(n, path, KeyPath)
	if !ok {
		return
	}
	values := m.Mutable(fd).Map()
	for _, e := range entries {
		at := KeyPath(path, e.key.Value)
		key, err := mapKey(fd.MapKey(), e.key.Value)
		if err != nil {
			d.faultAtf(e.key, at, "the key %s", err)
			continue
		}
		if v, ok := d.value(fd.MapValue(), values.NewValue(), e.value, at); ok {
			values.Set(key, v)
		}
	}
}

// value reads a message or a scalar; zero is a new value of the field's type.
func (d *decoder) value(fd protoreflect.FieldDescriptor, zero protoreflect.Value, n *yaml.Node, path string) (protoreflect.Value, bool) {
	if isFree(fd.Message()) {
		return zero, d.free(zero.Message(), n, path)
	}
	if fd.Message() != nil && wellKnown(fd.Message()) == 0 {
		return zero, d.message(zero.Message(), n, path)
	}
	if n = d.visit(n, path); n == nil {
		return zero, false
	}
	if n.Kind != yaml.ScalarNode {
		d.faultAtf(n, path, "is %s; %s is expected", kindOf(n), want(fd))
		return zero, false
	}
	v, err := scalar(fd, n)
	if err != nil {
		d.faultAtf(n, path, "%s", err)
		return zero, false
	}
	return v, true
}

// lookup finds a key of a mapping, merged ones included, or an item of a list.
func lookup(n *yaml.Node, elem string) (key, value *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind != yaml.SequenceNode {
		return lookupMerged(n, elem, map[*yaml.Node]bool{})
	}
	if i, err := strconv.Atoi(elem); err == nil && i >= 0 && i < len(n.Content) {
		return nil, n.Content[i]
	}
	return nil, nil
}

func lookupMerged(n *yaml.Node, elem string, done map[*yaml.Node]bool) (key, value *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if done[n] {
		return nil, nil
	}
	done[n] = true
	merged := []*yaml.Node{}
	switch n.Kind {
	case yaml.SequenceNode:
		merged = n.Content
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			k, v := n.Content[i], n.Content[i+1]
			if k.Kind == yaml.AliasNode {
				k = k.Alias
			}
			switch {
			case k.ShortTag() == "!!merge":
				merged = append(merged, v)
			case k.Value == elem:
				return k, v
			}
		}
	}
	for _, from := range merged {
		if k, v := lookupMerged(from, elem, done); v != nil {
			return k, v
		}
	}
	return nil, nil
}
