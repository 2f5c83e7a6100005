package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
)

const (
	// maxQueue bounds the updates that wait for a disk that hangs.
	maxQueue = 10000
	// slowWrite is when a commit under way counts as a failed one.
	slowWrite = 5 * time.Second
)

// update is what one caller wants written.
type update struct {
	*Tx
	// done gets the result; it never blocks the writer.
	done chan error
}

// Update writes what f puts into the Tx, all or nothing, and returns when it is
// synced to disk. f runs once, at once, on the caller's goroutine; its error is
// returned as it is and nothing is written. Updates are committed in the order
// in which they were queued, and those that come while a commit is under way
// share the next one.
//
// A write that failed is ErrUnavailable and left nothing. When ctx ends first
// the error is ctx's, and the write may still happen, in its order.
func (s *Store) Update(ctx context.Context, f func(*Tx) error) error {
	u := update{Tx: &Tx{}, done: make(chan error, 1)}
	if err := f(u.Tx); err != nil {
		return err
	}
	if len(u.ops) == 0 {
		return nil
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	if err := s.enqueue(u); err != nil {
		return err
	}
	select {
	case err := <-u.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("a write to the state store is still under way: %w", ended(ctx))
	}
}

// ended is ctx's error and its cause.
func ended(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, ctx.Err()) {
		return cause
	}
	return fmt.Errorf("%w: %w", ctx.Err(), cause)
}

// enqueue starts a writer when none runs: an idle store has no goroutine.
func (s *Store) enqueue(u update) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case len(s.queue) >= maxQueue:
		return fmt.Errorf("%w: %d updates wait for the disk: look at it, then try again", ErrUnavailable, len(s.queue))
	}
	s.queue = append(s.queue, u)
	if s.writer == nil {
		s.writer = make(chan struct{})
		go s.write()
	}
	return nil
}

// write commits until nothing is queued.
func (s *Store) write() {
	for group := s.next(); group != nil; group = s.next() {
		err := s.commit(group)
		s.note(err)
		for _, u := range group {
			u.done <- err
		}
	}
}

// next takes all that is queued, or ends the writer.
func (s *Store) next() []update {
	s.mu.Lock()
	defer s.mu.Unlock()
	group := s.queue
	s.queue = nil
	s.writing = time.Time{}
	if group == nil {
		close(s.writer)
		s.writer = nil
		return nil
	}
	s.writing = s.o.Now()
	return group
}

// commit writes a group in one transaction.
func (s *Store) commit(group []update) error {
	if last := s.lastResult(); isFinal(last) {
		return last
	}
	err := s.transact("commit", func(b *batch) error {
		limit := pruneLimit
		for _, u := range group {
			limit += u.adds
			for _, op := range u.ops {
				if err := op(b); err != nil {
					return err
				}
			}
		}
		return b.prune(s.o.Now(), limit)
	})
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrUnavailable, s.path, err)
	}
	return nil
}

// transact commits what f does, or nothing of it.
func (s *Store) transact(op string, f func(*batch) error) error {
	if s.o.Fault != nil {
		if err := s.o.Fault(op); err != nil {
			return err
		}
	}
	err := guard(func() error {
		return s.db.Update(func(tx *bbolt.Tx) error { return commitBatch(tx, f) })
	})
	if isSync(err) {
		return fmt.Errorf("%w: %w", errUnsynced, err)
	}
	return err
}

// note keeps the result of a commit, or the fault of a read. A final one stays.
func (s *Store) note(err error) {
	s.mu.Lock()
	before := s.last
	if !isFinal(before) {
		s.last = err
	}
	s.mu.Unlock()

	var f *fault
	switch {
	case isFinal(before):
	case errors.As(err, &f):
		s.o.Log.Error("The state store failed.", slog.Any("error", err), slog.String("stack", string(f.stack)))
	case err != nil && before == nil:
		s.o.Log.Error("The state store cannot be written.", slog.Any("error", err))
	case err == nil && before != nil:
		s.o.Log.Info("The state store can be written again.")
	}
}

func (s *Store) lastResult() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// errUnsynced: after a failed sync the system forgets which pages are not on
// disk; a later sync would succeed without them.
var errUnsynced = errors.New("a write was not synced, what the disk holds is unknown: look at the disk, then restart supervisord")

// isFinal tells the failures after which the file is not written any more
// until it was opened anew: an unsynced write, and a fault.
func isFinal(err error) bool {
	return errors.Is(err, errUnsynced) || isFault(err)
}

func isFault(err error) bool {
	var f *fault
	return errors.As(err, &f)
}

// isSync tells whether it was a sync that failed a commit of bbolt's. Writes
// and truncations that fail have changed nothing that counts.
func isSync(err error) bool {
	var (
		path  *fs.PathError
		errno syscall.Errno
	)
	switch {
	case err == nil:
		return false
	case errors.As(err, &path):
		return path.Op == "sync"
	case errors.As(err, &errno):
		// bbolt calls fdatasync itself and returns its bare error.
		return true
	}
	return strings.HasPrefix(err.Error(), "file sync error")
}

// Writable is nil when the last write worked, else why it did not. A write
// that takes longer than five seconds counts as failed until it ends. After a
// failed sync, and when the file became unreadable, it stays an error until
// the store is opened anew.
func (s *Store) Writable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil || s.writing.IsZero() {
		return s.last
	}
	if waited := s.o.Now().Sub(s.writing); waited > slowWrite {
		return fmt.Errorf("%w: %s: a write has been waiting for the disk for %v", ErrUnavailable, s.path, waited.Round(time.Second))
	}
	return nil
}
