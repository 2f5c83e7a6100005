package handlers

import (
	"iter"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// headers are a message's headers, name and value, in order.
type headers [][2]string

func (h headers) Get(name string) (string, bool) {
	for _, x := range h {
		if x[0] == name {
			return x[1], true
		}
	}
	return "", false
}

func (h headers) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, x := range h {
			if !yield(x[0], x[1]) {
				return
			}
		}
	}
}

func message() *supervisor.Message {
	return &supervisor.Message{
		Origin:   &brokers.Origin{Name: "ORDERS"},
		Position: 7,
		Subject:  "orders.new",
		Body:     []byte(`{"n":1}`),
		Headers:  brokers.NoHeaders{},
		Size:     7,
		Attempt:  1,
	}
}

func httpSpec(url string, set map[string]string) *supervisorv1.ConsumerSpec {
	return &supervisorv1.ConsumerSpec{
		Namespace: "shop", Name: "orders",
		Handler: &supervisorv1.Handler{Kind: &supervisorv1.Handler_Http{
			Http: &supervisorv1.HttpHandler{Url: url, Headers: set},
		}},
	}
}

func newHTTP(t *testing.T, spec *supervisorv1.ConsumerSpec, secrets map[string]string) *httpHandler {
	t.Helper()
	h, err := HTTP(nil).New(spec, supervisor.HandlerEnv{
		Log:    slog.New(slog.DiscardHandler),
		Secret: func(ref string) (string, error) { return lookup(secrets, ref) },
	})
	if err != nil {
		t.Fatal(err)
	}
	own, ok := h.(*httpHandler)
	if !ok {
		t.Fatalf("got a %T", h)
	}
	t.Cleanup(func() {
		if err := own.Close(); err != nil {
			t.Error(err)
		}
	})
	return own
}

func lookup(secrets map[string]string, ref string) (string, error) {
	v, ok := secrets[ref]
	if !ok {
		return "", os.ErrNotExist
	}
	return v, nil
}

// wantFaults compares paths, and that each message has the words after it.
func wantFaults(t *testing.T, got []brokers.Fault, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d faults %v, want %d", len(got), got, len(want))
	}
	for i, w := range want {
		path, words, _ := strings.Cut(w, ": ")
		if got[i].Path != path || !strings.Contains(got[i].Message, words) {
			t.Errorf("fault %d: got %v, want %s", i, got[i], w)
		}
	}
}
