package store

import (
	"errors"
	"fmt"
	"io"
	"os"

	"google.golang.org/protobuf/proto"

	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// The buckets. Keys that begin with a consumer are its namespace and name,
// each ended by a zero byte; numbers are big-endian.
const (
	// version, boot, digest.
	bucketMeta = "meta"
	// consumer -> supervisor.v1.Consumer without status.
	bucketConsumers = "consumers"
	// consumer, number -> supervisor.v1.Receipt.
	bucketReceipts = "receipts"
	// receipt's id -> its key in receipts.
	bucketReceiptIDs = "receipt_ids"
	// consumer, number -> supervisor.v1.Transition.
	bucketTransitions = "transitions"
	// request id -> see Request.encode.
	bucketRequests = "requests"
	// number -> request id, oldest first.
	bucketRequestLog = "request_log"
)

// Keys of bucketMeta.
const (
	keyVersion = "version"
	keyBoot    = "boot"
	keyDigest  = "digest"
)

// steps lead from one schema version to the next: the first makes version 1
// out of an empty file. Steps that were released never change.
func steps() []func(*batch) error {
	return []func(*batch) error{createBuckets}
}

func createBuckets(b *batch) error {
	for _, name := range []string{
		bucketConsumers, bucketReceipts, bucketReceiptIDs, bucketTransitions, bucketRequests, bucketRequestLog,
	} {
		if _, err := b.tx.CreateBucket([]byte(name)); err != nil {
			return err
		}
	}
	return nil
}

// migrate brings the file to this program's schema version.
func migrate(b *batch) error {
	payload, err := b.get(bucketMeta, []byte(keyVersion))
	if err != nil {
		return err
	}
	version := decodeNumber(payload)
	if version == uint64(len(steps())) {
		return nil
	}
	for i, step := range steps()[version:] {
		if err := step(b); err != nil {
			return fmt.Errorf("migrate to schema version %d: %w", version+uint64(i)+1, err)
		}
	}
	return b.put(bucketMeta, []byte(keyVersion), encodeNumber(uint64(len(steps()))))
}

// inspect reads the whole file and says whether the store may work on it. It
// does so before bbolt maps the file, which on a damaged one would panic or
// fault, or fall back to an earlier commit without a word.
func inspect(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("state store: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("state store: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("state store: %s is not a regular file", path)
	}
	if err := inspectFile(f, info.Size()); err != nil {
		if errors.Is(err, ErrNewer) {
			return fmt.Errorf("%s: %w: run the newer supervisord, or restore a copy from before it", path, err)
		}
		return fmt.Errorf("%w: %s: %w: restore a copy of it, or move it away to start without any consumer",
			ErrCorrupt, path, err)
	}
	return nil
}

func inspectFile(r io.ReaderAt, size int64) error {
	c := contents{meta: map[string][]byte{}}
	err := checkPages(r, size, c.visit)
	// A newer version may keep its records in another way.
	if v := decodeNumber(c.meta[keyVersion]); v > uint64(len(steps())) {
		return fmt.Errorf("%w: it has schema version %d, this program knows %d", ErrNewer, v, len(steps()))
	}
	if err != nil {
		return err
	}
	return c.check()
}

// contents collects what inspect finds.
type contents struct {
	all  digest
	meta map[string][]byte
	// err is the first record that is wrong.
	err error
}

func (c *contents) visit(bucket string, key, record []byte) {
	payload, err := unseal(bucket, key, record)
	switch {
	case err != nil:
	case bucket == bucketMeta:
		c.meta[string(key)] = append([]byte(nil), payload...)
		if string(key) == keyDigest {
			return
		}
	case bucket == bucketConsumers:
		err = proto.Unmarshal(payload, &supervisorv1.Consumer{})
	}
	if err != nil {
		if c.err == nil {
			c.err = err
		}
		return
	}
	c.all.add(record)
}

func (c *contents) check() error {
	if c.err != nil {
		return c.err
	}
	want, err := decodeDigest(c.meta[keyDigest])
	if err != nil {
		return err
	}
	if c.all != want {
		return fmt.Errorf("it holds %d records, not the %d that were written last", c.all.count, want.count)
	}
	if decodeNumber(c.meta[keyVersion]) == 0 {
		return errors.New("no schema version")
	}
	return nil
}
