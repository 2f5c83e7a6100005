package handlers_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"github.com/seed-111f5b8e/supervisord/supervisor/handlers"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
	"github.com/seed-111f5b8e/supervisord/supervisor/store"
)

// A program that registers a function and hosts a consumer of its own.
func ExampleGo() {
	if err := bill(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// bill order-1
	// bill order-2
	// bill order-3
	// acked 3
}

func bill(ctx context.Context) error {
	broker := memory.NewBroker(memory.Options{})
	if err := broker.Create("orders", memory.QueueOptions{}); err != nil {
		return err
	}
	if err := broker.Publish("orders", memory.Message{ID: "order-1"}, memory.Message{ID: "order-2"}, memory.Message{ID: "order-3"}); err != nil {
		return err
	}

	billed := make(chan string, 3)
	functions := map[string]supervisor.Handler{
		"bill": supervisor.HandlerFunc(func(_ context.Context, m *supervisor.Message) supervisor.Outcome {
			billed <- m.ID()
			return supervisor.Ack()
		}),
	}
	host, closeStore, err := start(&memory.Driver{Broker: broker}, handlers.Go(functions)) //nolint:contextcheck // closing the store takes no context
	if err != nil {
		return err
	}
	defer closeStore()

	_, err = host.Apply(ctx, "example", &supervisorv1.ApplyRequest{Items: []*supervisorv1.ApplyItem{{
		Spec: &supervisorv1.ConsumerSpec{
			Name: "orders",
			Source: &supervisorv1.Source{Connection: "local", Broker: &supervisorv1.Source_Memory{
				Memory: &supervisorv1.MemorySource{Queue: "orders"},
			}},
			Handler: &supervisorv1.Handler{Kind: &supervisorv1.Handler_Go{
				Go: &supervisorv1.GoHandler{Name: "bill"},
			}},
		},
	}}})
	if err != nil {
		return err
	}
	for range 3 {
		fmt.Println("bill", <-billed)
	}
	if _, err := host.Shutdown(ctx); err != nil {
		return err
	}
	c, err := host.Get("default", "orders")
	if err != nil {
		return err
	}
	fmt.Println("acked", c.GetStatus().GetCounters().GetAcked())
	return nil
}

// start makes a supervisor with one memory connection, "local".
func start(driver brokers.Driver, kinds ...supervisor.HandlerKind) (*supervisor.Supervisor, func(), error) {
	daemon, faults := spec.CheckDaemon(&supervisorv1.DaemonConfig{Connections: []*supervisorv1.Connection{{
		Name: "local", Broker: &supervisorv1.Connection_Memory{Memory: &supervisorv1.MemoryConnection{}},
	}}}, map[string]brokers.Driver{driver.Kind(): driver})
	for _, f := range faults {
		return nil, nil, f
	}
	dir, err := os.MkdirTemp("", "supervisord")
	if err != nil {
		return nil, nil, err
	}
	states, err := store.Open(filepath.Join(dir, "state.db"), store.Options{})
	if err != nil {
		return nil, nil, err
	}
	closeStore := func() {
		states.Close()    //nolint:errcheck // the example ends
		os.RemoveAll(dir) //nolint:errcheck // the example ends
	}
	host, err := supervisor.New(supervisor.Options{
		Daemon: daemon, Drivers: []brokers.Driver{driver}, Handlers: kinds, Store: states, DataDir: dir,
	})
	if err != nil {
		closeStore()
		return nil, nil, err
	}
	return host, closeStore, nil
}
