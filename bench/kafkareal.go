package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-111f5b8e/supervisord/test/node/kafka"
)

// kafkaReady records wait before each slice, more than it takes.
const kafkaReady = 1_000_000

// kafkaFeed produces what all sides read, each at its own position.
type kafkaFeed struct {
	client   *kgo.Client
	produced int64
}

func newKafkaFeed(broker string) (*kafkaFeed, error) {
	c, err := kgo.NewClient(
		kgo.SeedBrokers(broker), kgo.DefaultProduceTopic(endlessQueue), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MaxBufferedRecords(50_000), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.DisableClientMetrics(),
	)
	return &kafkaFeed{client: c}, err
}

// fill produces until enough waits for a side that has taken so many.
func (f *kafkaFeed) fill(ctx context.Context, taken int64) error {
	body := make([]byte, kafkaBody)
	var failed atomic.Pointer[error]
	for ; f.produced-taken < kafkaReady && failed.Load() == nil; f.produced++ {
		r := &kgo.Record{
			Partition: int32(f.produced / kafkaBatch % kafkaPartitions),
			Key:       []byte("key-" + strconv.FormatInt(f.produced%kafkaKeys, 10)), Value: body,
		}
		f.client.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	err := f.client.Flush(ctx)
	if e := failed.Load(); e != nil {
		err = errors.Join(*e, err)
	}
	return err
}

// runKafkaReal compares consumers on a Kafka of their own.
func runKafkaReal(ctx context.Context, fs *flag.FlagSet, args []string, w io.Writer) (err error) {
	p := settingsFlags(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "supervisord-bench-kafka-")
	if err != nil {
		return fmt.Errorf("make a folder for the broker: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	lines := machine(kgoModule)
	broker, err := kafka.Start(ctx, kafka.Options{Dir: dir})
	if err != nil {
		return err
	}
	defer broker.Kill()
	if err := broker.CreateTopic(ctx, endlessQueue, kafkaPartitions); err != nil {
		return err
	}
	feed, err := newKafkaFeed(broker.Broker())
	if err != nil {
		return err
	}
	b := &kafkaBench{broker: broker.Broker(), fill: feed.fill}
	b.ends.add(func(context.Context) error { feed.client.Close(); return nil })
	defer func() { err = errors.Join(err, b.ends.close(ctx)) }()
	if err := feed.fill(ctx, 0); err != nil { // before the first consumer looks
		return err
	}
	r := &report{
		title: fmt.Sprintf("Kafka %s, no-op handler, %d B values, %d partitions", broker.Version(), kafkaBody, kafkaPartitions),
		lines: lines, head: kafkaHead(),
	}
	if err := b.measure(ctx, p, r); err != nil {
		return err
	}
	return r.publish(w, p.results)
}
