package store

import (
	"bytes"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"google.golang.org/protobuf/proto"

	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// Load returns every consumer, without status, by namespace and name.
func (s *Store) Load() ([]*supervisorv1.Consumer, error) {
	var all []*supervisorv1.Consumer
	err := s.view(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketConsumers)).ForEach(func(key, record []byte) error {
			c := &supervisorv1.Consumer{}
			all = append(all, c)
			return decode(bucketConsumers, key, record, c)
		})
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Receipts returns a consumer's receipts, newest first, at most limit; all that
// are kept with limit 0.
func (s *Store) Receipts(namespace, name string, limit int) ([]*supervisorv1.Receipt, error) {
	return list(s, bucketReceipts, namespace, name, limit,
		func() *supervisorv1.Receipt { return &supervisorv1.Receipt{} })
}

// Receipt returns the receipt of an operation, or ErrNotFound.
func (s *Store) Receipt(id string) (*supervisorv1.Receipt, error) {
	r := &supervisorv1.Receipt{}
	err := s.view(func(tx *bbolt.Tx) error {
		key, err := get(tx, bucketReceiptIDs, []byte(id))
		if err != nil {
			return err
		}
		if key == nil {
			return fmt.Errorf("%w: receipt %q", ErrNotFound, id)
		}
		record := tx.Bucket([]byte(bucketReceipts)).Get(key)
		return decode(bucketReceipts, key, record, r)
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Transitions returns a consumer's last transitions, newest last, at most
// limit; all that are kept with limit 0.
func (s *Store) Transitions(namespace, name string, limit int) ([]*supervisorv1.Transition, error) {
	rows, err := list(s, bucketTransitions, namespace, name, limit,
		func() *supervisorv1.Transition { return &supervisorv1.Transition{} })
	for i, j := 0, len(rows)-1; i < j; i, j = i+1, j-1 {
		rows[i], rows[j] = rows[j], rows[i]
	}
	return rows, err
}

// Request returns the answer to an earlier request, or ErrNotFound, also when
// it has expired.
func (s *Store) Request(id string) (Request, error) {
	var r placed
	err := s.view(func(tx *bbolt.Tx) (err error) {
		r, err = request(tx, []byte(id))
		return err
	})
	if err == nil && !s.o.Now().Before(r.Expires) {
		err = fmt.Errorf("%w: request id %q has expired", ErrNotFound, id)
	}
	if err != nil {
		return Request{}, err
	}
	return r.Request, nil
}

// list reads a bounded list backwards.
func list[M proto.Message](s *Store, bucket, namespace, name string, limit int, empty func() M) ([]M, error) {
	prefix, err := consumerKey(namespace, name)
	if err != nil {
		return nil, err
	}
	var all []M
	err = s.view(func(tx *bbolt.Tx) error {
		c := tx.Bucket([]byte(bucket)).Cursor()
		for key, record := seekEnd(c, prefix); bytes.HasPrefix(key, prefix); key, record = c.Prev() {
			m := empty()
			if err := decode(bucket, key, record, m); err != nil {
				return err
			}
			all = append(all, m)
			if len(all) == limit {
				break
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func decode(bucket string, key, record []byte, m proto.Message) error {
	payload, err := unseal(bucket, key, record)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(payload, m); err != nil {
		return fmt.Errorf("%w: %s %q: %w", ErrCorrupt, bucket, key, err)
	}
	return nil
}

func (s *Store) view(f func(*bbolt.Tx) error) error {
	if last := s.lastResult(); isFault(last) {
		return last
	}
	err := guard(func() error { return s.db.View(f) })
	switch {
	case errors.Is(err, bolterrors.ErrDatabaseNotOpen):
		return ErrClosed
	case errors.Is(err, errChecksum):
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, s.path, err)
	case isFault(err):
		err = fmt.Errorf("%s: %w", s.path, err)
		s.note(err)
	}
	return err
}
