package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
)

// everywhere is the API's word for all namespaces.
const everywhere = "*"

// selection is how a command line names consumers: NAME..., -l or --all.
type selection struct {
	names         []string
	selector      string
	all           bool
	allNamespaces bool
}

// flags registers -l, --all and -A on cmd.
func (s *selection) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&s.selector, "selector", "l", "", "consumers with labels like this `SELECTOR`: team=payments,tier!=free,eu,!legacy")
	f.BoolVar(&s.all, "all", false, "all consumers of the namespace")
	s.namespaceFlag(cmd)
}

func (s *selection) namespaceFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&s.allNamespaces, "all-namespaces", "A", false, "all namespaces")
}

// bulk tells whether the consumers are not named one by one.
func (s *selection) bulk() bool { return s.selector != "" || s.all }

// check wants exactly one way of naming.
func (s *selection) check() error {
	ways := 0
	for _, given := range []bool{len(s.names) > 0, s.selector != "", s.all} {
		if given {
			ways++
		}
	}
	switch {
	case ways == 0:
		return failf(exitUsage, "name the consumers, or choose them with -l SELECTOR or --all")
	case ways > 1:
		return failf(exitUsage, "NAME..., -l and --all exclude each other: give one of them")
	case s.allNamespaces && len(s.names) > 0:
		return failf(exitUsage, "-A goes with -l or --all; write NAMESPACE/NAME for a consumer elsewhere")
	}
	return nil
}

// namespace is the one that the command line or the context names.
func (a *app) namespace() (string, error) {
	s, err := a.settings()
	if err != nil {
		return "", err
	}
	if s.Namespace == "" {
		return "default", nil
	}
	return s.Namespace, nil
}

// scope is the namespace to list or watch: all of them with -A.
func (a *app) scope(all bool) (string, error) {
	if !all {
		return a.namespace()
	}
	if a.flags.namespace != "" {
		return "", failf(exitUsage, "-n and -A exclude each other: give one of them")
	}
	return everywhere, nil
}

// key reads NAME or NAMESPACE/NAME.
func (a *app) key(arg string) (key, error) {
	if ns, name, ok := strings.Cut(arg, "/"); ok {
		return key{ns, name}, nil
	}
	ns, err := a.namespace()
	return key{ns, arg}, err
}

// keys reads several, each once, in the order given.
func (a *app) keys(args []string) ([]key, error) {
	var out []key
	for _, arg := range args {
		k, err := a.key(arg)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out, nil
}

// targets makes the API's form of a selection: one target, or one for each
// namespace when names of several are given.
func (a *app) targets(s *selection, expect int32) ([]*pb.Target, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if expect < anyCount {
		return nil, failf(exitUsage, "--expect-count %d: no selector matches less than none", expect)
	}
	if s.bulk() {
		ns, err := a.scope(s.allNamespaces)
		if err != nil {
			return nil, err
		}
		t := &pb.Target{Namespace: ns, Selector: s.selector, All: s.all}
		if expect != anyCount {
			t.ExpectedCount = new(expect)
		}
		return []*pb.Target{t}, nil
	}
	keys, err := a.keys(s.names)
	if err != nil {
		return nil, err
	}
	if expect != anyCount && int(expect) != len(keys) {
		return nil, failf(exitConflict, "%d consumers are named, --expect-count says %d: nothing was done", len(keys), expect)
	}
	var out []*pb.Target
	for _, k := range keys {
		i := slices.IndexFunc(out, func(t *pb.Target) bool { return t.GetNamespace() == k.namespace })
		if i < 0 {
			i, out = len(out), append(out, &pb.Target{Namespace: k.namespace})
		}
		out[i].Names = append(out[i].Names, k.name)
	}
	return out, nil
}

// resolve reads the selected consumers. It fails when one that is named is
// missing.
func (a *app) resolve(ctx context.Context, c *client, s *selection) ([]*pb.Consumer, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if s.bulk() {
		ns, err := a.scope(s.allNamespaces)
		if err != nil {
			return nil, err
		}
		list, _, err := c.list(ctx, &pb.ListRequest{Namespace: ns, Selector: s.selector})
		return list, err
	}
	keys, err := a.keys(s.names)
	if err != nil {
		return nil, err
	}
	var out []*pb.Consumer
	var errs []error
	for _, k := range keys {
		x, err := c.get(ctx, k)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, x)
	}
	return out, a.together(errs, len(keys))
}

// get reads one consumer.
func (c *client) get(ctx context.Context, k key) (*pb.Consumer, error) {
	r, err := c.consumers.Get(ctx, &pb.GetRequest{Namespace: k.namespace, Name: k.name})
	if err != nil {
		return nil, c.suggest(ctx, k, err)
	}
	return r.GetConsumer(), nil
}

// list reads all pages; the revision is that of the first, so that a watch
// from there misses nothing.
func (c *client) list(ctx context.Context, r *pb.ListRequest) ([]*pb.Consumer, uint64, error) {
	var out []*pb.Consumer
	var revision uint64
	for {
		page, err := c.consumers.List(ctx, r)
		if err != nil {
			return nil, 0, err
		}
		if revision == 0 {
			revision = page.GetRevision()
		}
		out = append(out, page.GetConsumers()...)
		if page.GetNextPageToken() == "" {
			return out, revision, nil
		}
		r = proto.CloneOf(r)
		r.PageToken = page.GetNextPageToken()
	}
}

// together makes one error of those of several consumers: the error itself
// when there is only one consumer, else each is told and the status remains.
func (a *app) together(errs []error, of int) error {
	failed := 0
	for _, err := range errs {
		if err != nil {
			failed++
		}
	}
	if failed == 0 {
		return nil
	}
	if of == 1 {
		return errors.Join(errs...)
	}
	for _, err := range errs {
		if err != nil && !told(err) {
			complain(a.env.stderr, err)
		}
	}
	all := append(slices.Clone(errs), make([]error, max(0, of-len(errs)))...)
	return &failure{exit: exitOfAll(all)}
}
