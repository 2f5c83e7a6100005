// Package archtest holds who may import whom. ARCHITECTURE.md tells why.
package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/seed-111f5b8e/supervisord"

// rule says what one package may import. Of the standard library all may.
type rule struct {
	// ours are packages of this module, without its path.
	ours []string
	// others are modules or packages of other people, with all below them.
	others []string
	// tests are packages, ours or others', that only its tests may import.
	tests []string
}

// api is what every package may use to read and write the API's messages.
const (
	api      = "proto/supervisor/v1"
	protobuf = "google.golang.org/protobuf"
	goleak   = "go.uber.org/goleak"
	rapid    = "pgregory.net/rapid"
	yaml     = "go.yaml.in/yaml/v3"
	grpc     = "google.golang.org/grpc"
	errInfo  = "google.golang.org/genproto/googleapis/rpc"
)

// core is what a program that hosts consumers is made of; tests of what stands
// on it build one over the memory broker.
func core() []string {
	return []string{"brokers", "brokers/memory", "supervisor", "supervisor/handlers", "supervisor/spec", "supervisor/store"}
}

// rules has every package of the module; one that is not here fails the test.
func rules() map[string]rule {
	driver := func(client ...string) rule {
		return rule{
			ours:   []string{"brokers", api},
			others: append(client, protobuf),
			tests:  []string{"brokers/brokertest", "test/node", goleak, rapid},
		}
	}
	rabbitmq := driver("github.com/rabbitmq/amqp091-go")
	rabbitmq.tests = append(rabbitmq.tests, "test/node/rabbitmq")
	kafka := driver("github.com/twmb/franz-go")
	kafka.tests = append(kafka.tests, "test/node/kafka")
	nats := driver("github.com/nats-io/nats.go", "github.com/nats-io/nats-server/v2")
	return map[string]rule{
		// Contracts.
		api:              {others: []string{protobuf, grpc}},
		"proto/endpoint": {},
		"proto/textform": {ours: []string{api}, others: []string{protobuf, yaml}, tests: []string{rapid}},
		"brokers":        {ours: []string{api}},

		// Brokers. None knows another, or the core.
		"brokers/brokertest": {ours: []string{"brokers", api}, others: []string{goleak, protobuf}},
		"brokers/memory":     driver(),
		"brokers/nats":       nats,
		"brokers/rabbitmq":   rabbitmq,
		"brokers/kafka":      kafka,

		// The core knows no broker, no client library and no transport.
		"supervisor/lifecycle": {ours: []string{api}, tests: []string{rapid}},
		"supervisor/spec": {
			ours: []string{"brokers", api, "proto/textform"}, others: []string{protobuf},
			tests: []string{"brokers/memory", "brokers/nats", rapid},
		},
		"supervisor/store": {
			ours: []string{api}, others: []string{protobuf, "go.etcd.io/bbolt"},
			tests: []string{goleak, rapid},
		},
		"supervisor": {
			ours:   []string{"brokers", api, "supervisor/lifecycle", "supervisor/spec", "supervisor/store"},
			others: []string{protobuf},
			tests:  append(core(), goleak, rapid),
		},

		// Around it. Each knows the core and none knows another.
		"supervisor/handlers": {
			ours: []string{"brokers", api, "proto/textform", "supervisor"}, others: []string{protobuf, "golang.org/x/net/http/httpguts"},
			tests: append(core(), goleak, rapid),
		},
		"supervisor/console": {
			ours: []string{api, "supervisor"}, others: []string{"github.com/prometheus/client_golang", "golang.org/x/net/netutil"},
			tests: append(core(), goleak, protobuf, "github.com/prometheus/common", "github.com/prometheus/client_model"),
		},
		// rpc alone turns errors into status codes on the server's side.
		"supervisor/rpc": {
			ours:   []string{api, "proto/endpoint", "supervisor", "supervisor/spec"},
			others: []string{protobuf, grpc, errInfo, "golang.org/x/sys/unix"},
			tests:  append(core(), goleak, rapid),
		},

		// Programs. supervisord alone names drivers; supctl knows the API alone.
		// The wiring that every supervisord shares; its drivers are handed in.
		"supervisor/daemon": {
			ours: []string{
				"brokers", api, "proto/endpoint", "supervisor", "supervisor/console", "supervisor/handlers",
				"supervisor/rpc", "supervisor/spec", "supervisor/store",
			},
			others: []string{protobuf, "github.com/spf13/cobra", "github.com/spf13/pflag"},
			tests:  append(core(), goleak, grpc),
		},
		"cmd/supervisord": {
			ours: []string{
				"brokers", "brokers/kafka", "brokers/memory", "brokers/nats", "brokers/rabbitmq", api, "proto/endpoint", "proto/textform",
				"supervisor", "supervisor/daemon", "supervisor/spec",
			},
			// The demo publishes as any program would, past the daemon, and keeps
			// Ctrl-C from make.
			others: []string{protobuf, "github.com/spf13/cobra", "github.com/nats-io/nats.go", "golang.org/x/sys/unix"},
			tests:  []string{goleak, grpc, "github.com/rogpeppe/go-internal"},
		},
		"cmd/supctl": {
			ours: []string{api, "proto/endpoint", "proto/textform"},
			others: []string{
				protobuf, grpc, errInfo, yaml, "github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/term",
			},
			tests: []string{goleak, "github.com/rogpeppe/go-internal", "github.com/nats-io/nats.go"},
		},

		// bench runs the daemon's parts beside the clients that they stand on.
		"bench": {
			ours: append(core(), api, "brokers/kafka", "brokers/nats", "brokers/rabbitmq", "test/node", "test/node/kafka", "test/node/rabbitmq"),
			others: []string{
				protobuf, "github.com/nats-io/nats.go", "github.com/nats-io/nats-server/v2",
				"github.com/rabbitmq/amqp091-go", "github.com/twmb/franz-go",
			},
			tests: []string{goleak},
		},

		// What checks the rest. e2e runs a supervisord of its own as a process.
		"test/e2e": {
			tests: []string{
				"brokers", "brokers/kafka", "brokers/nats", "brokers/rabbitmq", api, "supervisor", "supervisor/daemon", grpc,
				"test/node", "test/node/kafka", "test/node/rabbitmq",
				"github.com/nats-io/nats.go", "github.com/nats-io/nats-server/v2",
				"github.com/rabbitmq/amqp091-go", "github.com/twmb/franz-go",
			},
		},
		"test/node":          {},
		"test/node/kafka":    {ours: []string{"test/node"}, others: []string{"github.com/twmb/franz-go"}, tests: []string{goleak}},
		"test/node/rabbitmq": {ours: []string{"test/node"}, others: []string{"github.com/rabbitmq/amqp091-go"}, tests: []string{goleak}},
		"test/brokers":       {ours: []string{"test/node", "test/node/kafka", "test/node/rabbitmq"}},
		"internal/archtest":  {},
		"tools/gotest":       {},
		"tools/mutants":      {},
	}
}

