package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// verb is a command that moves consumers.
type verb struct {
	id  pb.Verb
	cmd *cobra.Command
	// waits: the command ends with the receipt unless --detach.
	waits bool
	// dangerous tells whether this run needs a yes, and why; nil: never.
	dangerous func(s *selection) (why string)
	// call makes the request, once for each namespace.
	call func(ctx context.Context, c *client, t *pb.Target, o *pb.VerbOptions) ([]*pb.VerbResult, error)

	selection selection
	mutation  mutation
	detach    bool
}

// mutation is the flags of every command that changes something.
type mutation struct {
	reason, requestID, etag string
	dryRun, yes             bool
	// expect may be anyCount.
	expect int32
}

// flags are those that also make sense with exactly one consumer.
func (m *mutation) flags(f *pflag.FlagSet) {
	f.StringVar(&m.reason, "reason", "", "`TEXT` that says why; shown to whoever looks")
	f.StringVar(&m.requestID, "request-id", "", "a repeated request with the same `ID` gets the first one's reply (default: a new one)")
	f.StringVar(&m.etag, "etag", "", "refuse when the consumer changed since it had this `ETAG`; one NAME only")
	f.BoolVar(&m.dryRun, "dry-run", false, "say what would happen and change nothing")
}

// anyCount expects no certain number.
const anyCount = -1

// command completes v.cmd with what all verbs have in common.
func (a *app) command(v *verb) *cobra.Command {
	v.selection.flags(v.cmd)
	f := v.cmd.Flags()
	v.mutation.flags(f)
	f.Int32Var(&v.mutation.expect, "expect-count", 0, "refuse unless exactly `N` consumers are meant")
	f.BoolVar(&v.mutation.yes, "yes", false, "do not ask for a confirmation")
	if v.waits {
		f.BoolVar(&v.detach, "detach", false, "return when it is accepted instead of when it is done")
	}
	v.cmd.ValidArgsFunction = a.completeNames
	v.cmd.RunE = a.with(func(ctx context.Context, c *client, args []string) error {
		v.selection.names = args
		if !f.Changed("expect-count") {
			v.mutation.expect = anyCount
		}
		return a.runVerb(ctx, c, v)
	})
	return v.cmd
}

func (a *app) runVerb(ctx context.Context, c *client, v *verb) error {
	targets, err := a.targets(&v.selection, v.mutation.expect)
	if err != nil {
		return err
	}
	if err := v.mutation.check(targets); err != nil {
		return err
	}
	if v.dangerous != nil && !v.mutation.dryRun {
		if why := v.dangerous(&v.selection); why != "" {
			if err := a.confirm(ctx, c, v, targets, why); err != nil {
				return err
			}
		}
	}
	results, err := a.callAll(ctx, c, v, targets)
	if err != nil {
		return err
	}
	errs := a.itemErrors(ctx, c, results)
	if v.waits && !v.detach && !v.mutation.dryRun {
		waitErrs, err := a.await(ctx, c, v, results)
		if err != nil {
			return errors.Join(err, a.printResults(v, results))
		}
		errs = append(errs, waitErrs...)
	}
	if err := a.printResults(v, results); err != nil {
		return err
	}
	return a.together(errs, len(results))
}

// check refuses flags that do not go with these targets.
func (m *mutation) check(targets []*pb.Target) error {
	one := len(targets) == 1 && len(targets[0].GetNames()) == 1
	switch {
	case m.etag != "" && !one:
		return failf(exitUsage, "--etag goes with a single NAME")
	case m.requestID != "" && len(targets) > 1:
		return failf(exitUsage, "--request-id goes with consumers of a single namespace")
	}
	return nil
}

func (m *mutation) options() *pb.VerbOptions {
	id := m.requestID
	if id == "" {
		id = rand.Text()
	}
	return &pb.VerbOptions{Reason: m.reason, RequestId: id, DryRun: m.dryRun, Etag: m.etag}
}

