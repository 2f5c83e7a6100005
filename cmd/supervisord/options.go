package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	"github.com/seed-111f5b8e/supervisord/brokers/nats"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"github.com/seed-111f5b8e/supervisord/supervisor/handlers"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
	"github.com/spf13/pflag"
)

// options are the flags of serve and demo.
type options struct {
	config, dataDir, listen, http string
	apply                         []string
	pprof, httpRemote             bool
}

func (o *options) register(f *pflag.FlagSet, listen string) {
	f.StringVar(&o.config, "config", "", "configuration `file`: connections, limits, shutdown, log")
	f.StringVar(&o.dataDir, "data-dir", "", "`folder` of the state store and of embedded servers (default "+defaultDataDir()+")")
	f.StringVar(&o.listen, "listen", listen, "API `address`: unix:///path, or host:port with tls in the configuration")
	f.StringVar(&o.http, "http", "127.0.0.1:9600", "`address` of /livez, /readyz and /metrics; \"\" for none")
	f.BoolVar(&o.httpRemote, "http-remote", false, "let --http be an address that other machines reach")
	f.StringSliceVar(&o.apply, "apply", nil, "`file or folder` of consumer specs to apply at the start")
	f.BoolVar(&o.pprof, "pprof", false, "also serve /debug/pprof there")
}

// defaultDataDir is for the system's daemon with root, else the user's own.
func defaultDataDir() string {
	if os.Geteuid() == 0 {
		return "/var/lib/supervisord"
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "supervisord")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return filepath.Join(os.TempDir(), "supervisord-state")
	}
	return filepath.Join(home, ".local", "state", "supervisord")
}

// parts are the brokers and handlers of this program.
type parts struct {
	drivers  []brokers.Driver
	byKind   map[string]brokers.Driver
	handlers []supervisor.HandlerKind
}

// newDrivers lists every broker this program speaks to; nothing else names one.
func newDrivers() ([]brokers.Driver, map[string]brokers.Driver) {
	all := []brokers.Driver{&memory.Driver{}, nats.Driver{}}
	byKind := map[string]brokers.Driver{}
	for _, d := range all {
		byKind[d.Kind()] = d
	}
	return all, byKind
}

func newParts(d *spec.Daemon, drivers []brokers.Driver, byKind map[string]brokers.Driver, more ...supervisor.HandlerKind) *parts {
	return &parts{
		drivers: drivers, byKind: byKind,
		handlers: append([]supervisor.HandlerKind{handlers.HTTP(d.HTTP), handlers.Log()}, more...),
	}
}

func (p *parts) env(d *spec.Daemon) spec.Env {
	env := spec.Env{Drivers: p.byKind, Connections: d.Connections, Handlers: map[string]spec.HandlerKind{}}
	for _, h := range p.handlers {
		env.Handlers[h.Kind()] = h
	}
	return env
}

// loadConfig reads and checks the configuration; "" is an empty one.
func loadConfig(path string, byKind map[string]brokers.Driver) (*spec.Daemon, error) {
	if path == "" {
		return spec.LoadDaemon(spec.File{Name: "(no configuration)"}, byKind)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return spec.LoadDaemon(spec.File{Name: path, Data: data}, byKind)
}

// readSpecs reads files, and of folders their *.yaml, *.yml and *.json.
func readSpecs(paths []string) ([]spec.File, error) {
	var out []spec.File
	var errs []error
	for _, p := range paths {
		files, err := expand(p)
		errs = append(errs, err)
		for _, f := range files {
			data, err := os.ReadFile(f)
			errs = append(errs, err)
			out = append(out, spec.File{Name: f, Data: data})
		}
	}
	return out, errors.Join(errs...)
}

func expand(path string) ([]string, error) {
	st, err := os.Stat(path)
	if err != nil || !st.IsDir() {
		return []string{path}, err
	}
	var out []string
	err = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(p))) {
			out = append(out, p)
		}
		return err
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%s: no *.yaml, *.yml or *.json in this folder", path)
	}
	return out, err
}

func newLog(d *spec.Daemon, w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: d.LogLevel}
	if d.LogJSON {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// applyRequest is what `serve --apply` applies: the same as supctl would.
func applyRequest(specs []*spec.Consumer) *pb.ApplyRequest {
	r := &pb.ApplyRequest{Reason: "serve --apply"}
	for _, c := range specs {
		r.Items = append(r.Items, &pb.ApplyItem{Spec: c.Written})
	}
	return r
}
