package handlers

import (
	"context"
	"errors"
	"testing"

	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

func goSpec(name string) *supervisorv1.ConsumerSpec {
	return &supervisorv1.ConsumerSpec{Handler: &supervisorv1.Handler{Kind: &supervisorv1.Handler_Go{
		Go: &supervisorv1.GoHandler{Name: name},
	}}}
}

// shared would be broken for all consumers if one of them closed it.
type shared struct{ err error }

func (s shared) Handle(context.Context, *supervisor.Message) supervisor.Outcome {
	return supervisor.Retry(s.err)
}

func (shared) Close() error { return errors.New("closed") }

func TestGo(t *testing.T) {
	failed := errors.New("failed")
	registered := map[string]supervisor.Handler{"bill": shared{failed}, "absent": nil}
	kind := Go(registered)
	delete(registered, "bill")
	wantFaults(t, kind.Check(goSpec("bill")))
	wantFaults(t, kind.Check(goSpec("pay")), `handler.go.name: no function "pay"; this program registers absent, bill`)
	wantFaults(t, kind.Check(goSpec("absent")), `handler.go.name: no function "absent"`)
	wantFaults(t, Go(nil).Check(goSpec("pay")), "handler.go.name: registers none")

	h, err := kind.New(goSpec("bill"), supervisor.HandlerEnv{})
	if err != nil {
		t.Fatal(err)
	}
	if got := h.Handle(t.Context(), message()); got != supervisor.Retry(failed) {
		t.Errorf("got %+v", got)
	}
	if _, ok := h.(interface{ Close() error }); ok {
		t.Error("one consumer could close the function of all")
	}
	if _, err := kind.New(goSpec("pay"), supervisor.HandlerEnv{}); err == nil {
		t.Error("an unknown function was made")
	}
}
