package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
)

// maxFile bounds a file with specs.
const maxFile = 64 << 20

// specs are consumers read from files, in order.
type specs struct {
	docs []textform.Document
	// files counts the files read.
	files int
}

func (s *specs) spec(i int) *pb.ConsumerSpec {
	m, ok := s.docs[i].Message.(*pb.ConsumerSpec)
	if !ok {
		return nil
	}
	return m
}

func (s *specs) items() []*pb.ApplyItem {
	items := make([]*pb.ApplyItem, len(s.docs))
	for i := range s.docs {
		items[i] = &pb.ApplyItem{Spec: s.spec(i)}
	}
	return items
}

// readSpecs reads every consumer of the files and folders, or of stdin for
// "-". All that is wrong in all of them comes as one textform.Faults.
func (a *app) readSpecs(paths []string) (*specs, error) {
	if len(paths) == 0 {
		return nil, failf(exitUsage, "say which files with -f FILE, -f FOLDER or -f -")
	}
	files, err := expand(paths)
	if err != nil {
		return nil, err
	}
	s := &specs{files: len(files)}
	var faults textform.Faults
	for _, file := range files {
		data, err := a.readFile(file)
		if err != nil {
			return nil, err
		}
		if file == "-" {
			file = "<stdin>"
		}
		docs, err := textform.Decode(file, data, func() proto.Message { return new(pb.ConsumerSpec) })
		found, ok := errors.AsType[textform.Faults](err)
		if err != nil && !ok {
			return nil, err
		}
		faults = append(faults, found...)
		s.docs = append(s.docs, docs...)
	}
	more, err := a.settle(s)
	if err != nil {
		return nil, err
	}
	if faults = append(faults, more...); len(faults) > 0 {
		faults.Sort()
		return s, &failure{exit: exitUsage, err: faultsError{faults}}
	}
	return s, nil
}

// settle fills in the namespace of the command line and finds names that are
// given twice.
func (a *app) settle(s *specs) (textform.Faults, error) {
	ns, err := a.namespace()
	if err != nil {
		return nil, err
	}
	var faults textform.Faults
	fault := func(i int, path, message string) {
		if f, ok := s.docs[i].Fault(path, message); ok {
			faults = append(faults, f)
		}
	}
	seen := map[key]int{}
	for i := range s.docs {
		spec := s.spec(i)
		switch {
		case spec.GetNamespace() == "":
			spec.Namespace = ns
		case a.flags.namespace != "" && spec.GetNamespace() != ns:
			fault(i, "namespace", fmt.Sprintf("%q is not the namespace %q of -n: leave one of them out", spec.GetNamespace(), ns))
		}
		k := key{spec.GetNamespace(), spec.GetName()}
		if first, twice := seen[k]; twice && spec.GetName() != "" {
			line, _ := s.docs[first].Locate("name")
			fault(i, "name", fmt.Sprintf("%q is there already, at %s:%d: give each consumer a name of its own", spec.GetName(), s.docs[first].File, line))
			continue
		}
		seen[k] = i
	}
	return faults, nil
}

// expand replaces folders by the files in them with the endings of specs.
func expand(paths []string) ([]string, error) {
	var files []string
	for _, p := range paths {
		if p == "-" {
			files = append(files, p)
			continue
		}
		info, err := os.Stat(p)
		if err != nil {
			return nil, failf(exitUsage, "-f %s: %w", p, plainPathError(err))
		}
		if !info.IsDir() {
			files = append(files, p)
			continue
		}
		inside, err := folder(p)
		if err != nil {
			return nil, err
		}
		files = append(files, inside...)
	}
	for i, f := range files {
		if slices.Contains(files[:i], f) {
			return nil, failf(exitUsage, "-f %s is given twice", f)
		}
	}
	return files, nil
}

func folder(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, failf(exitUsage, "-f %s: %w", dir, plainPathError(err))
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, failf(exitUsage, "-f %s: no .yaml, .yml or .json file is in this folder; folders in it are not looked into", dir)
	}
	return files, nil
}

