package store

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"

	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// A bounded list has keys of a prefix and a number. Numbers go up by one and
// only the oldest are removed, so that first and last tell how many there are.

// dropped hears of a record before it is removed from a list.
type dropped func(key, payload []byte) error

// append adds to the list of a consumer that exists, removes the oldest beyond
// limit, and returns the new key; nil when there is no such consumer.
func (b *batch) append(bucket string, consumer, payload []byte, limit uint64, f dropped) ([]byte, error) {
	if b.tx.Bucket([]byte(bucketConsumers)).Get(consumer) == nil {
		return nil, nil
	}
	return b.appendTo(bucket, consumer, payload, limit, f)
}

func (b *batch) appendTo(bucket string, prefix, payload []byte, limit uint64, f dropped) ([]byte, error) {
	first, last := span(b.tx.Bucket([]byte(bucket)), prefix)
	key := listKey(prefix, last+1)
	if err := b.put(bucket, key, payload); err != nil {
		return nil, err
	}
	for ; first != 0 && last+1-first >= limit; first++ {
		if err := b.drop(bucket, listKey(prefix, first), f); err != nil {
			return nil, err
		}
	}
	return key, nil
}

func (b *batch) drop(bucket string, key []byte, f dropped) error {
	if f != nil {
		payload, err := b.get(bucket, key)
		if err != nil {
			return err
		}
		if err := f(key, payload); err != nil {
			return err
		}
	}
	return b.delete(bucket, key)
}

// deleteAll removes every record whose key begins with prefix.
func (b *batch) deleteAll(bucket string, prefix []byte, f dropped) error {
	for {
		key, _ := b.tx.Bucket([]byte(bucket)).Cursor().Seek(prefix)
		if !bytes.HasPrefix(key, prefix) {
			return nil
		}
		if err := b.drop(bucket, bytes.Clone(key), f); err != nil {
			return err
		}
	}
}

// span returns the first and last number of a list; 0, 0 when it is empty.
func span(bkt *bbolt.Bucket, prefix []byte) (first, last uint64) {
	c := bkt.Cursor()
	key, _ := c.Seek(prefix)
	if key == nil || !bytes.HasPrefix(key, prefix) {
		return 0, 0
	}
	first = listNumber(key)
	key, _ = seekEnd(c, prefix)
	return first, listNumber(key)
}

// seekEnd moves to the last record of a list; when that is empty, to whatever
// comes before.
func seekEnd(c *bbolt.Cursor, prefix []byte) (key, value []byte) {
	if key, _ := c.Seek(listKey(prefix, math.MaxUint64)); key == nil {
		return c.Last()
	}
	return c.Prev()
}

func listKey(prefix []byte, n uint64) []byte {
	return append(bytes.Clone(prefix), encodeNumber(n)...)
}

func listNumber(key []byte) uint64 {
	if len(key) < 8 {
		return 0
	}
	return decodeNumber(key[len(key)-8:])
}

// forgetReceipt ends the lookup of a receipt by its id.
func (b *batch) forgetReceipt(_, payload []byte) error {
	var r supervisorv1.Receipt
	if err := proto.Unmarshal(payload, &r); err != nil {
		return fmt.Errorf("%w: receipt: %w", ErrCorrupt, err)
	}
	return b.delete(bucketReceiptIDs, []byte(r.GetId()))
}

// putRequest writes a request and its place in the log of requests. One that
// is written again has two places, of which only the newer counts.
func (b *batch) putRequest(id, payload []byte) error {
	place, err := b.appendTo(bucketRequestLog, nil, id, MaxRequests, b.forgetRequest)
	if err != nil {
		return err
	}
	return b.put(bucketRequests, id, append(place, payload...))
}

// forgetRequest removes the request of a place in the log.
func (b *batch) forgetRequest(place, id []byte) error {
	payload, err := b.get(bucketRequests, id)
	if err != nil || !bytes.HasPrefix(payload, place) {
		return err
	}
	return b.delete(bucketRequests, bytes.Clone(id))
}

// prune removes the oldest requests as long as they have expired, limit at most.
func (b *batch) prune(now time.Time, limit int) error {
	for range limit {
		place, _ := b.tx.Bucket([]byte(bucketRequestLog)).Cursor().First()
		if place == nil {
			return nil
		}
		place = bytes.Clone(place)
		id, err := b.get(bucketRequestLog, place)
		if err != nil {
			return err
		}
		r, err := request(b.tx, id)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		if err == nil && r.place == decodeNumber(place) && now.Before(r.Expires) {
			return nil
		}
		if err := b.drop(bucketRequestLog, place, b.forgetRequest); err != nil {
			return err
		}
	}
	return nil
}
