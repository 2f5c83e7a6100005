package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/seed-111f5b8e/supervisord/proto/endpoint"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"github.com/seed-111f5b8e/supervisord/supervisor/daemon"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
)

// demoRate is how often an order is published.
const demoRate = 5 * time.Millisecond

// demoConfig is the given configuration, if any, with the demo's own
// connection: the embedded server.
func demoConfig(o daemon.Options, listen string) (*pb.DaemonConfig, error) {
	cfg := &pb.DaemonConfig{}
	if o.Config != "" {
		data, err := os.ReadFile(o.Config)
		if err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
		if _, err := textform.DecodeOne(o.Config, data, cfg); err != nil {
			return nil, err
		}
	}
	cfg.Connections = append(cfg.Connections, &pb.Connection{
		Name:   "demo",
		Broker: &pb.Connection_Nats{Nats: &pb.NatsConnection{Embedded: true, Listen: listen}},
	})
	return cfg, nil
}

// demoSpecs are the demo's consumers and what --apply adds.
func demoSpecs(o daemon.Options, env spec.Env, billing string) ([]*spec.Consumer, error) {
	data, err := demoFiles.ReadFile("demo.yaml")
	if err != nil {
		return nil, err
	}
	files, err := daemon.ReadSpecs(o.Apply)
	if err != nil {
		return nil, err
	}
	own := spec.File{Name: "demo.yaml", Data: []byte(strings.ReplaceAll(string(data), "BILLING_URL", billing))}
	return spec.Load(append([]spec.File{own}, files...), env)
}

// demoHandlers are the demo's Go functions.
func demoHandlers() map[string]supervisor.Handler {
	work := func(least, most time.Duration) func(context.Context) error {
		return func(ctx context.Context) error {
			t := time.NewTimer(least + rand.N(most-least))
			defer t.Stop()
			select {
			case <-t.C:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	handler := func(do func(context.Context) error, failing int) supervisor.HandlerFunc {
		return func(ctx context.Context, _ *supervisor.Message) supervisor.Outcome {
			if err := do(ctx); err != nil {
				return supervisor.Retry(err)
			}
			if failing > 0 && rand.IntN(failing) == 0 {
				return supervisor.Retry(errors.New("the ledger answered: try again later"))
			}
			return supervisor.Ack()
		}
	}
	return map[string]supervisor.Handler{
		"flaky": handler(work(2*time.Millisecond, 10*time.Millisecond), 10),
		"slow":  handler(work(20*time.Millisecond, 100*time.Millisecond), 0),
		"fast":  handler(work(100*time.Microsecond, time.Millisecond), 0),
	}
}

// startBilling serves the endpoint that the billing consumer posts to.
func startBilling(ctx context.Context) (url string, stop func(), err error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{
		ReadHeaderTimeout: time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // the answer does not depend on it
			w.WriteHeader(http.StatusNoContent)
		}),
	}
	go srv.Serve(l) //nolint:errcheck // ends with Close
	return "http://" + l.Addr().String() + "/orders", func() { _ = srv.Close() }, nil
}

// freeAddress finds a loopback address for the embedded server.
func freeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close() //nolint:errcheck // only its address is wanted
	return l.Addr().String(), nil
}

// publishOrders makes the streams and publishes until ctx ends.
func publishOrders(ctx context.Context, addr string) error {
	nc, err := natsgo.Connect("nats://"+addr, natsgo.RetryOnFailedConnect(true), natsgo.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	for name, subjects := range map[string][]string{"ORDERS": {"orders.>"}, "DEAD": {"dead.>"}} {
		if err := createStream(ctx, js, jetstream.StreamConfig{Name: name, Subjects: subjects, MaxMsgs: 1_000_000}); err != nil {
			return err
		}
	}
	t := time.NewTicker(demoRate)
	defer t.Stop()
	for n := 0; ; n++ {
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
		subject := fmt.Sprintf("orders.customer%d.%s", rand.IntN(20), []string{"eu", "us"}[rand.IntN(2)])
		// A lost demo order is of no matter; the next one comes at once.
		_, _ = js.Publish(ctx, subject, fmt.Appendf(nil, `{"order":%d}`, n))
	}
}

// createStream waits for the embedded server to come up.
func createStream(ctx context.Context, js jetstream.JetStream, c jetstream.StreamConfig) error {
	for {
		bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := js.CreateOrUpdateStream(bounded, c)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

func printHelp(w io.Writer, o daemon.Options) {
	addr := ""
	if o.Listen != endpoint.Default() {
		addr = " --addr " + o.Listen
	}
	fmt.Fprintf(w, `
Five consumers take orders from a JetStream server inside this process.
In another terminal, try:

  supctl%[1]s list
  supctl%[1]s describe invoices
  supctl%[1]s pause billing --for 10m --reason "ERP down"
  supctl%[1]s list
  supctl%[1]s resume billing
  supctl%[1]s drain shipping
  supctl%[1]s start shipping
  supctl%[1]s scale search --concurrency 8
  supctl%[1]s inflight shipping
  supctl%[1]s kill search --yes
  supctl%[1]s events invoices

Metrics: http://%[2]s/metrics
Ctrl-C stops everything and prints the receipts.

`, addr, o.HTTP)
}

func printReceipts(w io.Writer, receipts []*pb.Receipt) {
	fmt.Fprintf(w, "\n%-10s %-12s %9s %8s %8s %10s %s\n", "CONSUMER", "RECEIPT", "COMPLETED", "RETURNED", "DEAD", "ABANDONED", "DURATION")
	for _, r := range receipts {
		fmt.Fprintf(w, "%-10s %-12s %9d %8d %8d %10d %s\n", r.GetName(), textform.ShortEnum(r.GetOutcome()), r.GetCompleted(),
			r.GetReturned(), r.GetDeadLettered(), len(r.GetAbandoned()), r.GetDuration().AsDuration().Round(time.Millisecond))
	}
}
