package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/spf13/cobra"
)

func newServer(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Look at the daemon itself",
		Args:  subcommand,
		RunE:  help,
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "info",
		Short: "Show the daemon's version, consumers and connections",
		Args:  cobra.NoArgs,
		RunE: a.with(func(ctx context.Context, c *client, _ []string) error {
			r, err := c.server.GetServerInfo(ctx, &pb.GetServerInfoRequest{})
			if err != nil {
				return err
			}
			return a.print(view{
				whole: r, items: []any{r}, names: []string{c.address.String()},
				lines: func(w io.Writer) { a.writeServer(w, c, r) },
			})
		}),
	})
	return cmd
}

func (a *app) writeServer(w io.Writer, c *client, r *pb.GetServerInfoResponse) {
	var f fields
	f.add("Address", c.address.String())
	f.add("Version", r.GetVersion())
	f.add("Started", since(r.GetStarted(), a.env.now()))
	f.add("Consumers", strings.Join(append([]string{strconv.Itoa(int(r.GetConsumers()))}, stateCounts(r.GetStates())...), ", "))
	f.add("Drivers", strings.Join(r.GetDrivers(), ", "))
	if r.GetShuttingDown() {
		f.add("Now", "shutting down")
	}
	if !r.GetStoreWritable() {
		f.add("Store", "cannot be written: only pause, stop and kill work, and are forgotten when the daemon ends")
	}
	section(w, a.color(), "", f)
	if len(r.GetConnections()) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := table{titles: []string{"CONNECTION", "BROKER", "CONNECTED", "CONSUMERS", "REASON"}, noHeaders: a.flags.noHeaders}
	for _, x := range r.GetConnections() {
		connected := painted(red, "no")
		if x.GetConnected() {
			connected = painted(green, "yes")
		}
		t.add(text(x.GetName()), text(x.GetDriver()), connected, text(strconv.Itoa(int(x.GetConsumers()))), text(x.GetReason()))
	}
	t.write(w, a.color())
}

func stateCounts(m map[string]int32) []string {
	var out []string
	for _, state := range slices.Sorted(maps.Keys(m)) {
		if m[state] > 0 {
			out = append(out, fmt.Sprintf("%d %s", m[state], state))
		}
	}
	return out
}
