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

// CheckPages is what Open does before it gives a file to bbolt.
var CheckPages = checkPages

// DB is for tests that compare with bbolt's own view.
func DB(s *Store) *bbolt.DB { return s.db }
