package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// The newest of each consumer are kept.
const (
	MaxReceipts    = 100
	MaxTransitions = 200
)

const (
	// MaxRequests are kept in all; beyond it the oldest go before their time.
	MaxRequests = 10000
	// pruneLimit bounds the expired requests that one commit removes, beside
	// as many as it adds.
	pruneLimit = 64
)

// Request is an answered request, kept so that a repeated one gets the same
// reply.
type Request struct {
	// ID is the caller's, 1 to 128 bytes.
	ID string
	// Fingerprint tells requests apart that come with one id.
	Fingerprint []byte
	Response    []byte
	// Expires is when the id may be used anew.
	Expires time.Time
}

// Tx collects the writes of one [Store.Update]. Each method copies what it is
// given and reports only what is wrong with it; nothing is read or written
// before the function returned.
type Tx struct {
	ops  []func(*batch) error
	adds int
}

// PutConsumer writes a consumer, without its status.
func (t *Tx) PutConsumer(c *supervisorv1.Consumer) error {
	key, err := consumerKey(c.GetSpec().GetNamespace(), c.GetSpec().GetName())
	if err != nil {
		return err
	}
	lasting := &supervisorv1.Consumer{}
	c.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		lasting.ProtoReflect().Set(f, v)
		return true
	})
	lasting.Status = nil
	payload, err := proto.Marshal(lasting)
	if err != nil {
		return fmt.Errorf("encode consumer: %w", err)
	}
	t.do(func(b *batch) error { return b.put(bucketConsumers, key, payload) })
	return nil
}

// DeleteConsumer removes a consumer with its receipts and history. One that is
// not there is no error.
func (t *Tx) DeleteConsumer(namespace, name string) error {
	key, err := consumerKey(namespace, name)
	if err != nil {
		return err
	}
	t.do(func(b *batch) error {
		return errors.Join(
			b.delete(bucketConsumers, key),
			b.deleteAll(bucketTransitions, key, nil),
			b.deleteAll(bucketReceipts, key, b.forgetReceipt),
		)
	})
	return nil
}

// PutReceipt writes a receipt, in place of an earlier one with the same id, and
// drops the oldest of its consumer beyond MaxReceipts. A receipt of a consumer
// that is not there is dropped.
func (t *Tx) PutReceipt(r *supervisorv1.Receipt) error {
	key, err := consumerKey(r.GetNamespace(), r.GetName())
	if err != nil {
		return err
	}
	id := []byte(r.GetId())
	if err := checkID(r.GetId()); err != nil {
		return fmt.Errorf("receipt: %w", err)
	}
	payload, err := proto.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode receipt: %w", err)
	}
	t.do(func(b *batch) error {
		at, err := b.get(bucketReceiptIDs, id)
		if err != nil {
			return err
		}
		if at != nil {
			return b.put(bucketReceipts, bytes.Clone(at), payload)
		}
		at, err = b.append(bucketReceipts, key, payload, MaxReceipts, b.forgetReceipt)
		if err != nil || at == nil {
			return err
		}
		return b.put(bucketReceiptIDs, id, at)
	})
	return nil
}

// AppendTransition adds to a consumer's history, and drops its oldest beyond
// MaxTransitions. A transition of a consumer that is not there is dropped.
// Collect those of many consumers and write them in one Update.
func (t *Tx) AppendTransition(namespace, name string, row *supervisorv1.Transition) error {
	key, err := consumerKey(namespace, name)
	if err != nil {
		return err
	}
	payload, err := proto.Marshal(row)
	if err != nil {
		return fmt.Errorf("encode transition: %w", err)
	}
	t.do(func(b *batch) error {
		_, err := b.append(bucketTransitions, key, payload, MaxTransitions, nil)
		return err
	})
	return nil
}

// PutRequest writes the answer to a request, in place of an earlier one with
// the same id.
func (t *Tx) PutRequest(r Request) error {
	if err := checkID(r.ID); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	id := []byte(r.ID)
	payload := r.encode()
	t.adds++
	t.do(func(b *batch) error { return b.putRequest(id, payload) })
	return nil
}

func (t *Tx) do(op func(*batch) error) { t.ops = append(t.ops, op) }

func checkID(id string) error {
	if len(id) < 1 || len(id) > 128 {
		return fmt.Errorf("an id has 1 to 128 bytes, not %d", len(id))
	}
	return nil
}

// consumerKey is also the prefix of all keys below a consumer.
func consumerKey(namespace, name string) ([]byte, error) {
	for _, s := range []string{namespace, name} {
		if s == "" || len(s) > 255 || strings.IndexByte(s, 0) >= 0 {
			return nil, fmt.Errorf("bad consumer name %q/%q", namespace, name)
		}
	}
	return []byte(namespace + "\x00" + name + "\x00"), nil
}

// encode leaves the id to the key and the place in the log to the batch:
// expiry in Unix nanoseconds, the fingerprint after its length, the response.
func (r Request) encode() []byte {
	b := encodeNumber(uint64(r.Expires.UnixNano()))
	b = binary.BigEndian.AppendUint32(b, uint32(len(r.Fingerprint)))
	b = append(b, r.Fingerprint...)
	return append(b, r.Response...)
}

// placed is a request with its place in the log.
type placed struct {
	Request
	place uint64
}

// request reads and copies one.
func request(tx *bbolt.Tx, id []byte) (placed, error) {
	b, err := get(tx, bucketRequests, id)
	if err != nil {
		return placed{}, err
	}
	if b == nil {
		return placed{}, fmt.Errorf("%w: request id %q", ErrNotFound, id)
	}
	const head = 8 + 8 + 4
	if len(b) < head || int(binary.BigEndian.Uint32(b[16:])) > len(b)-head {
		return placed{}, fmt.Errorf("%w: request id %q is too short", ErrCorrupt, id)
	}
	end := head + int(binary.BigEndian.Uint32(b[16:]))
	return placed{
		place: decodeNumber(b[:8]),
		Request: Request{
			ID:          string(id),
			Expires:     time.Unix(0, int64(decodeNumber(b[8:16]))),
			Fingerprint: bytes.Clone(b[head:end]),
			Response:    bytes.Clone(b[end:]),
		},
	}, nil
}
