package spec

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
)

// maxSecret bounds a secret's file, in bytes.
const maxSecret = 64 << 10

// ErrSecret is in every error of [Secret].
var ErrSecret = errors.New("secret is not available")

// Secret resolves "env:NAME" and "file:PATH". Of a file one newline at the end
// is cut off. It reads anew each time, so that rotated secrets are taken up; it
// does not wait, for a file that is no regular one is refused. An error names
// the variable or the file and never a value.
func Secret(ref string) (string, error) {
	if err := textform.CheckSecret(ref); err != nil {
		return "", fmt.Errorf("%w: the reference %w", ErrSecret, err)
	}
	kind, name, _ := strings.Cut(ref, ":")
	if kind == "env" {
		return fromEnv(name)
	}
	return fromFile(name)
}

func fromEnv(name string) (string, error) {
	value, ok := os.LookupEnv(name)
	switch {
	case !ok:
		return "", fmt.Errorf("%w: environment variable %s is not set", ErrSecret, name)
	case value == "":
		return "", fmt.Errorf("%w: environment variable %s is empty", ErrSecret, name)
	}
	return value, nil
}

func fromFile(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrSecret, err)
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%w: %s is no regular file", ErrSecret, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrSecret, err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	data, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	switch value := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r"); {
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrSecret, err)
	case len(data) > maxSecret:
		return "", fmt.Errorf("%w: file %s is larger than %s", ErrSecret, path, textform.ExactSize(maxSecret))
	case value == "":
		return "", fmt.Errorf("%w: file %s is empty", ErrSecret, path)
	default:
		return value, nil
	}
}

// Unresolved reports every secret of a message that cannot be resolved now. It
// reads the environment and files. References out of form are not its concern.
func Unresolved(m proto.Message) []brokers.Fault {
	c := &checker{}
	c.resolve(m.ProtoReflect(), "")
	return c.faults
}

func (c *checker) resolve(m protoreflect.Message, path string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		at := below(path, fd)
		switch {
		case !m.Has(fd) || fd.IsMap():
		case fd.IsList() && fd.Message() != nil:
			for j := range m.Get(fd).List().Len() {
				c.resolve(m.Get(fd).List().Get(j).Message(), indexed(at, j))
			}
		case fd.IsList():
		case fd.Message() != nil:
			c.resolve(m.Get(fd).Message(), at)
		case textform.IsSecret(fd) && textform.CheckSecret(m.Get(fd).String()) == nil:
			if _, err := Secret(m.Get(fd).String()); err != nil {
				c.faultf(at, "%s", err)
			}
		}
	}
}

func below(path string, fd protoreflect.FieldDescriptor) string {
	if path == "" {
		return string(fd.Name())
	}
	return path + "." + string(fd.Name())
}

func indexed(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
