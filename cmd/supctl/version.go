package main

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/spf13/cobra"
)

// versions are those of both sides, in JSON and YAML.
type versions struct {
	Client string `yaml:"client" json:"client"`
	// Server is empty when it could not be asked.
	Server string `yaml:"server,omitempty" json:"server,omitempty"`
}

func newVersion(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of supctl and, when it can be reached, of the daemon",
		Args:  cobra.NoArgs,
		RunE: a.with(func(ctx context.Context, c *client, _ []string) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			v := versions{Client: version()}
			if r, err := c.server.GetServerInfo(ctx, &pb.GetServerInfoRequest{}); err == nil {
				v.Server = r.GetVersion()
			}
			return a.print(view{
				whole: v, items: []any{v}, names: []string{v.Client},
				lines: func(w io.Writer) {
					fmt.Fprintf(w, "supctl %s\n", v.Client)
					server := v.Server
					if server == "" {
						server = "not reached at " + c.address.String()
					}
					fmt.Fprintf(w, "supervisord %s\n", oneLine(server))
				},
			})
		}),
	}
}

// version is that of the module, else the commit it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(12, len(s.Value))]
		}
	}
	return "devel"
}
