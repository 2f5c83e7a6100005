package store_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/store"
)

// model is what the store should hold, the simple way.
type model struct {
	consumers map[string]int64
	receipts  map[string][]string
	rows      map[string][]uint64
	requests  map[string]time.Time
}

func (m *model) delete(name string) {
	delete(m.consumers, name)
	delete(m.receipts, name)
	delete(m.rows, name)
}

// machine is a store under random use.
type machine struct {
	path string
	now  time.Time
	fail bool
	next uint64
	s    *store.Store
	model
}

func (m *machine) open(t *rapid.T) {
	var err error
	m.s, err = store.Open(m.path, store.Options{
		Now: func() time.Time { return m.now },
		Fault: func(op string) error {
			if m.fail && op == "commit" {
				return syscall.ENOSPC
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (m *machine) reopen(t *rapid.T) {
	if err := errors.Join(boltCheck(store.DB(m.s)), m.s.Close()); err != nil {
		t.Fatal(err)
	}
	m.open(t)
}

// update draws a transaction and applies it to the store, and to the model
// unless the disk is full.
func (m *machine) update(t *rapid.T) {
	var apply []func()
	err := m.s.Update(t.Context(), func(tx *store.Tx) error {
		var errs []error
		for range rapid.IntRange(1, 20).Draw(t, "operations") {
			f, err := m.operation(t, tx)
			errs, apply = append(errs, err), append(apply, f)
		}
		return errors.Join(errs...)
	})
	if m.fail != (err != nil) {
		t.Fatalf("disk full: %v, but the update gives %v", m.fail, err)
	}
	if !m.fail {
		for _, f := range apply {
			f()
		}
	}
}

func (m *machine) operation(t *rapid.T, tx *store.Tx) (func(), error) {
	name := rapid.SampledFrom([]string{"a", "a-b", "ab", "b"}).Draw(t, "name")
	m.next++
	n := m.next
	switch rapid.IntRange(0, 5).Draw(t, "operation") {
	case 0:
		c := consumer("shop", name)
		c.Generation = int64(n)
		return func() { m.consumers[name] = int64(n) }, tx.PutConsumer(c)
	case 1:
		return func() { m.delete(name) }, tx.DeleteConsumer("shop", name)
	case 2:
		id := fmt.Sprint("r", n)
		return func() {
			if _, ok := m.consumers[name]; ok {
				m.receipts[name] = newest(append(m.receipts[name], id), store.MaxReceipts)
			}
		}, tx.PutReceipt(receipt(name, id, 1))
	case 3:
		id, expires := fmt.Sprint("q", n%7), m.now.Add(time.Duration(rapid.IntRange(1, 90).Draw(t, "life"))*time.Minute)
		return func() { m.requests[id] = expires }, tx.PutRequest(store.Request{ID: id, Expires: expires})
	default:
		return func() {
			if _, ok := m.consumers[name]; ok {
				m.rows[name] = newest(append(m.rows[name], n), store.MaxTransitions)
			}
		}, tx.AppendTransition("shop", name, &supervisorv1.Transition{Sequence: n})
	}
}

func newest[E any](all []E, limit int) []E { return all[max(0, len(all)-limit):] }

func (m *machine) check(t *rapid.T) {
	all, err := m.s.Load()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range all {
		name := c.GetSpec().GetName()
		names = append(names, name)
		if m.consumers[name] != c.GetGeneration() {
			t.Fatalf("%s is of generation %d, want %d", name, c.GetGeneration(), m.consumers[name])
		}
	}
	if !sort.StringsAreSorted(names) || len(names) != len(m.consumers) {
		t.Fatalf("loaded %v, want %v", names, m.consumers)
	}
	for _, name := range []string{"a", "a-b", "ab", "b"} {
		m.checkLists(t, name)
	}
	for id, expires := range m.requests {
		r, err := m.s.Request(id)
		if valid := m.now.Before(expires); valid != (err == nil) || valid && !r.Expires.Equal(expires) {
			t.Fatalf("request %s until %v at %v is %v, %v", id, expires, m.now, r, err)
		}
	}
}

func (m *machine) checkLists(t *rapid.T, name string) {
	receipts, err := m.s.Receipts("shop", name, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range slices.Backward(receipts) {
		ids = append(ids, r.GetId())
	}
	if !slices.Equal(ids, m.receipts[name]) {
		t.Fatalf("%s has receipts %v, want %v", name, ids, m.receipts[name])
	}
	history, err := m.s.Transitions("shop", name, 0)
	if err != nil {
		t.Fatal(err)
	}
	var rows []uint64
	for _, row := range history {
		rows = append(rows, row.GetSequence())
	}
	if !slices.Equal(rows, m.rows[name]) {
		t.Fatalf("%s has transitions %v, want %v", name, rows, m.rows[name])
	}
}

func TestStoreDoesWhatItsModelDoes(t *testing.T) {
	dir, runs := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		m := &machine{
			path: filepath.Join(dir, strconv.Itoa(runs)), now: time.Unix(1700000000, 0),
			model: model{map[string]int64{}, map[string][]string{}, map[string][]uint64{}, map[string]time.Time{}},
		}
		m.open(t)
		defer func() { _ = m.s.Close() }()
		t.Repeat(map[string]func(*rapid.T){
			"update":   m.update,
			"update 2": m.update,
			"reopen":   m.reopen,
			"full":     func(*rapid.T) { m.fail = !m.fail },
			"clock": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "minutes")) * time.Minute)
			},
			"": m.check,
		})
	})
}
