package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/store"
)

// populated makes a store with branch pages, overflowing pages and free pages.
func populated(t testing.TB) (path string, content []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "state.db")
	s, err := store.Open(path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		name := fmt.Sprintf("c%03d", i)
		c := consumer("shop", name)
		if i == 5 {
			c.Spec.Labels["note"] = strings.Repeat("x", 10000)
		}
		update(t, s, func(tx *store.Tx) error {
			errs := []error{tx.PutConsumer(c)}
			for j := range 10 {
				errs = append(errs, tx.PutReceipt(receipt(name, fmt.Sprintf("%s-%d", name, j), 1)),
					tx.AppendTransition("shop", name, &supervisorv1.Transition{Sequence: uint64(j)}))
			}
			return errors.Join(append(errs, tx.PutRequest(store.Request{ID: name, Expires: time.Now()}))...)
		})
	}
	update(t, s, func(tx *store.Tx) error { return tx.DeleteConsumer("shop", "c007") })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	content, err = os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, content
}

// records reads a file as Open does.
func records(content []byte) (map[string]string, error) {
	all := map[string]string{}
	err := store.CheckPages(bytes.NewReader(content), int64(len(content)), func(bucket string, key, value []byte) {
		all[bucket+"/"+string(key)] = string(value)
	})
	if err == nil {
		err = store.InspectFile(bytes.NewReader(content), int64(len(content)))
	}
	return all, err
}

func seed(t testing.TB) *rand.Rand {
	t.Helper()
	n := uint64(time.Now().UnixNano())
	t.Logf("seed %d", n)
	return rand.New(rand.NewPCG(n, 0))
}

// Every flip of a bit is either found or changes no record.
func TestBitFlipsAreFoundOrHarmless(t *testing.T) {
	_, content := populated(t)
	want, err := records(content)
	if err != nil {
		t.Fatal(err)
	}
	r, found, harmless := seed(t), 0, 0
	for range 1500 {
		bit := r.IntN(8 * len(content))
		content[bit/8] ^= 1 << (bit % 8)
		got, err := records(content)
		content[bit/8] ^= 1 << (bit % 8)
		switch {
		case err != nil:
			found++
		case !maps.Equal(got, want):
			t.Fatalf("bit %d changed a record and was not found", bit)
		default:
			harmless++
		}
	}
	if found < 50 || harmless < 50 {
		t.Errorf("%d flips found, %d harmless: the test looks at the wrong bits", found, harmless)
	}
}

// Pages that were lost, doubled, zeroed or put elsewhere, as disks and file
// systems do it.
func TestMisplacedPagesAreFoundOrHarmless(t *testing.T) {
	_, content := populated(t)
	want, err := records(content)
	if err != nil {
		t.Fatal(err)
	}
	page, r, found := os.Getpagesize(), seed(t), 0
	for range 500 {
		damaged := bytes.Clone(content)
		at := r.IntN(len(content)/page) * page
		switch from := r.IntN(len(content)/page) * page; r.IntN(4) {
		case 0:
			clear(damaged[at : at+page])
		case 1:
			copy(damaged[at:at+page], content[from:])
		case 2:
			clear(damaged[at+512*r.IntN(page/512) : at+page])
		case 3:
			damaged = damaged[:at+r.IntN(page)]
		}
		got, err := records(damaged)
		if err != nil {
			found++
		} else if !maps.Equal(got, want) {
			t.Fatal("damage changed a record and was not found")
		}
	}
	if found < 125 {
		t.Errorf("only %d of 500 were found", found)
	}
}

// The same through Open, with the store in use afterwards: bits of any place,
// and bits of each kind of place that bbolt follows.
func TestOpenWithFlippedBits(t *testing.T) {
	path, content := populated(t)
	s := open(t, path, store.Options{})
	want, err := boltRecords(store.DB(s))
	if err != nil {
		t.Fatal(err)
	}
	r, file := seed(t), filepath.Join(t.TempDir(), "state.db")
	for place, bytesOf := range places(content) {
		t.Run(place, func(t *testing.T) {
			found := 0
			for range 200 {
				bit := 8*bytesOf[r.IntN(len(bytesOf))] + r.IntN(8)
				if flipped(t, file, content, bit, want) {
					found++
				}
			}
			if found < 5 {
				t.Errorf("%d flips were found: the test looks at the wrong bits", found)
			}
		})
	}
}

// places are the offsets of the bytes of each kind.
func places(content []byte) map[string][]int {
	all := map[string][]int{}
	add := func(place string, from, to int) {
		for i := from; i < to; i++ {
			all[place] = append(all[place], i)
		}
	}
	page := os.Getpagesize()
	add("anywhere", 0, len(content))
	add("meta", 16, 16+64)
	add("meta", page+16, page+16+64)
	for at := 2 * page; at < len(content); at += page {
		count := int(binary.NativeEndian.Uint16(content[at+10:]))
		flags := binary.NativeEndian.Uint16(content[at+8:])
		if flags != 0 {
			add("header", at, at+16)
		}
		switch flags {
		case 0x01:
			add("branch", at, at+16+count*40)
		case 0x02:
			add("leaf", at, at+16+count*16)
		case 0x10:
			add("freelist", at, at+16+count*8)
			add("length of the freelist", at+10, at+12)
		}
	}
	return all
}

