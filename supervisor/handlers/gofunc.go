package handlers

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

// Go is the kind of the functions that a program registers, by the name that
// specs use. Consumers that name the same one share it, at the same time, and
// it is never closed. Changing the map afterwards has no effect.
func Go(registered map[string]supervisor.Handler) supervisor.HandlerKind {
	return goKind{registered: maps.Clone(registered)}
}

type goKind struct{ registered map[string]supervisor.Handler }

func (goKind) Kind() string { return "go" }

func (k goKind) Check(s *supervisorv1.ConsumerSpec) []brokers.Fault {
	if _, err := k.find(s); err != nil {
		return []brokers.Fault{brokers.Faultf("handler.go.name", "%s", err)}
	}
	return nil
}

func (k goKind) New(s *supervisorv1.ConsumerSpec, _ supervisor.HandlerEnv) (supervisor.Handler, error) {
	h, err := k.find(s)
	if err != nil {
		return nil, fmt.Errorf("handler.go.name: %w", err)
	}
	// A method value hides a Close that one consumer would call on all.
	return supervisor.HandlerFunc(h.Handle), nil
}

func (k goKind) find(s *supervisorv1.ConsumerSpec) (supervisor.Handler, error) {
	name := s.GetHandler().GetGo().GetName()
	h := k.registered[name]
	if h != nil {
		return h, nil
	}
	if len(k.registered) == 0 {
		return nil, fmt.Errorf("no function %q: this program registers none", name)
	}
	known := slices.Sorted(maps.Keys(k.registered))
	return nil, fmt.Errorf("no function %q; this program registers %s", name, strings.Join(known, ", "))
}
