package main

import (
	"context"
	"slices"
	"strings"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/spf13/cobra"
)

// The command "completion" is cobra's own; here is what it completes with.

// completionTimeout is what a Tab may cost when the daemon does not answer.
const completionTimeout = 700 * time.Millisecond

// lookup asks the daemon something for a completion; no answer is no
// completion.
func (a *app) lookup(cmd *cobra.Command, ask func(ctx context.Context, c *client) ([]string, error)) []string {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	c, err := a.connect()
	if err != nil {
		return nil
	}
	defer c.close()
	found, err := ask(ctx, c)
	if err != nil {
		return nil
	}
	return found
}

func only(found []string, prefix string, but []string) []string {
	return slices.DeleteFunc(found, func(s string) bool { return !strings.HasPrefix(s, prefix) || slices.Contains(but, s) })
}

// completeNames completes any number of consumers, each once.
func (a *app) completeNames(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	found := a.lookup(cmd, func(ctx context.Context, c *client) ([]string, error) {
		ns, within := "", ""
		if namespace, _, ok := strings.Cut(prefix, "/"); ok {
			ns, within = namespace, namespace+"/"
		} else if s, err := a.namespace(); err == nil {
			ns = s
		}
		known, err := c.known(ctx, ns)
		for i := range known {
			known[i] = within + known[i]
		}
		return known, err
	})
	return only(found, prefix, args), cobra.ShellCompDirectiveNoFileComp
}

// completeName completes one consumer.
func (a *app) completeName(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeNames(cmd, args, prefix)
}

func (a *app) completeReceipt(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return a.completeName(cmd, args, prefix)
	}
	found := a.lookup(cmd, func(ctx context.Context, c *client) ([]string, error) {
		k, err := a.key(args[0])
		if err != nil {
			return nil, err
		}
		r, err := c.consumers.ListReceipts(ctx, &pb.ListReceiptsRequest{Namespace: k.namespace, Name: k.name})
		return names(r.GetReceipts(), (*pb.Receipt).GetId), err
	})
	return only(found, prefix, nil), cobra.ShellCompDirectiveNoFileComp
}

func (a *app) completeInFlight(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return a.completeName(cmd, args, prefix)
	case 1:
		return only([]string{"cancel"}, prefix, nil), cobra.ShellCompDirectiveNoFileComp
	}
	found := a.lookup(cmd, func(ctx context.Context, c *client) ([]string, error) {
		k, err := a.key(args[0])
		if err != nil {
			return nil, err
		}
		r, err := c.consumers.ListInFlight(ctx, &pb.ListInFlightRequest{Namespace: k.namespace, Name: k.name})
		return names(r.GetMessages(), (*pb.InFlightMessage).GetId), err
	})
	return only(found, prefix, args[2:]), cobra.ShellCompDirectiveNoFileComp
}

// completeContexts completes the names of contexts.
func (a *app) completeContexts(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	all, err := a.readContexts()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return only(append(all.names(), defaultContext), prefix, nil), cobra.ShellCompDirectiveNoFileComp
}
