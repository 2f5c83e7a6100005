package store_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/store"
)

// filled makes a store of 10,000 consumers with half of the history that is
// kept of each.
func filled(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "state.db")
	s, err := store.Open(path, store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for from := 0; from < 10000; from += 500 {
		update(b, s, func(tx *store.Tx) error {
			var errs []error
			for i := from; i < from+500; i++ {
				name := fmt.Sprint("c", i)
				errs = append(errs, tx.PutConsumer(consumer("shop", name)))
				for j := range store.MaxTransitions / 2 {
					errs = append(errs, tx.AppendTransition("shop", name, &supervisorv1.Transition{Sequence: uint64(j), Event: "start"}))
				}
				for j := range store.MaxReceipts / 2 {
					errs = append(errs, tx.PutReceipt(receipt(name, fmt.Sprint(name, "-", j), int64(j))))
				}
			}
			return errors.Join(errs...)
		})
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	return path
}

// BenchmarkOpen checks and opens a full store.
func BenchmarkOpen(b *testing.B) {
	path := filled(b)
	for b.Loop() {
		s, err := store.Open(path, store.Options{})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkUpdate is what one caller waits for, alone, and the share of one
// among many callers.
func BenchmarkUpdate(b *testing.B) {
	path := filled(b)
	s := open(b, path, store.Options{})
	b.Run("alone", func(b *testing.B) {
		for b.Loop() {
			update(b, s, put("c1", b.N))
		}
	})
	b.Run("256 callers", func(b *testing.B) {
		b.SetParallelism(128)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := s.Update(b.Context(), put("c1", b.N)); err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("2000 transitions", func(b *testing.B) {
		for b.Loop() {
			update(b, s, func(tx *store.Tx) error {
				for i := range 2000 {
					if err := tx.AppendTransition("shop", fmt.Sprint("c", i), &supervisorv1.Transition{Event: "start"}); err != nil {
						return err
					}
				}
				return nil
			})
		}
	})
}