// pkg is what "go list -json" says of a package.
type pkg struct {
	ImportPath   string   `json:"ImportPath"`
	Imports      []string `json:"Imports"`
	TestImports  []string `json:"TestImports"`
	XTestImports []string `json:"XTestImports"`
}

func list(t *testing.T) []pkg {
	t.Helper()
	touch(t)
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		errors.As(err, &exit)
		t.Fatalf("%s: %v\n%s", cmd, err, exit.Stderr)
	}
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// touch reads every source file, so that the cached result of this test ends
// when one changes: what go list reads in another process does not count.
func touch(t *testing.T) {
	t.Helper()
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // somebody is editing
		case err != nil:
			return err
		case d.IsDir() && (path == "bin" || path == ".git"):
			return fs.SkipDir
		case strings.HasSuffix(path, ".go"):
			_, err = fs.ReadFile(root, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestImports(t *testing.T) {
	known := rules()
	for _, p := range list(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if strings.HasPrefix(name, "bin/") {
			continue // no part of the repository
		}
		r, ok := known[name]
		if !ok {
			t.Errorf("%s has no rule: say here what it may import", name)
			continue
		}
		for _, imp := range p.Imports {
			if !r.allows(imp, false) {
				t.Errorf("%s must not import %s", name, imp)
			}
		}
		for _, imp := range append(p.TestImports, p.XTestImports...) {
			if imp != p.ImportPath && !r.allows(imp, true) {
				t.Errorf("tests of %s must not import %s", name, imp)
			}
		}
	}
}

// allows says whether a package with this rule may import another.
func (r rule) allows(imp string, inTest bool) bool {
	if first, _, _ := strings.Cut(imp, "/"); !strings.Contains(first, ".") {
		return true // of the standard library, whose paths begin without a dot
	}
	if name, ok := strings.CutPrefix(imp, module+"/"); ok {
		return slices.Contains(r.ours, name) || inTest && slices.Contains(r.tests, name)
	}
	return within(imp, r.others) || inTest && within(imp, r.tests)
}

func within(imp string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		return imp == root || strings.HasPrefix(imp, root+"/")
	})
}

