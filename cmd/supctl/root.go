package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
)

// app is one run of supctl.
type app struct {
	env   *environment
	flags globals
	// started: the command line was understood, errors are no longer about it.
	started bool
	// documents counts what was printed as YAML.
	documents int
}

// run carries out one command line. What it returns has been told to nobody
// yet but for a failure without an error; see report.
func run(ctx context.Context, args []string, env *environment) error {
	a := &app{env: env}
	root := a.root() //nolint:contextcheck // Commands take the context that cobra hands them when they run.
	root.SetArgs(args)
	root.SetIn(env.stdin)
	root.SetOut(env.stdout)
	root.SetErr(env.stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if _, ok := errors.AsType[*failure](err); err != nil && !a.started && !ok {
		return failf(exitUsage, "%w\nRun '%s --help' for usage.", err, cmd.CommandPath())
	}
	return err
}

// report tells the user about err and gives the exit status that says it to
// scripts.
func report(env *environment, err error) exit {
	if err != nil && !told(err) {
		complain(env.stderr, err)
	}
	return exitOf(err)
}

func complain(w io.Writer, err error) { fmt.Fprintf(w, "supctl: %s\n", err) }

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "supctl",
		Short: "Move the message consumers of a supervisord",
		Long: `supctl lists, applies, pauses, drains, resumes, scales, stops and kills the
message consumers that a supervisord hosts.

Exit status: 0 done or nothing to do, 1 other failure, 2 wrong command line or
file, 3 not in the state asked for, 4 not found, 5 denied, 6 daemon unreachable,
7 conflict or refused in this state, 8 --timeout ended and the operation goes
on, 9 ended by force, 10 some of several failed, 130 interrupted and the
operation goes on.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          subcommand,
		RunE:          help,
	}
	root.AddGroup(
		&cobra.Group{ID: groupLook, Title: "Look:"},
		&cobra.Group{ID: groupMove, Title: "Move:"},
		&cobra.Group{ID: groupSpec, Title: "Specs:"},
	)
	a.flags.register(root.PersistentFlags())
	a.completeGlobals(root)
	for id, cmds := range map[string][]*cobra.Command{
		groupLook: {newList(a), newGet(a), newDescribe(a), newWatch(a), newWait(a), newEvents(a), newInFlight(a), newReceipt(a), newServer(a)},
		groupMove: {newStart(a), newPause(a), newResume(a), newDrain(a), newStop(a), newRestart(a), newKill(a), newScale(a), newSeek(a), newDelete(a)},
		groupSpec: {newApply(a), newDiff(a), newValidate(a), newExport(a)},
		"":        {newContext(a), newVersion(a)},
	} {
		for _, c := range cmds {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	return root
}

// Groups of commands in the help.
const (
	groupLook = "look"
	groupMove = "move"
	groupSpec = "spec"
)

// subcommand is the Args of a command that only holds others.
func subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	msg := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	if near := nearest(args[0], names(cmd.Commands(), (*cobra.Command).Name)); near != "" {
		msg += fmt.Sprintf(": did you mean %q?", near)
	}
	return errors.New(msg)
}

func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// runE is the body of a command: it has the daemon's client and the client
// timeout.
type runE func(ctx context.Context, c *client, args []string) error

// with makes a cobra body of f.
func (a *app) with(f runE) func(*cobra.Command, []string) error {
	return a.local(func(ctx context.Context, args []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		defer c.close()
		return f(ctx, c, args)
	})
}

// local makes a cobra body of f that needs no daemon.
func (a *app) local(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.started = true
		ctx := cmd.Context()
		if d := a.flags.timeout; d > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, d, timeoutError{d})
			defer cancel()
		}
		return f(ctx, args)
	}
}

// timeoutError is the cause of a context that --timeout ended.
type timeoutError struct{ after time.Duration }

func (e timeoutError) Error() string { return fmt.Sprintf("--timeout %s ended", e.after) }
