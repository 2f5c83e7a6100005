package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/seed-111f5b8e/supervisord/proto/endpoint"
	"go.yaml.in/yaml/v3"
)

// defaultContext is the name for "no context": this user's own daemon.
const defaultContext = "default"

// contexts is the user's file of daemons.
type contexts struct {
	Current  string              `yaml:"current,omitempty"`
	Contexts map[string]settings `yaml:"contexts,omitempty"`
}

// settings say which daemon is meant and how to reach it.
type settings struct {
	Addr      string   `yaml:"addr"`
	Namespace string   `yaml:"namespace,omitempty"`
	TLS       tlsFiles `yaml:"tls,omitempty"`
}

// settings puts together what flags, environment and the context say. An
// address that is named directly leaves the context out altogether, so that
// one daemon's certificates never go to another.
func (a *app) settings() (settings, error) {
	s, err := a.base()
	if err != nil {
		return s, err
	}
	over := func(to *string, from string) {
		if from != "" {
			*to = from
		}
	}
	over(&s.Namespace, a.flags.namespace)
	over(&s.TLS.CA, a.flags.tls.CA)
	over(&s.TLS.Cert, a.flags.tls.Cert)
	over(&s.TLS.Key, a.flags.tls.Key)
	over(&s.TLS.ServerName, a.flags.tls.ServerName)
	return s, nil
}

func (a *app) base() (settings, error) {
	name := a.flags.context
	switch {
	case a.flags.addr != "" && name != "":
		return settings{}, failf(exitUsage, "--addr and --context both name a daemon: give one of them")
	case a.flags.addr != "":
		return settings{Addr: a.flags.addr}, nil
	case name == "" && a.env.getenv("SUPCTL_ADDR") != "":
		return settings{Addr: a.env.getenv("SUPCTL_ADDR")}, nil
	case name == "":
		name = a.env.getenv("SUPCTL_CONTEXT")
	}
	all, err := a.readContexts()
	if err != nil {
		return settings{}, err
	}
	if name == "" {
		name = all.Current
	}
	if name == "" || name == defaultContext {
		return settings{Addr: endpoint.Default()}, nil
	}
	s, ok := all.Contexts[name]
	if !ok {
		return settings{}, unknownContext(name, all)
	}
	return s, nil
}

func unknownContext(name string, all contexts) error {
	return failf(exitUsage, "no context %q; see 'supctl context list' or make it with 'supctl context set %s --addr ADDR'%s",
		name, name, didYouMean(name, all.names()))
}

// names lists the contexts in order, without the default.
func (c contexts) names() []string {
	var out []string
	for name := range c.Contexts {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

func (a *app) contextsFile() (string, error) {
	if a.env.configDir == "" {
		return "", errors.New("no folder for the user's configuration: set $HOME or $XDG_CONFIG_HOME")
	}
	return filepath.Join(a.env.configDir, "supctl", "contexts.yaml"), nil
}

// readContexts reads the file; a missing one has no contexts.
func (a *app) readContexts() (contexts, error) {
	var c contexts
	file, err := a.contextsFile()
	if err != nil {
		return c, nil //nolint:nilerr // Without a folder there are no contexts; only writing one needs it.
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("contexts: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, failf(exitUsage, "%s: %w: correct the file or remove it", file, err)
	}
	return c, nil
}

// writeContexts replaces the file in one step.
func (a *app) writeContexts(c contexts) error {
	file, err := a.contextsFile()
	if err != nil {
		return err
	}
	data, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	f, err := os.CreateTemp(dir, "contexts-*")
	if err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	if err := os.Rename(f.Name(), file); err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	return nil
}
