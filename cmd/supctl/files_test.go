package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
)

// write makes files in a new folder and gives its path.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func reader(t *testing.T, namespace string) *app {
	a := &app{env: newConsole(t, nil).environment}
	a.flags.namespace = namespace
	return a
}

func TestReadSpecs(t *testing.T) {
	dir := write(t, map[string]string{
		"b.yaml": "name: b\nnamespace: shop\n---\nname: c\n", "a.json": `{"name": "a"}`, "notes.txt": "not a spec", "z.yml": "name: z\n",
	})
	a := reader(t, "")
	a.env.stdin = strings.NewReader("name: piped\n")
	s, err := a.readSpecs([]string{dir, "-"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range s.docs {
		got = append(got, key{s.spec(i).GetNamespace(), s.spec(i).GetName()}.String())
	}
	if want := "[default/a shop/b default/c default/z default/piped]"; fmt.Sprint(got) != want || s.files != 4 {
		t.Errorf("got %v of %d files, want %s", got, s.files, want)
	}
}

func TestReadSpecsTellsAllFaultsOfAllFiles(t *testing.T) {
	dir := write(t, map[string]string{
		"a.yaml": "name: a\nconcurency: 4\nhandler: {timeout: 10}\n",
		"b.yaml": "name: a\nnamespace: other\n---\nname: twice\n",
		"c.yaml": "name: x\n---\nname: twice\nordering: key\n",
	})
	_, err := reader(t, "shop").readSpecs([]string{dir})
	if exitOf(err) != exitUsage {
		t.Fatalf("got %v", err)
	}
	got := strings.ReplaceAll(err.Error(), dir+"/", "")
	for _, want := range []string{
		"5 faults, nothing was applied:", "a.yaml:2:", "a.yaml:3:", `b.yaml:2:12: namespace: "other" is not the namespace "shop" of -n`,
		`c.yaml:3:7: name: "twice" is there already, at b.yaml:4`, "c.yaml:4:", "did you mean KEY",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in:\n%s", want, got)
		}
	}
}

func TestReadSpecsRefuses(t *testing.T) {
	empty := t.TempDir()
	file := filepath.Join(write(t, map[string]string{"a.yaml": "name: a\n"}), "a.yaml")
	for want, paths := range map[string][]string{
		"say which files":         nil,
		"no such file":            {filepath.Join(empty, "missing.yaml")},
		"no .yaml, .yml or .json": {empty},
		"is given twice":          {file, file},
	} {
		if _, err := reader(t, "").readSpecs(paths); exitOf(err) != exitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("readSpecs(%v) = %v, want %q", paths, err, want)
		}
	}
}

func TestFaultsOfTheDaemonComeBackToTheirLines(t *testing.T) {
	file := filepath.Join(write(t, map[string]string{"a.yaml": "name: a\n---\nname: b\nhandler:\n  timeout: 1ms\n"}), "a.yaml")
	s, err := reader(t, "").readSpecs([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	refused := func(fields ...string) error {
		e := &apiError{code: codes.InvalidArgument, reason: pb.ErrorReason_ERROR_REASON_INVALID_ARGUMENT, message: "bad request"}
		for _, f := range fields {
			e.fields = append(e.fields, &errdetails.BadRequest_FieldViolation{Field: f, Description: "is wrong"})
		}
		return e
	}
	err = s.place(refused("items[1].spec.handler.timeout", "items[0].spec.source", "items[1].spec.stop.soft"), 0)
	want := fmt.Sprintf("3 faults, nothing was applied:\n%[1]s:1:1: source: is wrong\n%[1]s:3:1: stop.soft: is wrong\n%[1]s:5:12: handler.timeout: is wrong", file)
	if exitOf(err) != exitUsage || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	// The second part of a large apply begins with another item.
	if err := s.place(refused("items[0].spec.handler.timeout"), 1); !strings.Contains(err.Error(), ":5:12:") {
		t.Errorf("got %v", err)
	}
	for _, field := range []string{"reason", "items[2].spec.name"} {
		if err := refused(field); !errors.Is(s.place(err, 0), err) {
			t.Errorf("a fault at %s has no line and is to be passed on", field)
		}
	}
}

func TestLargeAppliesAreCut(t *testing.T) {
	var items []*pb.ApplyItem
	for i := range 3000 {
		items = append(items, &pb.ApplyItem{Spec: &pb.ConsumerSpec{Name: strconv.Itoa(i), Labels: map[string]string{"pad": strings.Repeat("x", 500)}}})
	}
	items = append(items, &pb.ApplyItem{Spec: &pb.ConsumerSpec{Name: "huge", Labels: map[string]string{"pad": strings.Repeat("x", 2*applyBytes)}}})
	total := 0
	parts := chunks(items)
	for i, part := range parts {
		for _, item := range part {
			if item != items[total] {
				t.Fatalf("part %d: an item is out of order", i)
			}
			total++
		}
	}
	if total != len(items) || len(parts) != 4 || len(parts[3]) != 1 {
		t.Errorf("%d of %d items in %d parts", total, len(items), len(parts))
	}
	if one := chunks(items[:2]); len(one) != 1 {
		t.Errorf("%d parts for two small items", len(one))
	}
}
