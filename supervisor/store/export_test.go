package store

import "go.etcd.io/bbolt"

// RequestIDs lists the request ids that are kept, expired or not.
func RequestIDs(s *Store) []string {
	var ids []string
	_ = s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketRequests).ForEach(func(k, _ []byte) error {
			ids = append(ids, string(k))
			return nil
		})
	})
	return ids
}

// CheckPages and InspectFile are what Open does before bbolt gets the file.
var (
	CheckPages  = checkPages
	InspectFile = inspectFile
	IsSync      = isSync
)

// MaxQueue bounds the updates that wait.
const MaxQueue = maxQueue

// ErrUnsynced is what a failed sync gives.
var ErrUnsynced = errUnsynced

// DB is for tests that compare with bbolt's own view.
func DB(s *Store) *bbolt.DB { return s.db }

// WriteVersion makes the store look as if a newer program had written it.
func WriteVersion(s *Store, version uint64) error {
	return s.transact("commit", func(b *batch) error { return b.put(bucketMeta, keyVersion, encodeNumber(version)) })
}
