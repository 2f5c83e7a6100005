package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/seed-111f5b8e/supervisord/proto/textform"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
)

// view is one result in every form of output.
type view struct {
	// whole is the object of json and yaml: a message of the API, or plain data
	// with tags for both. Without it the items stand for themselves: a document
	// each in YAML; in JSON the only one, or a list.
	whole any
	// items are the lines of jsonl.
	items []any
	// names are the lines of name.
	names []string
	// table is for people; wide asks for all columns. Without it, lines are.
	table func(wide bool) table
	lines func(w io.Writer)
	// spec: what is written is to be applied again, so nothing that was not
	// set is shown.
	spec bool
}

// print writes v to stdout in the form that -o asks for.
func (a *app) print(v view) error { return a.printAs(a.flags.output.value, v) }

func (a *app) printAs(form string, v view) error {
	var out bytes.Buffer
	var err error
	switch form {
	case outJSON:
		err = v.json(&out)
	case outYAML:
		if a.documents++; a.documents > 1 {
			fmt.Fprintln(&out, "---")
		}
		err = v.yaml(&out)
	case outJSONL:
		for _, item := range v.items {
			if err = encodeJSON(&out, item, v.spec, true); err != nil {
				break
			}
		}
	case outName:
		for _, n := range v.names {
			fmt.Fprintln(&out, n)
		}
	default:
		if v.lines != nil {
			v.lines(&out)
			break
		}
		t := v.table(form == outWide)
		t.noHeaders = a.flags.noHeaders
		t.write(&out, a.color())
	}
	if err != nil {
		return err
	}
	if _, err := a.env.stdout.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

func (v view) json(w io.Writer) error {
	switch {
	case v.whole != nil:
		return encodeJSON(w, v.whole, v.spec, false)
	case len(v.items) == 1:
		return encodeJSON(w, v.items[0], v.spec, false)
	}
	list := make([]json.RawMessage, len(v.items))
	for i, item := range v.items {
		var b bytes.Buffer
		if err := encodeJSON(&b, item, v.spec, true); err != nil {
			return err
		}
		list[i] = b.Bytes()
	}
	return encodeJSON(w, list, v.spec, false)
}

func (v view) yaml(w io.Writer) error {
	if v.whole != nil {
		return encodeYAML(w, v.whole)
	}
	for i, item := range v.items {
		if i > 0 {
			fmt.Fprintln(w, "---")
		}
		if err := encodeYAML(w, item); err != nil {
			return err
		}
	}
	return nil
}

// human tells whether the output is for people.
func (a *app) human() bool {
	return a.flags.output.value == outTable || a.flags.output.value == outWide
}

// color tells whether stdout takes colours and the user wants them.
func (a *app) color() bool {
	return a.env.stdoutTTY && !a.flags.noColor && a.env.getenv("NO_COLOR") == "" && a.env.getenv("TERM") != "dumb"
}

func encodeJSON(w io.Writer, v any, spec, compact bool) error {
	m, ok := v.(proto.Message)
	if !ok {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		if !compact {
			enc.SetIndent("", "  ")
		}
		if err := enc.Encode(v); err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		return nil
	}
	var opts []textform.Option
	if !spec {
		opts = append(opts, textform.Unpopulated)
	}
	if compact {
		opts = append(opts, textform.Compact)
	}
	data, err := textform.EncodeJSON(m, opts...)
	if err == nil {
		_, err = w.Write(data)
	}
	return err
}

func encodeYAML(w io.Writer, v any) error {
	if m, ok := v.(proto.Message); ok {
		data, err := textform.EncodeYAML(m)
		if err == nil {
			_, err = w.Write(data)
		}
		return err
	}
	enc := yaml.NewEncoder(w)
	enc.SetIndent(2)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("write YAML: %w", err)
	}
	return enc.Close()
}

// anys widens a slice for view.items.
func anys[T any](in []T) []any {
	out := make([]any, len(in))
	for i, v := range in {
		out[i] = v
	}
	return out
}

// names maps things to their names.
func names[T any](in []T, name func(T) string) []string {
	out := make([]string, len(in))
	for i, v := range in {
		out[i] = name(v)
	}
	return out
}
