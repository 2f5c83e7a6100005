package nats

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// bench is a server with a stream that is full of small messages.
type bench struct {
	tb   testing.TB
	nc   *nats.Conn
	js   jetstream.JetStream
	conn brokers.Conn
	runs int
}

const (
	benchMessages = 50_000
	benchWindow   = 1000
	benchPending  = 4000
	benchBatch    = 500
)

func newBench(tb testing.TB) *bench {
	tb.Helper()
	p := startProcess(tb, true)
	nc, err := nats.Connect("nats://"+p.addr, nats.UserInfo(appUser, appPassword))
	must(tb, err)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(1024))
	must(tb, err)
	b := &bench{tb: tb, nc: nc, js: js}
	ctx := tb.Context()
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: "B", Subjects: []string{"b"}})
	must(tb, err)
	body := make([]byte, 100)
	for range benchMessages {
		_, err := js.PublishAsync("b", body, jetstream.WithStallWait(10*time.Second))
		must(tb, err)
	}
	<-js.PublishAsyncComplete()
	b.conn, err = Driver{}.Open(ctx, &supervisorv1.Connection{Name: "bench", Broker: &supervisorv1.Connection_Nats{
		Nats: &supervisorv1.NatsConnection{Urls: []string{"nats://" + p.addr}, Auth: &supervisorv1.NatsAuth{User: appUser, Password: "env:P"}},
	}}, brokers.Env{Log: slog.New(slog.DiscardHandler), Secret: func(string) (string, error) { return appPassword, nil }})
	must(tb, err)
	tb.Cleanup(func() {
		must(tb, b.conn.Close(context.Background()))
		nc.Close()
	})
	return b
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func (b *bench) durable() string {
	b.runs++
	return fmt.Sprintf("d%d", b.runs)
}

// driver consumes the stream by Receive and Settle, n messages.
func (b *bench) driver(n int) time.Duration {
	durable, window, pending, batch, bytes := b.durable(), int32(benchWindow), int32(benchPending), int32(benchBatch), int64(64<<20)
	plan, faults := Driver{}.Parse(&supervisorv1.ConsumerSpec{
		Namespace: "default", Name: "bench", MaxInFlight: &supervisorv1.MaxInFlight{Messages: &window, Bytes: &bytes},
		Source: &supervisorv1.Source{Broker: &supervisorv1.Source_Nats{Nats: &supervisorv1.NatsSource{
			Stream: "B", Durable: durable, PullMaxMessages: &batch, MaxAckPending: &pending,
		}}},
	})
	if len(faults) > 0 {
		b.tb.Fatal(faults)
	}
	ctx := b.tb.Context()
	sub, err := b.conn.Subscribe(ctx, plan.Source, nil)
	must(b.tb, err)
	began := time.Now()
	settle := make([]brokers.Settlement, 0, window)
	for got := 0; got < n; {
		ds, err := sub.Receive(ctx, brokers.Credit{Messages: int(window), Bytes: 64 << 20})
		must(b.tb, err)
		settle = settle[:0]
		for i := range ds {
			settle = append(settle, brokers.Settlement{Delivery: &ds[i], Outcome: brokers.Ack})
		}
		must(b.tb, sub.Settle(ctx, settle))
		got += len(ds)
	}
	took := time.Since(began)
	_, err = sub.Close(ctx, nil)
	must(b.tb, err)
	b.remove(durable)
	return took
}

func (b *bench) remove(durable string) { must(b.tb, b.js.DeleteConsumer(b.tb.Context(), "B", durable)) }

func (b *bench) consumer() (jetstream.Consumer, string) {
	durable := b.durable()
	c, err := b.js.CreateConsumer(b.tb.Context(), "B", jetstream.ConsumerConfig{
		Durable: durable, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: benchPending,
	})
	must(b.tb, err)
	return c, durable
}

// rawMessages is the client's iterator, acking each.
func (b *bench) rawMessages(n int) time.Duration {
	c, durable := b.consumer()
	began := time.Now()
	it, err := c.Messages(jetstream.PullMaxMessages(benchBatch))
	must(b.tb, err)
	for range n {
		m, err := it.Next()
		must(b.tb, err)
		must(b.tb, m.Ack())
	}
	took := time.Since(began)
	it.Stop()
	b.remove(durable)
	return took
}

// rawConsume is the client's callback, acking each.
func (b *bench) rawConsume(n int) time.Duration {
	c, durable := b.consumer()
	done := make(chan struct{})
	got := 0
	began := time.Now()
	cc, err := c.Consume(func(m jetstream.Msg) {
		_ = m.Ack()
		if got++; got == n {
			close(done)
		}
	}, jetstream.PullMaxMessages(benchBatch))
	must(b.tb, err)
	<-done
	took := time.Since(began)
	cc.Stop()
	b.remove(durable)
	return took
}

// rawFetch fetches batch by batch, acking each.
func (b *bench) rawFetch(n int) time.Duration {
	c, durable := b.consumer()
	began := time.Now()
	for got := 0; got < n; {
		batch, err := c.Fetch(min(benchBatch, n-got))
		must(b.tb, err)
		for m := range batch.Messages() {
			must(b.tb, m.Ack())
			got++
		}
	}
	took := time.Since(began)
	b.remove(durable)
	return took
}

// BenchmarkReceive takes and acks messages, by the driver and by the ways that
// the client offers. Each op is a message.
func BenchmarkReceive(bb *testing.B) {
	b := newBench(bb)
	for _, way := range []struct {
		name string
		run  func(int) time.Duration
	}{{"driver", b.driver}, {"messages", b.rawMessages}, {"consume", b.rawConsume}, {"fetch", b.rawFetch}} {
		bb.Run(way.name, func(bb *testing.B) {
			bb.ReportAllocs()
			var took time.Duration
			for left := bb.N; left > 0; left -= benchMessages {
				took += way.run(min(left, benchMessages))
			}
			bb.ReportMetric(float64(bb.N)/took.Seconds(), "msg/s")
		})
	}
}

// BenchmarkRatio takes turns with each way over the whole stream, and reports the
// driver's rate relative to the best of the client's: the medians of one run.
func BenchmarkRatio(bb *testing.B) {
	b := newBench(bb)
	ways := []func(int) time.Duration{b.driver, b.rawMessages, b.rawConsume, b.rawFetch}
	times, cpu := make([][]time.Duration, len(ways)), make([][]time.Duration, len(ways))
	rounds := 0
	for bb.Loop() {
		for i := range ways {
			w := i
			if rounds%2 == 1 {
				w = len(ways) - 1 - i
			}
			before := cpuTime()
			times[w] = append(times[w], ways[w](benchMessages))
			cpu[w] = append(cpu[w], cpuTime()-before)
		}
		rounds++
	}
	median := func(of [][]time.Duration, i int) float64 {
		return slices.Sorted(slices.Values(of[i]))[len(of[i])/2].Seconds()
	}
	bb.ReportMetric(min(median(times, 1), median(times, 2), median(times, 3))/median(times, 0), "ratio")
	for i, name := range []string{"driver", "messages", "consume", "fetch"} {
		bb.ReportMetric(benchMessages/median(times, i), name+"/s")
		bb.ReportMetric(median(cpu, i)*1e6/benchMessages, name+"-cpu-us/msg")
	}
	bb.ReportMetric(0, "ns/op")
}

// cpuTime is what this process, the client, has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
