package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/seed-111f5b8e/supervisord/proto/endpoint"
	"github.com/spf13/cobra"
)

func newContext(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "context",
		Short: "Name daemons and choose one",
		Long: `A context is a name for a daemon: its address, a namespace and TLS files. They
stand in supctl/contexts.yaml in the user's folder for configuration. The
context "default" is this user's own daemon and needs no entry.`,
		Args: subcommand,
		RunE: help,
	}
	cmd.AddCommand(newContextList(a), newContextUse(a), newContextSet(a))
	return cmd
}

func newContextList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the contexts; * marks the current one",
		Args:  cobra.NoArgs,
		RunE: a.local(func(context.Context, []string) error {
			all, err := a.readContexts()
			if err != nil {
				return err
			}
			all.Contexts = merged(all.Contexts, defaultContext, settings{Addr: endpoint.Default()})
			current := all.Current
			if current == "" {
				current = defaultContext
			}
			t := table{titles: []string{"", "NAME", "ADDR", "NAMESPACE"}}
			var plain []any
			for _, name := range all.names() {
				s, mark := all.Contexts[name], ""
				if name == current {
					mark = "*"
				}
				t.add(text(mark), text(name), text(s.Addr), text(orDash(s.Namespace)))
				plain = append(plain, contextView{name, name == current, s.Addr, s.Namespace, s.TLS})
			}
			return a.print(view{whole: map[string]any{"contexts": plain}, items: plain, names: all.names(), table: func(bool) table { return t }})
		}),
	}
}

// contextView is a context in JSON and YAML.
type contextView struct {
	Name      string   `yaml:"name" json:"name"`
	Current   bool     `yaml:"current" json:"current"`
	Addr      string   `yaml:"addr" json:"addr"`
	Namespace string   `yaml:"namespace,omitempty" json:"namespace,omitempty"`
	TLS       tlsFiles `yaml:"tls,omitempty" json:"tls,omitzero"`
}

func newContextUse(a *app) *cobra.Command {
	return &cobra.Command{
		Use:               "use NAME",
		Short:             "Make a context the current one",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeContexts,
		RunE: a.local(func(_ context.Context, args []string) error {
			all, err := a.readContexts()
			if err != nil {
				return err
			}
			if _, ok := all.Contexts[args[0]]; !ok && args[0] != defaultContext {
				return unknownContext(args[0], all)
			}
			all.Current = args[0]
			return a.writeContexts(all)
		}),
	}
}

func newContextSet(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "set NAME --addr ADDR [-n NAMESPACE] [--tls-ca FILE] [--tls-cert FILE --tls-key FILE] [--tls-server-name NAME]",
		Short: "Make or replace a context",
		Args:  cobra.ExactArgs(1),
		RunE: a.local(func(_ context.Context, args []string) error {
			switch {
			case args[0] == defaultContext:
				return failf(exitUsage, "the context %q is this user's own daemon and cannot be set: take another name", defaultContext)
			case a.flags.addr == "":
				return failf(exitUsage, "say where the daemon is with --addr")
			}
			e, err := endpoint.Parse(a.flags.addr)
			if err != nil {
				return failf(exitUsage, "%w", err)
			}
			s := settings{Addr: e.String(), Namespace: a.flags.namespace, TLS: a.flags.tls}
			// A file named from here is to be found from anywhere.
			for _, f := range []*string{&s.TLS.CA, &s.TLS.Cert, &s.TLS.Key} {
				if *f == "" {
					continue
				}
				if *f, err = filepath.Abs(*f); err != nil {
					return fmt.Errorf("context: %w", err)
				}
			}
			all, err := a.readContexts()
			if err != nil {
				return err
			}
			all.Contexts = merged(all.Contexts, args[0], s)
			return a.writeContexts(all)
		}),
	}
}

func merged(m map[string]settings, name string, s settings) map[string]settings {
	out := map[string]settings{name: s}
	for k, v := range m {
		if k != name {
			out[k] = v
		}
	}
	return out
}