func (a *app) readFile(file string) ([]byte, error) {
	in := a.env.stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, failf(exitUsage, "-f %s: %w", file, plainPathError(err))
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	switch {
	case err != nil:
		return nil, failf(exitUsage, "-f %s: %w", file, plainPathError(err))
	case len(data) > maxFile:
		return nil, failf(exitUsage, "-f %s is larger than %s: split it", file, textform.FormatSize(maxFile))
	}
	return data, nil
}

// plainPathError leaves out the path, which the message has already.
func plainPathError(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// faultsError is faults in files, a line each.
type faultsError struct{ faults textform.Faults }

func (e faultsError) Error() string {
	n := len(e.faults)
	return printable(fmt.Sprintf("%d %s, nothing was applied:\n%s", n, plural(n, "fault"), e.faults))
}

func (e faultsError) Unwrap() error { return e.faults }

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// applyBytes bounds the specs of one request, well below what a daemon takes.
const applyBytes = 512 << 10

// apply sends specs, in several requests when they do not fit into one. With
// several all are checked before the first is applied.
func (s *specs) apply(ctx context.Context, c *client, req *pb.ApplyRequest) ([]*pb.ApplyResult, error) {
	parts := chunks(req.GetItems())
	send := func(validateOnly bool) ([]*pb.ApplyResult, error) {
		var results []*pb.ApplyResult
		first := 0
		for _, items := range parts {
			r, err := c.consumers.Apply(ctx, &pb.ApplyRequest{Items: items, ValidateOnly: validateOnly, Reason: req.GetReason(), RequestId: req.GetRequestId()})
			if err != nil {
				return results, s.place(err, first)
			}
			results = append(results, r.GetResults()...)
			first += len(items)
		}
		return results, nil
	}
	if len(parts) > 1 && !req.GetValidateOnly() {
		if req.GetRequestId() != "" {
			return nil, failf(exitUsage, "--request-id: these %d consumers do not fit into one request: apply them in parts", len(req.GetItems()))
		}
		if _, err := send(true); err != nil {
			return nil, err
		}
	}
	return send(req.GetValidateOnly())
}

func chunks(items []*pb.ApplyItem) [][]*pb.ApplyItem {
	var parts [][]*pb.ApplyItem
	start, size := 0, 0
	for i, item := range items {
		n := proto.Size(item)
		if size+n > applyBytes && i > start {
			parts = append(parts, items[start:i])
			start, size = i, 0
		}
		size += n
	}
	return append(parts, items[start:])
}

// place turns the faults of a request into faults of the files. first is the
// number of the request's first item among all.
func (s *specs) place(err error, first int) error {
	e, ok := errors.AsType[*apiError](err)
	if !ok || len(e.fields) == 0 {
		return err
	}
	var faults textform.Faults
	var rest []*errdetails.BadRequest_FieldViolation
	for _, v := range e.fields {
		i, path, ok := itemPath(v.GetField())
		if !ok || first+i >= len(s.docs) {
			rest = append(rest, v)
			continue
		}
		doc := &s.docs[first+i]
		line, column := doc.Locate(path)
		faults = append(faults, textform.Fault{File: doc.File, Line: line, Column: column, Path: path, Message: v.GetDescription()})
	}
	if len(rest) > 0 || len(faults) == 0 {
		return err
	}
	faults.Sort()
	return &failure{exit: e.exit(), err: faultsError{faults}}
}

// itemPath cuts "items[3].spec.handler.timeout" into 3 and "handler.timeout".
func itemPath(field string) (int, string, bool) {
	rest, ok := strings.CutPrefix(field, "items[")
	number, rest, found := strings.Cut(rest, "]")
	i, err := strconv.Atoi(number)
	if !ok || !found || err != nil || i < 0 {
		return 0, "", false
	}
	rest = strings.TrimPrefix(rest, ".spec")
	return i, strings.TrimPrefix(rest, "."), true
}
