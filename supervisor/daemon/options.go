package daemon

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
	"github.com/seed-111f5b8e/supervisord/proto/endpoint"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"github.com/seed-111f5b8e/supervisord/supervisor/handlers"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
	"github.com/spf13/pflag"
)

// Options are the flags of a daemon.
type Options struct {
	Config, DataDir, Listen, HTTP string
	Apply                         []string
	pprof, httpRemote             bool
}

// Register adds the flags.
func (o *Options) Register(f *pflag.FlagSet) {
	f.StringVar(&o.Config, "config", "", "configuration `file`: connections, limits, shutdown, log")
	f.StringVar(&o.DataDir, "data-dir", "", "`folder` of the state store and of embedded servers (default "+defaultDataDir()+")")
	f.StringVar(&o.Listen, "listen", endpoint.Default(), "API `address`: unix:///path, or host:port with tls in the configuration")
	f.StringVar(&o.HTTP, "http", "127.0.0.1:9600", "`address` of /livez, /readyz and /metrics; \"\" for none")
	f.BoolVar(&o.httpRemote, "http-remote", false, "let --http be an address that other machines reach")
	f.StringSliceVar(&o.Apply, "apply", nil, "`file or folder` of consumer specs to apply at the start")
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

func (p Program) byKind() map[string]brokers.Driver {
	out := map[string]brokers.Driver{}
	for _, d := range p.Drivers {
		out[d.Kind()] = d
	}
	return out
}

func (p Program) kinds(d *spec.Daemon) []supervisor.HandlerKind {
	return []supervisor.HandlerKind{handlers.HTTP(d.HTTP), handlers.Log(), handlers.Go(p.Handlers)}
}

// Env is what specs may refer to under a configuration.
func (p Program) Env(d *spec.Daemon) spec.Env {
	env := spec.Env{Drivers: p.byKind(), Connections: d.Connections, Handlers: map[string]spec.HandlerKind{}}
	for _, h := range p.kinds(d) {
		env.Handlers[h.Kind()] = h
	}
	return env
}

// loadConfig reads and checks the configuration; "" is an empty one.
func (p Program) loadConfig(path string) (*spec.Daemon, error) {
	if path == "" {
		d, _ := spec.CheckDaemon(nil, p.byKind()) // an empty one has no faults
		return d, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return spec.LoadDaemon(spec.File{Name: path, Data: data}, p.byKind())
}

// ReadSpecs reads files, and of folders their *.yaml, *.yml and *.json.
func ReadSpecs(paths []string) ([]spec.File, error) {
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
func applyRequest(reason string, specs []*spec.Consumer) *pb.ApplyRequest {
	r := &pb.ApplyRequest{Reason: reason}
	for _, c := range specs {
		r.Items = append(r.Items, &pb.ApplyItem{Spec: c.Written})
	}
	return r
}
