package main

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"strings"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// confirm asks on the terminal, showing what is meant. What a selector matches
// is counted first, and the count is then part of the request, so that exactly
// what was confirmed is done.
func (a *app) confirm(ctx context.Context, c *client, v *verb, targets []*pb.Target, why string) error {
	if v.mutation.yes {
		return nil
	}
	if !a.env.stdinTTY || !a.env.stderrTTY {
		return failf(exitUsage, "%s: it %s: confirm it with --yes", verbWord(v.id), why)
	}
	who := v.selection.names
	if v.selection.bulk() {
		list, err := a.resolve(ctx, c, &v.selection)
		if err != nil {
			return err
		}
		who = names(list, func(x *pb.Consumer) string { return keyOf(x).String() })
		targets[0].ExpectedCount = new(int32(min(len(list), math.MaxInt32)))
	}
	fmt.Fprintf(a.env.stderr, "%s of %d: %s\nIt %s. Go on? [y/N] ", verbWord(v.id), len(who), listed(who), why)
	answer := make(chan string, 1)
	// Nothing can end a read of a terminal; after an interrupt the process ends.
	go func() {
		line, _ := bufio.NewReader(a.env.stdin).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case s := <-answer:
		if s == "y" || s == "yes" {
			return nil
		}
		return failf(exitGeneral, "not confirmed, nothing was done")
	case <-ctx.Done():
		fmt.Fprintln(a.env.stderr)
		return failf(exitInterrupted, "interrupted, nothing was done")
	}
}

// listed joins the first few of many names.
func listed(names []string) string {
	const most = 10
	s := strings.Join(names[:min(most, len(names))], ", ")
	if more := len(names) - most; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return oneLine(s)
}
