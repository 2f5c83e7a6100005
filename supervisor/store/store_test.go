package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/store"
)

func TestMain(m *testing.M) {
	if run, ok := children()[os.Getenv(childVar)]; ok {
		os.Exit(run(os.Args[len(os.Args)-1]))
	}
	goleak.VerifyTestMain(m)
}

func open(t testing.TB, path string, o store.Options) *store.Store {
	t.Helper()
	s, err := store.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func update(t testing.TB, s *store.Store, f func(tx *store.Tx) error) {
	t.Helper()
	if err := s.Update(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

func consumer(namespace, name string) *supervisorv1.Consumer {
	return &supervisorv1.Consumer{
		Spec:    &supervisorv1.ConsumerSpec{Namespace: namespace, Name: name, Labels: map[string]string{"team": "payments"}},
		Desired: &supervisorv1.Desired{State: supervisorv1.DesiredState_DESIRED_STATE_RUNNING},
		Uid:     "u-" + name, Etag: "e1", Generation: 3,
		Created: timestamppb.New(time.Unix(1700000000, 5)),
	}
}

func receipt(name, id string, completed int64) *supervisorv1.Receipt {
	return &supervisorv1.Receipt{Id: id, Namespace: "shop", Name: name, Completed: completed}
}

func TestWhatIsWrittenIsThereAfterReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := store.Open(path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Boot() != 1 {
		t.Fatalf("first boot is %d", s.Boot())
	}
	orders := consumer("shop", "orders")
	orders.Status = &supervisorv1.Status{State: supervisorv1.State_STATE_RUNNING}
	update(t, s, func(tx *store.Tx) error {
		return errors.Join(
			tx.PutConsumer(consumer("shop-b", "a")),
			tx.PutConsumer(orders),
			tx.PutConsumer(consumer("shop", "a")),
			tx.PutReceipt(receipt("orders", "r1", 7)),
			tx.AppendTransition("shop", "orders", &supervisorv1.Transition{Sequence: 1, Event: "start"}),
		)
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = open(t, path, store.Options{})
	if s.Boot() != 2 {
		t.Errorf("second boot is %d", s.Boot())
	}
	orders.Status = nil
	want := []*supervisorv1.Consumer{consumer("shop", "a"), orders, consumer("shop-b", "a")}
	got, err := s.Load()
	if err != nil || len(got) != len(want) {
		t.Fatalf("loaded %v, %v", got, err)
	}
	for i := range want {
		if !proto.Equal(got[i], want[i]) {
			t.Errorf("consumer %d is %v, want %v", i, got[i], want[i])
		}
	}
	r, err := s.Receipt("r1")
	if err != nil || r.GetCompleted() != 7 {
		t.Errorf("receipt is %v, %v", r, err)
	}
	rows, err := s.Transitions("shop", "orders", 0)
	if err != nil || len(rows) != 1 || rows[0].GetEvent() != "start" {
		t.Errorf("history is %v, %v", rows, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("file mode is %v, %v", info.Mode(), err)
	}
}

func TestListsAreBoundedAndOrdered(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"), store.Options{})
	// Neighbours whose names are prefixes of each other must not mix.
	names := []string{"a", "a-b", "ab"}
	for round := range 3 {
		update(t, s, func(tx *store.Tx) error {
			var errs []error
			for _, name := range names {
				errs = append(errs, tx.PutConsumer(consumer("shop", name)))
				for i := range store.MaxTransitions {
					n := round*store.MaxTransitions + i
					errs = append(errs,
						tx.AppendTransition("shop", name, &supervisorv1.Transition{Sequence: uint64(n)}),
						tx.PutReceipt(receipt(name, fmt.Sprintf("%s-%d", name, n), int64(n))))
				}
			}
			return errors.Join(errs...)
		})
	}
	newest := 3*store.MaxTransitions - 1
	for _, name := range names {
		rows, err := s.Transitions("shop", name, 0)
		if err != nil || len(rows) != store.MaxTransitions {
			t.Fatalf("%d transitions kept, %v", len(rows), err)
		}
		for i, row := range rows {
			if want := uint64(newest - store.MaxTransitions + 1 + i); row.GetSequence() != want {
				t.Fatalf("%s: row %d is %d, want %d", name, i, row.GetSequence(), want)
			}
		}
		if rows, _ = s.Transitions("shop", name, 2); len(rows) != 2 || rows[1].GetSequence() != uint64(newest) {
			t.Errorf("%s: the last two are %v", name, rows)
		}
		receipts, err := s.Receipts("shop", name, 0)
		if err != nil || len(receipts) != store.MaxReceipts {
			t.Fatalf("%d receipts kept, %v", len(receipts), err)
		}
		if receipts[0].GetCompleted() != int64(newest) || receipts[0].GetName() != name {
			t.Errorf("%s: the newest receipt is %v", name, receipts[0])
		}
		if _, err := s.Receipt(fmt.Sprintf("%s-%d", name, newest-store.MaxReceipts)); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: a dropped receipt gives %v", name, err)
		}
	}
}

func TestReceiptIsReplacedInPlace(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"), store.Options{})
	update(t, s, func(tx *store.Tx) error {
		return errors.Join(tx.PutConsumer(consumer("shop", "a")),
			tx.PutReceipt(receipt("a", "r1", 1)), tx.PutReceipt(receipt("a", "r2", 2)))
	})
	update(t, s, func(tx *store.Tx) error { return tx.PutReceipt(receipt("a", "r1", 10)) })
	all, err := s.Receipts("shop", "a", 0)
	if err != nil || len(all) != 2 || all[0].GetCompleted() != 2 || all[1].GetCompleted() != 10 {
		t.Errorf("receipts are %v, %v", all, err)
	}
}

func TestDeleteRemovesAllOfAConsumer(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"), store.Options{})
	update(t, s, func(tx *store.Tx) error {
		return errors.Join(
			tx.PutConsumer(consumer("shop", "a")), tx.PutConsumer(consumer("shop", "ab")),
			tx.PutReceipt(receipt("a", "r1", 1)), tx.PutReceipt(receipt("ab", "r2", 1)),
			tx.AppendTransition("shop", "a", &supervisorv1.Transition{}),
			tx.AppendTransition("shop", "ab", &supervisorv1.Transition{}))
	})
	update(t, s, func(tx *store.Tx) error {
		return errors.Join(tx.DeleteConsumer("shop", "a"), tx.DeleteConsumer("shop", "never"),
			// What still comes of a deleted consumer must not greet its successor.
			tx.PutReceipt(receipt("a", "late", 1)),
			tx.AppendTransition("shop", "a", &supervisorv1.Transition{}))
	})
	update(t, s, func(tx *store.Tx) error { return tx.PutConsumer(consumer("shop", "a")) })
	for name, want := range map[string]int{"a": 0, "ab": 1} {
		receipts, err1 := s.Receipts("shop", name, 0)
		rows, err2 := s.Transitions("shop", name, 0)
		if len(receipts) != want || len(rows) != want || err1 != nil || err2 != nil {
			t.Errorf("%s has %d receipts, %d transitions, %v, %v", name, len(receipts), len(rows), err1, err2)
		}
	}
	for _, id := range []string{"r1", "late"} {
		if _, err := s.Receipt(id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("receipt %s gives %v", id, err)
		}
	}
}

func TestRequestsExpireAndArePruned(t *testing.T) {
	now := time.Unix(1700000000, 0)
	s := open(t, filepath.Join(t.TempDir(), "state.db"), store.Options{Now: func() time.Time { return now }})
	put := func(id string, life time.Duration) {
		t.Helper()
		update(t, s, func(tx *store.Tx) error {
			return tx.PutRequest(store.Request{ID: id, Fingerprint: []byte("f" + id), Response: []byte("r" + id), Expires: now.Add(life)})
		})
	}
	put("a", time.Hour)
	put("b", time.Hour)
	put("a", 3*time.Hour)
	r, err := s.Request("b")
	if err != nil || string(r.Fingerprint) != "fb" || string(r.Response) != "rb" || !r.Expires.Equal(now.Add(time.Hour)) {
		t.Fatalf("request is %+v, %v", r, err)
	}
	now = now.Add(2 * time.Hour)
	if _, err := s.Request("b"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an expired id gives %v", err)
	}
	put("c", time.Hour)
	if got := store.RequestIDs(s); len(got) != 2 || got[0] != "a" || got[1] != "c" {
		t.Errorf("after pruning there are %v", got)
	}
	if r, err := s.Request("a"); err != nil || !r.Expires.Equal(now.Add(time.Hour)) {
		t.Errorf("the id that was used again is %+v, %v", r, err)
	}
}

func TestRequestsAreBounded(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"), store.Options{})
	update(t, s, func(tx *store.Tx) error {
		for i := range store.MaxRequests + 5 {
			r := store.Request{ID: fmt.Sprintf("%06d", i), Expires: time.Now().Add(time.Hour)}
			if err := tx.PutRequest(r); err != nil {
				return err
			}
		}
		return nil
	})
	if got := store.RequestIDs(s); len(got) != store.MaxRequests || got[0] != "000005" {
		t.Errorf("%d requests are kept from %s on", len(got), got[0])
	}
}

func TestBadRecordsAreRefused(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"), store.Options{})
	for what, f := range map[string]func(*store.Tx) error{
		"no name":       func(tx *store.Tx) error { return tx.PutConsumer(consumer("shop", "")) },
		"no namespace":  func(tx *store.Tx) error { return tx.DeleteConsumer("", "a") },
		"NUL":           func(tx *store.Tx) error { return tx.PutConsumer(consumer("a\x00b", "c")) },
		"invalid UTF-8": func(tx *store.Tx) error { return tx.PutConsumer(consumer("a", "\xff")) },
		"receipt id":    func(tx *store.Tx) error { return tx.PutReceipt(receipt("a", "", 1)) },
		"request id":    func(tx *store.Tx) error { return tx.PutRequest(store.Request{ID: string(make([]byte, 129))}) },
	} {
		err := s.Update(t.Context(), func(tx *store.Tx) error {
			return errors.Join(tx.PutConsumer(consumer("shop", "good")), f(tx))
		})
		if err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	if all, err := s.Load(); len(all) != 0 || err != nil {
		t.Errorf("a refused update left %v, %v", all, err)
	}
}

func TestClosedStoreSaysSo(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"), store.Options{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	put := func(tx *store.Tx) error { return tx.PutConsumer(consumer("shop", "a")) }
	if err := s.Update(context.Background(), put); !errors.Is(err, store.ErrClosed) {
		t.Errorf("update gives %v", err)
	}
	if _, err := s.Load(); !errors.Is(err, store.ErrClosed) {
		t.Errorf("load gives %v", err)
	}
}
