package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	kafkaBody       = 100
	kafkaPartitions = 8
	// kafkaKeys are what records of the endless topic have as keys, in turn;
	// kafkaBatch is how many records the broker has in one batch.
	kafkaKeys  = 64
	kafkaBatch = 512
	// idleTopic is empty.
	idleTopic = "idle"
)

// newFakeKafka is a fake broker whose topics have one batch of records that it
// serves at any offset, so that they never end.
func newFakeKafka() (*kfake.Cluster, error) {
	return kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(kafkaPartitions, endlessQueue),
		kfake.SyntheticFetch(kfake.SyntheticBatch{Batch: recordBatch()}))
}

// newIdleKafka is a fake broker with an empty topic of one partition.
func newIdleKafka() (*kfake.Cluster, error) {
	return kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, idleTopic))
}

// recordBatch is an uncompressed batch, its records as the consumers want them.
func recordBatch() []byte {
	var records []byte
	for i := range kafkaBatch {
		r := kmsg.Record{
			OffsetDelta: int32(i), Key: []byte("key-" + strconv.Itoa(i%kafkaKeys)), Value: make([]byte, kafkaBody),
		}
		r.Length = int32(len(r.AppendTo(nil)) - 1) // without itself, which takes one byte while it is 0
		records = r.AppendTo(records)
	}
	const timestamp = 1_600_000_000_000
	batch := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, LastOffsetDelta: kafkaBatch - 1, FirstTimestamp: timestamp, MaxTimestamp: timestamp,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: kafkaBatch, Records: records,
	}
	b := batch.AppendTo(nil)
	// The length counts what follows it, the checksum covers what follows that.
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// runKafkaServer is the fake broker's process: it says its address.
func runKafkaServer(ctx context.Context, fs *flag.FlagSet, args []string, w io.Writer) error {
	idle := fs.Bool("idle", false, "an empty topic instead of an endless one")
	if err := fs.Parse(args); err != nil {
		return err
	}
	serving := newFakeKafka
	if *idle {
		serving = newIdleKafka
	}
	c, err := serving()
	if err != nil {
		return fmt.Errorf("start the fake broker: %w", err)
	}
	defer c.Close()
	return serve(ctx, w, c.ListenAddrs()[0])
}