// flipped opens a file with one bit flipped, and tells whether that was found.
// When not, the store must be whole and stay so.
func flipped(t *testing.T, file string, content []byte, bit int, want map[string]string) bool {
	t.Helper()
	damaged := bytes.Clone(content)
	damaged[bit/8] ^= 1 << (bit % 8)
	if err := os.WriteFile(file, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(file, store.Options{})
	if err != nil {
		if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "restore") {
			t.Errorf("bit %d: %v", bit, err)
		}
		if left, _ := os.ReadFile(file); !bytes.Equal(left, damaged) {
			t.Errorf("bit %d: the refused file was changed", bit)
		}
		return true
	}
	got, err := boltRecords(store.DB(s))
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("bit %d: it holds something else, %v", bit, err)
	}
	update(t, s, func(tx *store.Tx) error { return tx.DeleteConsumer("shop", "c001") })
	if err := errors.Join(boltCheck(store.DB(s)), s.Close()); err != nil {
		t.Errorf("bit %d: %v", bit, err)
	}
	return false
}

// boltRecords are all records as bbolt reads them, without the store's own.
func boltRecords(db *bbolt.DB) (map[string]string, error) {
	all := map[string]string{}
	err := db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				if string(name) != "meta" {
					all[string(name)+"/"+string(k)] = string(v)
				}
				return nil
			})
		})
	})
	return all, err
}

// boltCheck is bbolt's own check.
func boltCheck(db *bbolt.DB) error {
	return db.View(func(tx *bbolt.Tx) error {
		var errs []error
		for err := range tx.Check() {
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

func TestWhatIsNoStoreIsRefused(t *testing.T) {
	_, content := populated(t)
	for what, file := range map[string][]byte{
		"empty":       {},
		"text":        []byte("namespace: shop\n"),
		"zeroes":      make([]byte, 1<<16),
		"cut short":   content[:3*os.Getpagesize()],
		"half a page": content[:os.Getpagesize()/2],
	} {
		path := filepath.Join(t.TempDir(), "state.db")
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := store.Open(path, store.Options{}); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %v, %v", what, s, err)
		}
		if left, _ := os.ReadFile(path); !bytes.Equal(left, file) {
			t.Errorf("%s: the refused file was changed", what)
		}
	}
	if _, err := store.Open(t.TempDir(), store.Options{}); err == nil {
		t.Error("a folder was opened")
	}
}

// A bbolt file of another program has buckets, but no digest.
func TestForeignBoltFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(path, store.Options{}); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("opened: %v", err)
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := store.Open(path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(store.WriteVersion(s, 99), s.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(path, store.Options{}); !errors.Is(err, store.ErrNewer) || !strings.Contains(err.Error(), "99") {
		t.Errorf("opened: %v", err)
	}
}

// A process that died while it made the store leaves nothing in the way.
func TestHalfMadeStoreIsMadeAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	if err := os.WriteFile(path+".new", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s := open(t, path, store.Options{}); s.Boot() != 1 {
		t.Errorf("boot is %d", s.Boot())
	}
}

// What bbolt writes and holds sound, the page check must hold sound: random
// writes of all sizes, compared after each commit.
func TestPageCheckAgreesWithBolt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "any.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	r := seed(t)
	for i := range 300 {
		if err := db.Update(func(tx *bbolt.Tx) error { return randomWrites(tx, r) }); err != nil {
			t.Fatal(err)
		}
		if err := boltCheck(db); err != nil {
			t.Fatal(err)
		}
		if err := sameRecords(db, path); err != nil {
			t.Fatalf("commit %d: %v", i, err)
		}
	}
}

func randomWrites(tx *bbolt.Tx, r *rand.Rand) error {
	bucket := fmt.Append(nil, "bucket", r.IntN(4))
	b, err := tx.CreateBucketIfNotExists(bucket)
	if err != nil {
		return err
	}
	for range r.IntN(60) {
		key := fmt.Append(nil, r.IntN(3000), strings.Repeat("k", r.IntN(80)*r.IntN(2)))
		size := r.IntN(200)
		if r.IntN(20) == 0 {
			size = r.IntN(30000)
		}
		if err := b.Put(key, make([]byte, size)); err != nil {
			return err
		}
	}
	c := b.Cursor()
	for key, _ := c.Seek(fmt.Append(nil, r.IntN(3000))); key != nil && r.IntN(40) != 0; key, _ = c.Next() {
		if err := c.Delete(); err != nil {
			return err
		}
	}
	if r.IntN(50) == 0 {
		return tx.DeleteBucket(bucket)
	}
	return nil
}

func sameRecords(db *bbolt.DB, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	got := map[string]string{}
	if err := store.CheckPages(f, info.Size(), func(bucket string, key, value []byte) {
		if bucket != "meta" {
			got[bucket+"/"+string(key)] = string(value)
		}
	}); err != nil {
		return err
	}
	want, err := boltRecords(db)
	if err == nil && !maps.Equal(got, want) {
		err = fmt.Errorf("%d records, bbolt has %d", len(got), len(want))
	}
	return err
}
