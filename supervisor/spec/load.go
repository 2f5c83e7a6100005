package spec

import (
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/seed-111f5b8e/supervisord/brokers"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
)

// File is a file of specs that has been read.
type File struct {
	Name string
	Data []byte
}

// Load checks the specs of files, names that are given twice included. The
// error is nil or [textform.Faults]: all faults of all files, in form and in
// meaning; then nothing may be used.
func Load(files []File, env Env) ([]*Consumer, error) {
	var all []*Consumer
	var faults textform.Faults
	first := map[[2]string]textform.Fault{}
	for _, f := range files {
		docs, err := textform.Decode(f.Name, f.Data, func() proto.Message { return new(pb.ConsumerSpec) })
		var inForm textform.Faults
		errors.As(err, &inForm)
		faults = append(faults, inForm...)
		for i := range docs {
			c, found := checkDocument(&docs[i], env, first)
			all, faults = append(all, c), append(faults, found...)
		}
	}
	if len(faults) > 0 {
		faults.Sort()
		return nil, faults
	}
	return all, nil
}

func checkDocument(doc *textform.Document, env Env, first map[[2]string]textform.Fault) (*Consumer, textform.Faults) {
	s, ok := doc.Message.(*pb.ConsumerSpec)
	if !ok {
		return nil, nil
	}
	c, found := Check(s, env)
	if s.GetNamespace() == "" {
		s.Namespace = defaultNamespace
	}
	name := [2]string{s.GetNamespace(), s.GetName()}
	if at, twice := first[name]; twice && s.GetName() != "" {
		found = append(found, brokers.Faultf("name", "%q is there already, at %s:%d: give each consumer a name of its own", s.GetName(), at.File, at.Line))
	} else {
		line, column := doc.Locate("name")
		first[name] = textform.Fault{File: doc.File, Line: line, Column: column}
	}
	return c, place(doc, found)
}

// place finds the lines of faults in meaning. Those that only follow from a
// fault in form are left out.
func place(doc *textform.Document, found []brokers.Fault) textform.Faults {
	out := make(textform.Faults, 0, len(found))
	for _, f := range found {
		if at, ok := doc.Fault(f.Path, f.Message); ok {
			out = append(out, at)
		}
	}
	return out
}

// LoadDaemon checks the daemon's configuration in a file. The error is nil or
// [textform.Faults], as that of [Load]; see [CheckDaemon].
func LoadDaemon(f File, drivers map[string]brokers.Driver) (*Daemon, error) {
	cfg := new(pb.DaemonConfig)
	doc, err := textform.DecodeOne(f.Name, f.Data, cfg)
	var faults textform.Faults
	errors.As(err, &faults)
	out, found := CheckDaemon(cfg, drivers)
	if faults = append(faults, place(&doc, found)...); len(faults) > 0 {
		faults.Sort()
		return nil, faults
	}
	return out, nil
}
