package handlers_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"github.com/seed-111f5b8e/supervisord/supervisor/handlers"
	"google.golang.org/protobuf/proto"
)

// hosted runs a consumer of queue "orders" that posts to an endpoint. A message
// has one attempt.
func hosted(t *testing.T, endpoint http.HandlerFunc, ms ...memory.Message) (*memory.Broker, *supervisor.Supervisor) {
	t.Helper()
	srv := httptest.NewServer(endpoint)
	t.Cleanup(srv.Close)
	broker := memory.NewBroker(memory.Options{})
	for _, q := range []string{"orders", "orders.dead"} {
		if err := broker.Create(q, memory.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := broker.Publish("orders", ms...); err != nil {
		t.Fatal(err)
	}
	host, closeStore, err := start(&memory.Driver{Broker: broker}, handlers.HTTP(nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := host.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		closeStore()
	})
	_, err = host.Apply(t.Context(), "test", &supervisorv1.ApplyRequest{Items: []*supervisorv1.ApplyItem{{
		Spec: &supervisorv1.ConsumerSpec{
			Name: "orders",
			Source: &supervisorv1.Source{Connection: "local", Broker: &supervisorv1.Source_Memory{
				Memory: &supervisorv1.MemorySource{Queue: "orders"},
			}},
			Handler:    &supervisorv1.Handler{Kind: &supervisorv1.Handler_Http{Http: &supervisorv1.HttpHandler{Url: srv.URL}}},
			Retry:      &supervisorv1.Retry{Attempts: proto.Int32(1)},
			DeadLetter: &supervisorv1.DeadLetter{Target: &supervisorv1.DeadLetter_Topic{Topic: "orders.dead"}},
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return broker, host
}

// end moves the consumer by a verb and waits for the receipt.
func end(t *testing.T, host *supervisor.Supervisor, verb supervisorv1.Verb) *supervisorv1.Receipt {
	t.Helper()
	results, err := host.Do(t.Context(), supervisor.Command{
		Verb: verb, Actor: "test", Target: &supervisorv1.Target{Names: []string{"orders"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var receipt *supervisorv1.Receipt
	found := errors.New("found")
	since := &supervisorv1.WatchRequest{SinceRevision: results[0].GetRevision()}
	err = host.Watch(t.Context(), since, func(w *supervisorv1.WatchResponse) error {
		if receipt = w.GetReceipt(); receipt.GetId() == results[0].GetOperation() {
			return found
		}
		return nil
	})
	if !errors.Is(err, found) {
		t.Fatal(err)
	}
	return receipt
}

// A call that a kill cuts off burns no attempt: its message goes back, though
// it had only one.
func TestKillCutsOffCalls(t *testing.T) {
	called := make(chan struct{})
	broker, host := hosted(t, func(_ http.ResponseWriter, r *http.Request) {
		called <- struct{}{}
		<-r.Context().Done()
	}, memory.Message{ID: "a"})
	<-called
	receipt := end(t, host, supervisorv1.Verb_VERB_KILL)
	if receipt.GetReturned() != 1 || len(receipt.GetAbandoned()) != 0 || receipt.GetDeadLettered() != 0 {
		t.Errorf("receipt %v", receipt)
	}
	if w := broker.Waiting("orders"); len(w) != 1 || len(broker.Waiting("orders.dead")) != 0 {
		t.Errorf("waiting %v, dead %v", w, broker.Waiting("orders.dead"))
	}
}

// What the endpoint says is in the dead letter.
func TestRefusedMessagesAreDeadLettered(t *testing.T) {
	done := make(chan struct{})
	broker, host := hosted(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Ce-Id") == "bad" {
			http.Error(w, "no such customer", http.StatusUnprocessableEntity)
			return
		}
		close(done)
	}, memory.Message{ID: "bad"}, memory.Message{ID: "good"})
	<-done
	end(t, host, supervisorv1.Verb_VERB_DRAIN)
	if acked := broker.Acked("orders"); len(acked) != 2 {
		t.Fatalf("acked %v", acked)
	}
	dead := broker.Waiting("orders.dead")
	if len(dead) != 1 {
		t.Fatalf("dead letters %v", dead)
	}
	var said bytes.Buffer
	for _, h := range dead[0].Headers {
		said.WriteString(h.Name + ": " + h.Value + "\n")
	}
	if want := `422 Unprocessable Entity: "no such customer\n"`; !strings.Contains(said.String(), want) {
		t.Errorf("got %s, want %s in it", said.String(), want)
	}
}