// TestRulesBite: a rule that allowed everything would pass above.
func TestRulesBite(t *testing.T) {
	for _, c := range []struct {
		from, to string
		inTest   bool
		want     bool
	}{
		{"supervisor/lifecycle", "time", false, true},
		{"supervisor/lifecycle", module + "/" + api, false, true},
		{"supervisor/lifecycle", module + "/brokers", false, false},
		{"supervisor/lifecycle", module + "/supervisor", true, false},
		{"supervisor", module + "/brokers/memory", false, false},
		{"supervisor", module + "/brokers/memory", true, true},
		{"supervisor", module + "/brokers/nats", true, false},
		{"supervisor", grpc + "/status", false, false},
		{"supervisor", "go.etcd.io/bbolt", false, false},
		{"supervisor/console", grpc + "/codes", false, false},
		{"supervisor/handlers", grpc + "/status", false, false},
		{"cmd/supervisord", grpc + "/status", false, false},
		{"supervisor/rpc", grpc + "/status", false, true},
		{"brokers/memory", "github.com/nats-io/nats.go", true, false},
		{"brokers/nats", "github.com/nats-io/nats.go/jetstream", false, true},
		{"brokers/nats", "github.com/nats-io/nats.gone", false, false},
		{"brokers/nats", module + "/brokers/brokertest", false, false},
		{"brokers/nats", module + "/brokers/brokertest", true, true},
		{"brokers/nats", module + "/brokers/memory", true, false},
		{"cmd/supctl", module + "/supervisor/spec", false, false},
		{"cmd/supervisord", module + "/brokers/nats", false, true},
	} {
		r, ok := rules()[c.from]
		if !ok {
			t.Errorf("%s has no rule", c.from)
		} else if got := r.allows(c.to, c.inTest); got != c.want {
			t.Errorf("%s imports %s (in a test: %t): allowed %t, want %t", c.from, c.to, c.inTest, got, c.want)
		}
	}
}

// TestArchitectureListsThePackages: the map for readers has the packages that
// the rules have, but those that only check.
func TestArchitectureListsThePackages(t *testing.T) {
	doc, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	known := rules()
	for name := range known {
		if name == "internal/archtest" || strings.HasPrefix(name, "test/") || strings.HasPrefix(name, "tools/") {
			delete(known, name)
		}
	}
	for line := range strings.SplitSeq(string(doc), "\n") {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		for name := range strings.SplitSeq(strings.Split(line, "|")[1], ",") {
			name = strings.Trim(name, " `")
			if _, ok := known[name]; !ok {
				t.Errorf("ARCHITECTURE.md lists %s, which has no rule", name)
			}
			delete(known, name)
		}
	}
	for name := range known {
		t.Errorf("ARCHITECTURE.md does not list %s", name)
	}
}

// TestOnlySupervisordNamesDrivers: a driver is wired in one place, and measured
// in another.
func TestOnlySupervisordNamesDrivers(t *testing.T) {
	for name, r := range rules() {
		for _, o := range r.ours {
			driver := strings.HasPrefix(o, "brokers/") && o != "brokers/brokertest"
			if driver && name != "cmd/supervisord" && name != "bench" {
				t.Errorf("the rules let %s import %s", name, o)
			}
		}
	}
}
