package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"

	"go.etcd.io/bbolt"
)

// A record is its payload followed by a checksum of bucket, key and payload.
// The digest is the sum of the checksums of all records and their number; it
// is written with every commit, so that a record that is missing, doubled or
// of an earlier commit is found as surely as one that changed.

const sumSize = 8

var errChecksum = errors.New("wrong checksum")

func checksum(bucket string, key, payload []byte) uint64 {
	table := crc64.MakeTable(crc64.ECMA) // made once, by the package itself
	var size [4]byte
	binary.BigEndian.PutUint32(size[:], uint32(len(key)))
	c := crc64.Update(0, table, []byte(bucket))
	c = crc64.Update(c, table, size[:])
	c = crc64.Update(c, table, key)
	return crc64.Update(c, table, payload)
}

func seal(bucket string, key, payload []byte) []byte {
	record := make([]byte, len(payload), len(payload)+sumSize)
	copy(record, payload)
	return binary.BigEndian.AppendUint64(record, checksum(bucket, key, payload))
}

// unseal checks a record and returns its payload, a part of it.
func unseal(bucket string, key, record []byte) ([]byte, error) {
	if len(record) < sumSize {
		return nil, fmt.Errorf("%s %q: %w", bucket, key, errChecksum)
	}
	payload := record[:len(record)-sumSize]
	if checksum(bucket, key, payload) != sumOf(record) {
		return nil, fmt.Errorf("%s %q: %w", bucket, key, errChecksum)
	}
	return payload, nil
}

func sumOf(record []byte) uint64 {
	return binary.BigEndian.Uint64(record[len(record)-sumSize:])
}

// digest is order-independent and kept up by adding and removing.
type digest struct{ count, sum uint64 }

func (d *digest) add(record []byte)    { d.count++; d.sum += sumOf(record) }
func (d *digest) remove(record []byte) { d.count--; d.sum -= sumOf(record) }

func (d *digest) encode() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, d.count), d.sum)
}

func decodeDigest(b []byte) (digest, error) {
	if len(b) != 16 {
		return digest{}, errors.New("no digest")
	}
	return digest{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}, nil
}

// batch is one commit's writes. All writes go through it.
type batch struct {
	tx  *bbolt.Tx
	all digest
}

// commitBatch runs f and brings the digest up to date, in tx.
func commitBatch(tx *bbolt.Tx, f func(*batch) error) error {
	b, digestKey := &batch{tx: tx}, []byte(keyDigest)
	meta, err := tx.CreateBucketIfNotExists([]byte(bucketMeta))
	if err != nil {
		return err
	}
	if record := meta.Get(digestKey); record != nil {
		payload, err := unseal(bucketMeta, digestKey, record)
		if err != nil {
			return err
		}
		if b.all, err = decodeDigest(payload); err != nil {
			return err
		}
	}
	if err := f(b); err != nil {
		return err
	}
	return meta.Put(digestKey, seal(bucketMeta, digestKey, b.all.encode()))
}

// get returns the payload of a record, nil when there is none. It is valid
// until the next write.
func (b *batch) get(bucket string, key []byte) ([]byte, error) {
	return get(b.tx, bucket, key)
}

func get(tx *bbolt.Tx, bucket string, key []byte) ([]byte, error) {
	record := tx.Bucket([]byte(bucket)).Get(key)
	if record == nil {
		return nil, nil
	}
	return unseal(bucket, key, record)
}

func (b *batch) put(bucket string, key, payload []byte) error {
	bkt := b.tx.Bucket([]byte(bucket))
	if old := bkt.Get(key); old != nil {
		b.all.remove(old)
	}
	record := seal(bucket, key, payload)
	b.all.add(record)
	return bkt.Put(key, record)
}

func (b *batch) delete(bucket string, key []byte) error {
	bkt := b.tx.Bucket([]byte(bucket))
	old := bkt.Get(key)
	if old == nil {
		return nil
	}
	b.all.remove(old)
	return bkt.Delete(key)
}

// increment adds one to a number in the meta bucket, and returns it.
func (b *batch) increment(key string) (uint64, error) {
	payload, err := b.get(bucketMeta, []byte(key))
	if err != nil {
		return 0, err
	}
	n := decodeNumber(payload) + 1
	return n, b.put(bucketMeta, []byte(key), encodeNumber(n))
}

func encodeNumber(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// decodeNumber reads a missing number as 0.
func decodeNumber(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}