// callAll makes the calls. With several, the failure of one is kept as the
// result of its names, so that the others are not hidden by it.
func (a *app) callAll(ctx context.Context, c *client, v *verb, targets []*pb.Target) ([]*pb.VerbResult, error) {
	var results []*pb.VerbResult
	for _, t := range targets {
		got, err := v.call(ctx, c, t, v.mutation.options())
		if err != nil && len(targets) == 1 {
			if len(t.GetNames()) == 1 {
				err = c.suggest(ctx, key{t.GetNamespace(), t.GetNames()[0]}, err)
			}
			return nil, err
		}
		if err != nil {
			for _, n := range t.GetNames() {
				got = append(got, &pb.VerbResult{Namespace: t.GetNamespace(), Name: n, Error: asItem(err)})
			}
		}
		results = append(results, got...)
	}
	return results, nil
}

// itemErrors gives the failures among results.
func (a *app) itemErrors(ctx context.Context, c *client, results []*pb.VerbResult) []error {
	var errs []error
	for _, r := range results {
		if r.GetError() == nil {
			continue
		}
		err := c.suggest(ctx, key{r.GetNamespace(), r.GetName()}, itemError(r.GetError()))
		errs = append(errs, fmt.Errorf("%s: %w", r.GetName(), err))
	}
	return errs
}

// await waits for the receipts. The error is ctx's or the stream's; those of
// single consumers come in the slice.
func (a *app) await(ctx context.Context, c *client, v *verb, results []*pb.VerbResult) ([]error, error) {
	w := newWaiter(c, v.id, results, a.progress())
	if err := w.run(ctx); err != nil {
		left := names(w.left(), func(p *pending) string { return p.key.name })
		return nil, goesOn(err, verbWord(v.id), left)
	}
	var errs []error
	for _, p := range w.items {
		if p.err == nil && p.result.GetReceipt() != nil {
			p.err = receiptFailure(p.key.name, p.result.GetReceipt())
		}
		if p.err != nil {
			errs = append(errs, p.err)
		}
	}
	return errs, nil
}

// goesOn says that the end of a wait is not the end of what is waited for.
func goesOn(err error, what string, left []string) error {
	of := strings.Join(left[:min(3, len(left))], ", ")
	if n := len(left) - 3; n > 0 {
		of += fmt.Sprintf(" and %d more", n)
	}
	next := fmt.Sprintf("the %s of %s goes on: follow it with 'supctl watch %s'", what, of, strings.Join(left[:min(3, len(left))], " "))
	switch {
	case timedOut(err):
		return failf(exitTimeout, "%w, %s", err, next)
	case errors.Is(err, context.Canceled):
		return failf(exitInterrupted, "interrupted, %s", next)
	}
	return err
}

// printResults shows what a verb did; failures are told on stderr instead.
func (a *app) printResults(v *verb, results []*pb.VerbResult) error {
	several := a.severalNamespaces(results)
	name := func(r *pb.VerbResult) string {
		if several {
			return key{r.GetNamespace(), r.GetName()}.String()
		}
		return r.GetName()
	}
	var ok []*pb.VerbResult
	for _, r := range results {
		if r.GetError() == nil {
			ok = append(ok, r)
		}
	}
	a.warnNotDurable(v, ok)
	if len(results) == 0 && a.human() {
		return a.noneOf(nil)
	}
	return a.print(view{
		whole: &pb.StopResponse{Results: results},
		items: anys(results),
		names: names(ok, func(r *pb.VerbResult) string { return key{r.GetNamespace(), r.GetName()}.String() }),
		lines: func(w io.Writer) {
			for _, r := range ok {
				fmt.Fprintln(w, resultLine(v.id, name(r), r, v.mutation.dryRun))
				for _, p := range r.GetPredictions() {
					fmt.Fprintf(w, "  %s\n", oneLine(p))
				}
				if r.GetReceipt() != nil {
					writeAbandoned(w, r.GetReceipt())
				}
			}
		},
	})
}

func (a *app) severalNamespaces(results []*pb.VerbResult) bool {
	for _, r := range results {
		if r.GetNamespace() != results[0].GetNamespace() {
			return true
		}
	}
	return false
}

func (a *app) warnNotDurable(v *verb, results []*pb.VerbResult) {
	for _, r := range results {
		if !v.mutation.dryRun && !r.GetDurable() && r.GetEffect() != pb.Effect_EFFECT_NO_OP {
			fmt.Fprintf(a.env.stderr, "warning: %s: it acted, but the daemon cannot write its store: if it ends now, the %s is forgotten\n", r.GetName(), verbWord(v.id))
		}
	}
}
