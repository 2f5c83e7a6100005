// Package store keeps what must outlive the process in one bbolt file: specs
// and desired states, receipts, histories, and the replies to request ids.
//
// What it promises:
//   - An [Store.Update] that returned nil survives a kill and a power cut, as
//     far as the disk keeps what it has synced.
//   - It never begins empty over a file that is there, and never works on one
//     that it cannot read whole. [Open] checks every page and every record
//     against checksums, in time proportional to the file.
//   - A disk that hangs or refuses to write holds up no writer beyond its
//     context, and no reader of what is in memory.
package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

var (
	// ErrLocked: another process has the store open.
	ErrLocked = errors.New("the state store is in use")
	// ErrCorrupt: the file is not what the store wrote.
	ErrCorrupt = errors.New("the state store is damaged")
	// ErrNewer: a newer version of the program wrote the file.
	ErrNewer = errors.New("the state store is of a newer version")
	// ErrUnavailable: a write failed or cannot be accepted.
	ErrUnavailable = errors.New("the state store cannot be written")
	// ErrNotFound: there is no such record.
	ErrNotFound = errors.New("no such record")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("the state store is closed")
)

// Options may be zero.
type Options struct {
	// Now is the clock by which request ids expire; default time.Now.
	Now func() time.Time
	// Log hears of writes that begin to fail and that work again; default none.
	Log *slog.Logger
	// Fault, for tests, is called before each write: with "open" by Open, with
	// "commit" for updates. It may block, like a disk that hangs; its error
	// fails the write, with nothing written.
	Fault func(op string) error
}

const (
	lockTimeout = time.Second
	// closeTimeout bounds how long Close waits for a disk that hangs.
	closeTimeout = 2 * time.Second
)

// Store is an open state store. Its methods are safe for concurrent use.
type Store struct {
	path string
	o    Options
	lock *lockFile
	db   *bbolt.DB
	boot uint64

	mu sync.Mutex
	// queue holds updates that the next commit will take, in order.
	queue []update
	// writer is closed when the running writer has ended; nil without one.
	writer chan struct{}
	// writing is when the commit under way began; zero without one.
	writing time.Time
	// last is the result of the last commit; see isFinal.
	last   error
	closed bool
}

// Open opens the store at path, and makes it (0600) when there is no file. Its
// folder must exist. It waits up to a second for another process that holds
// the store, then fails with ErrLocked. Any doubt about the content of an
// existing file, an empty one included, is ErrCorrupt or ErrNewer.
func Open(path string, o Options) (*Store, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	lock, err := acquire(path+".lock", lockTimeout)
	if err != nil {
		return nil, err
	}
	s := &Store{path: path, o: o, lock: lock}
	if err := s.open(); err != nil {
		return nil, errors.Join(err, lock.release())
	}
	return s, nil
}

func (s *Store) open() error {
	_, err := os.Stat(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = create(s.path)
	}
	if err != nil {
		return fmt.Errorf("state store: %w", err)
	}
	if err := inspect(s.path); err != nil {
		return err
	}
	if s.db, err = openBolt(s.path); err != nil {
		return err
	}
	err = s.transact("open", func(b *batch) error {
		if err := migrate(b); err != nil {
			return err
		}
		s.boot, err = b.increment(keyBoot)
		return err
	})
	if err != nil {
		return errors.Join(fmt.Errorf("%w: %s: %w", ErrUnavailable, s.path, err), s.db.Close())
	}
	return nil
}

// openBolt opens a file that inspect found sound, or makes one.
func openBolt(path string) (db *bbolt.DB, err error) {
	err = guard(func() error {
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{
			Timeout:      lockTimeout,
			FreelistType: bbolt.FreelistMapType,
			NoStatistics: true,
		})
		return err
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("%w: another program has %s open: end it, then start again", ErrLocked, path)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return db, nil
}

// create makes a new file under another name first, so that a process that
// dies here leaves no half of a file that the next one would have to refuse.
func create(path string) error {
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	db, err := openBolt(fresh)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error { return commitBatch(tx, migrate) })
	if err := errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("create %s: %w", fresh, err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Boot counts how often the store was opened, this time included.
func (s *Store) Boot() uint64 { return s.boot }

// Close finishes the updates that were accepted and closes the store. It gives
// up after two seconds when the disk hangs: what was acknowledged is safe, and
// the file stays locked until the process ends.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	writer := s.writer
	s.mu.Unlock()

	if writer != nil {
		ctx, cancel := context.WithTimeoutCause(context.Background(), closeTimeout,
			fmt.Errorf("%w: a write to %s did not end in %v: look at the disk", ErrUnavailable, s.path, closeTimeout))
		defer cancel()
		select {
		case <-writer:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if isFault(s.lastResult()) {
		// See fault: bbolt's Close could wait for ever.
		return s.lock.release()
	}
	return errors.Join(guard(s.db.Close), s.lock.release())
}

// fault is a panic or a memory fault inside bbolt: the mapped file is not what
// it was when it was opened, or cannot be read any more. bbolt's memory is in
// doubt then, and it may still hold locks of its own: it is not called again.
type fault struct {
	what  any
	stack []byte
}

func (f *fault) Error() string {
	return fmt.Sprintf("using the file failed: %v: look at the disk, then restart supervisord, which checks the file", f.what)
}

func (f *fault) Unwrap() []error { return []error{ErrCorrupt, ErrUnavailable} }

// guard runs f and turns a panic, and a fault on mapped memory, into an error.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &fault{what: r, stack: debug.Stack()}
		}
	}()
	return f()
}
