package store

import (
	"io"

	"go.etcd.io/bbolt"
)

// MaxQueue bounds the updates that wait.
const MaxQueue = maxQueue

// CheckPages is the first of what Open does before bbolt gets the file.
func CheckPages(r io.ReaderAt, size int64, visit func(bucket string, key, value []byte)) error {
	return checkPages(r, size, visit)
}

// InspectFile is all of it.
func InspectFile(r io.ReaderAt, size int64) error { return inspectFile(r, size) }

// IsSync tells whether it was a sync that failed a commit.
func IsSync(err error) bool { return isSync(err) }

// Unsynced is what a failed sync gives.
func Unsynced() error { return errUnsynced }

// DB is for tests that compare with bbolt's own view.
func DB(s *Store) *bbolt.DB { return s.db }

// RequestIDs lists the request ids that are kept, expired or not.
func RequestIDs(s *Store) []string {
	var ids []string
	_ = s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucketRequests)).ForEach(func(k, _ []byte) error {
			ids = append(ids, string(k))
			return nil
		})
	})
	return ids
}

// WriteVersion makes the store look as if a newer program had written it.
func WriteVersion(s *Store, version uint64) error {
	return s.transact("commit", func(b *batch) error {
		return b.put(bucketMeta, []byte(keyVersion), encodeNumber(version))
	})
}
