package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// globals are the flags of every command.
type globals struct {
	addr, context, namespace string
	tls                      tlsFiles
	output                   choice
	noHeaders, noColor       bool
	timeout                  time.Duration
}

// tlsFiles are PEM files for a TCP address.
type tlsFiles struct {
	CA         string `yaml:"ca,omitempty" json:"ca,omitempty"`
	Cert       string `yaml:"cert,omitempty" json:"cert,omitempty"`
	Key        string `yaml:"key,omitempty" json:"key,omitempty"`
	ServerName string `yaml:"server_name,omitempty" json:"server_name,omitempty"`
}

// Forms of output.
const (
	outTable = "table"
	outWide  = "wide"
	outJSON  = "json"
	outYAML  = "yaml"
	outJSONL = "jsonl"
	outName  = "name"
)

func (g *globals) register(f *pflag.FlagSet) {
	f.StringVar(&g.addr, "addr", "", "`ADDR` of the daemon: a socket's path or HOST:PORT (default $SUPCTL_ADDR, then the context, then this user's socket)")
	f.StringVar(&g.context, "context", "", "use the context `NAME` instead of the current one (default $SUPCTL_CONTEXT)")
	f.StringVarP(&g.namespace, "namespace", "n", "", "`NAME` of the consumers' namespace (default: the context's, then \"default\")")
	f.StringVar(&g.tls.CA, "tls-ca", "", "`FILE` with the authorities that the daemon's certificate is checked against (default: the system's)")
	f.StringVar(&g.tls.Cert, "tls-cert", "", "`FILE` with the client certificate")
	f.StringVar(&g.tls.Key, "tls-key", "", "`FILE` with the client certificate's key")
	f.StringVar(&g.tls.ServerName, "tls-server-name", "", "`NAME` that the daemon's certificate must have (default: the host of the address)")
	g.output = choice{value: outTable, of: []string{outTable, outWide, outJSON, outYAML, outJSONL, outName}}
	f.VarP(&g.output, "output", "o", "form of the output, a `WORD`: "+strings.Join(g.output.of, ", "))
	f.BoolVar(&g.noHeaders, "no-headers", false, "print tables without the line of titles")
	f.BoolVar(&g.noColor, "no-color", false, "no colours (default on a terminal: colours, unless $NO_COLOR is set)")
	f.DurationVar(&g.timeout, "timeout", 0, "give up after this `DURATION`; what the daemon has accepted goes on (default: calls 30s, waiting for ever)")
}

// choice is a flag with few legal values.
type choice struct {
	value string
	of    []string
}

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return "WORD" }

func (c *choice) Set(s string) error {
	if !slices.Contains(c.of, s) {
		return fmt.Errorf("must be one of %s", strings.Join(c.of, ", "))
	}
	c.value = s
	return nil
}

func (a *app) completeGlobals(root *cobra.Command) {
	must(root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(a.flags.output.of, cobra.ShellCompDirectiveNoFileComp)))
	must(root.RegisterFlagCompletionFunc("context", a.completeContexts))
}

// must is for errors that only a mistake in the code itself can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
