// Package textform reads and writes the API's messages as people do: YAML and
// JSON with the field names of the schema, durations as "200ms", sizes as
// "64MiB", times in RFC 3339 and enums by their short names ("RUNNING").
//
// It works on any generated message by reflection; the options unit and secret of the
// schema say what its types do not. What [EncodeYAML] and [EncodeJSON] write,
// [Decode] reads back as the same message.
//
// Paths name fields from the root of a document: "source.nats.stream",
// "connections[1].nats.urls[0]", `labels["team"]`.
package textform

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
)

// Fault is one thing wrong in a file.
type Fault struct {
	File string
	// Line and Column count from 1.
	Line, Column int
	// Path of the field; empty when the file or a whole document is meant.
	Path string
	// Message says what is wrong and what would be right. It never repeats a
	// secret.
	Message string
}

// Error is "file:line:column: path: message".
func (f Fault) Error() string {
	at := fmt.Sprintf("%s:%d:%d: ", f.File, f.Line, f.Column)
	if f.Path != "" {
		at += f.Path + ": "
	}
	return at + f.Message
}

// Faults is all that is wrong in one or more files.
type Faults []Fault //nolint:errname // as Fault

// Error has one line for each fault.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Sort orders faults by file, line and column.
func (f Faults) Sort() {
	slices.SortStableFunc(f, func(a, b Fault) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// Document is one YAML document of a file and the message read from it. Its
// methods are safe for concurrent use.
type Document struct {
	Message proto.Message
	File    string

	root *yaml.Node
	// faulty lists the paths that Decode found a fault at, and those that a
	// misspelt field was probably meant for.
	faulty []string
}

// Decode reads every document of a file into a message from newMessage. JSON is
// read too, being YAML.
//
// The error is nil or [Faults]: everything that is wrong in the file, sorted by
// line. The documents are returned all the same, with what could be read, so
// that a caller can look for faults in meaning as well and report all at once
// (see [Document.Fault]); nothing of a file with faults may be used otherwise.
func Decode(file string, data []byte, newMessage func() proto.Message) ([]Document, error) {
	d := decoder{file: file}
	roots := d.parse(data)
	docs := make([]Document, 0, len(roots))
	for _, root := range roots {
		docs = append(docs, d.document(root, newMessage()))
	}
	if len(d.faults) > 0 {
		d.faults.Sort()
		return docs, d.faults
	}
	return docs, nil
}

// DecodeOne reads a file that holds exactly one document into m. The error is
// as that of [Decode].
func DecodeOne(file string, data []byte, m proto.Message) (Document, error) {
	d := decoder{file: file}
	roots := d.parse(data)
	if len(roots) > 1 {
		d.faultAtf(roots[1], "", "a second document: this file holds exactly one")
	}
	doc := Document{Message: m, File: file}
	if len(roots) > 0 {
		doc = d.document(roots[0], m)
	}
	if len(d.faults) > 0 {
		d.faults.Sort()
		return doc, d.faults
	}
	return doc, nil
}

// Fault places a fault in meaning, found after decoding, at its line. It is
// false when Decode has already reported a fault at that path, below or above
// it: the new one would only be a consequence.
func (d *Document) Fault(path, message string) (Fault, bool) {
	for _, p := range d.faulty {
		if p == "" || within(p, path) || within(path, p) {
			return Fault{}, false
		}
	}
	line, column := d.Locate(path)
	return Fault{File: d.File, Line: line, Column: column, Path: path, Message: message}, true
}

// Locate finds the line and column of a field, from 1; of its nearest parent
// when the field is not written.
func (d *Document) Locate(path string) (line, column int) {
	at := d.root
	if at == nil {
		return 1, 1
	}
	for n, elems := d.root, split(path); len(elems) > 0; elems = elems[1:] {
		key, value := lookup(n, elems[0])
		if value == nil {
			break
		}
		at, n = position(key, value), value
	}
	return at.Line, at.Column
}

// position picks what to point at: the value where it stands in a line of its
// own, else the key.
func position(key, value *yaml.Node) *yaml.Node {
	if key == nil || (value.Kind&(yaml.ScalarNode|yaml.AliasNode) != 0 && value.ShortTag() != "!!null") {
		return value
	}
	return key
}
