package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-111f5b8e/supervisord/proto/endpoint"
)

func TestContexts(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/1")
	c := newConsole(t, nil)
	for _, args := range [][]string{
		{"context", "set", "prod", "--addr", "prod.example:7070", "-n", "shop", "--tls-ca", "ca.pem"},
		{"context", "set", "local", "--addr", "/run/x.sock"},
		{"context", "use", "prod"},
		{"context", "list"},
	} {
		if got := c.supctl(args...); got != exitOK {
			t.Fatalf("%v: exit status %d\n%s", args, got, c.err.String())
		}
	}
	golden(t, "contexts", c.out.String())
	file := filepath.Join(c.configDir, "supctl", "contexts.yaml")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if left, err := filepath.Glob(filepath.Join(c.configDir, "supctl", "*")); err != nil || len(left) != 1 {
		t.Errorf("files left: %v, %v", left, err)
	}
}

func TestContextRefuses(t *testing.T) {
	c := newConsole(t, nil)
	if got := c.supctl("context", "set", "prod", "--addr", "prod:1"); got != exitOK {
		t.Fatal(c.err.String())
	}
	for want, args := range map[string][]string{
		`did you mean "prod"?`:         {"context", "use", "prd"},
		"say where the daemon is":      {"context", "set", "x"},
		"cannot be set":                {"context", "set", "default", "--addr", "a:1"},
		"HOST:PORT":                    {"context", "set", "x", "--addr", "nonsense"},
		"accepts 1 arg(s)":             {"context", "set"},
		`unknown command "rm"`:         {"context", "rm"},
		"give one of them":             {"list", "--addr", "a:1", "--context", "prod"},
		`no context "other"`:           {"list", "--context", "other"},
		"-n and -A exclude each other": {"list", "-n", "shop", "-A"},
	} {
		if got := c.supctl(args...); got != exitUsage || !strings.Contains(c.err.String(), want) {
			t.Errorf("%v: exit status %d: %s; want %q", args, got, c.err.String(), want)
		}
	}
}

func TestWhichDaemon(t *testing.T) {
	for _, c := range []struct {
		name string
		env  map[string]string
		set  func(*globals)
		want settings
	}{
		{"nothing said", nil, func(*globals) {}, settings{Addr: "unix:///current.sock", Namespace: "shop"}},
		{"a flag", map[string]string{"SUPCTL_ADDR": "env:1"}, func(g *globals) { g.addr = "flag:1" }, settings{Addr: "flag:1"}},
		{"the environment", map[string]string{"SUPCTL_ADDR": "env:1", "SUPCTL_CONTEXT": "tcp"}, func(*globals) {}, settings{Addr: "env:1"}},
		{"a context named outranks the environment", map[string]string{"SUPCTL_ADDR": "env:1"}, func(g *globals) { g.context = "tcp" },
			settings{Addr: "tcp://prod:1", TLS: tlsFiles{CA: "/ca", Cert: "/cert", Key: "/key"}}},
		{"a context of the environment", map[string]string{"SUPCTL_CONTEXT": "tcp"}, func(g *globals) { g.tls.CA = "/other"; g.namespace = "n" },
			settings{Addr: "tcp://prod:1", Namespace: "n", TLS: tlsFiles{CA: "/other", Cert: "/cert", Key: "/key"}}},
		{"the default", nil, func(g *globals) { g.context = "default" }, settings{Addr: endpoint.Default()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &app{env: newConsole(t, c.env).environment}
			err := a.writeContexts(contexts{Current: "current", Contexts: map[string]settings{
				"current": {Addr: "unix:///current.sock", Namespace: "shop"},
				"tcp":     {Addr: "tcp://prod:1", TLS: tlsFiles{CA: "/ca", Cert: "/cert", Key: "/key"}},
			}})
			if err != nil {
				t.Fatal(err)
			}
			c.set(&a.flags)
			if got, err := a.settings(); err != nil || got != c.want {
				t.Errorf("got %+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

func TestABrokenContextsFileIsNotOverwritten(t *testing.T) {
	c := newConsole(t, nil)
	file := filepath.Join(c.configDir, "supctl", "contexts.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	const broken = "contexts: {prod: {adr: x}}\n"
	if err := os.WriteFile(file, []byte(broken), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := c.supctl("context", "set", "x", "--addr", "a:1"); got != exitUsage || !strings.Contains(c.err.String(), "field adr not found") {
		t.Errorf("exit status %d: %s", got, c.err.String())
	}
	if left, err := os.ReadFile(file); err != nil || string(left) != broken {
		t.Errorf("%q, %v", left, err)
	}
}
