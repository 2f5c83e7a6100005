package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/store"
)

func put(name string, generation int) func(*store.Tx) error {
	c := consumer("shop", name)
	c.Generation = int64(generation)
	return func(tx *store.Tx) error { return tx.PutConsumer(c) }
}

func TestUpdatesShareCommitsInOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	synctest.Test(t, func(t *testing.T) {
		commits := 0
		s := open(t, path, store.Options{Fault: func(string) error {
			commits++
			time.Sleep(time.Second) //nolint:forbidigo // virtual time
			return nil
		}})
		commits = 0
		var callers sync.WaitGroup
		for i := range 100 {
			callers.Go(func() {
				if err := s.Update(t.Context(), put("a", i)); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		callers.Wait()
		if commits != 2 {
			t.Errorf("100 updates took %d commits: the first one and one for those that came meanwhile", commits)
		}
		if all, err := s.Load(); err != nil || len(all) != 1 || all[0].GetGeneration() != 99 {
			t.Errorf("the last update did not win: %v, %v", all, err)
		}
	})
}

func TestHungDiskHoldsNobodyBeyondTheirContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		s := open(t, path, store.Options{Fault: func(op string) error {
			if op == "commit" {
				<-hang
			}
			return nil
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Update(ctx, put("a", 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("update gives %v", err)
		}
		if err := s.Update(ctx, put("never", 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("update with a dead context gives %v", err)
		}
		if err := s.Writable(); err != nil {
			t.Errorf("after a second: %v", err)
		}
		time.Sleep(10 * time.Second) //nolint:forbidigo // virtual time
		if err := s.Writable(); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("after eleven seconds: %v", err)
		}
		if all, err := s.Load(); len(all) != 0 || err != nil {
			t.Errorf("loaded %v, %v", all, err)
		}
		close(hang)
		update(t, s, put("b", 1))
		if all, err := s.Load(); err != nil || len(all) != 2 || all[0].GetSpec().GetName() != "a" {
			t.Errorf("loaded %v, %v", all, err)
		}
		if err := s.Writable(); err != nil {
			t.Errorf("after the hang: %v", err)
		}
	})
}

func TestCauseOfAContextIsKept(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"), store.Options{})
	cause := errors.New("the caller hung up")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := s.Update(ctx, put("a", 1)); !errors.Is(err, cause) || !errors.Is(err, context.Canceled) {
		t.Errorf("update gives %v", err)
	}
}

func TestQueueIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		s := open(t, path, store.Options{Fault: func(op string) error {
			if op == "commit" {
				<-hang
			}
			return nil
		}})
		var callers sync.WaitGroup
		caller := func() {
			if err := s.Update(t.Context(), put("a", 1)); err != nil {
				t.Error(err)
			}
		}
		callers.Go(caller)
		synctest.Wait()
		for range store.MaxQueue {
			callers.Go(caller)
		}
		synctest.Wait()
		if err := s.Update(t.Context(), put("a", 1)); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("one too many gives %v", err)
		}
		close(hang)
		callers.Wait()
	})
}

func TestCloseGivesUpOnAHungDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		s, err := store.Open(path, store.Options{Fault: func(op string) error {
			if op == "commit" {
				<-hang
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		written := make(chan error, 1)
		go func() { written <- s.Update(t.Context(), put("a", 1)) }()
		synctest.Wait()
		begin := time.Now()
		if err := s.Close(); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("close gives %v", err)
		}
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("close took %v", took)
		}
		close(hang)
		if err := <-written; err != nil {
			t.Errorf("the update that was under way gives %v", err)
		}
	})
}

func TestCloseFinishesWhatWasAccepted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(path, store.Options{Fault: func(string) error {
			time.Sleep(100 * time.Millisecond) //nolint:forbidigo // virtual time
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		var callers sync.WaitGroup
		for i := range 5 {
			callers.Go(func() {
				if err := s.Update(t.Context(), put(fmt.Sprint("c", i), 1)); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		callers.Wait()
	})
	if all, err := open(t, path, store.Options{}).Load(); len(all) != 5 || err != nil {
		t.Errorf("loaded %v, %v", all, err)
	}
}

func TestFailedWriteLeavesNothingAndTheNextWorks(t *testing.T) {
	var full atomic.Bool
	var log bytes.Buffer
	s := open(t, filepath.Join(t.TempDir(), "state.db"), store.Options{
		Log: slog.New(slog.NewTextHandler(&log, nil)),
		Fault: func(string) error {
			if full.Load() {
				return syscall.ENOSPC
			}
			return nil
		},
	})
	full.Store(true)
	for range 2 {
		err := s.Update(t.Context(), put("a", 1))
		if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("update gives %v", err)
		}
	}
	if err := s.Writable(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("writable: %v", err)
	}
	if all, err := s.Load(); len(all) != 0 || err != nil {
		t.Errorf("a failed write left %v, %v", all, err)
	}
	full.Store(false)
	update(t, s, put("b", 1))
	if err := s.Writable(); err != nil {
		t.Errorf("writable: %v", err)
	}
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("the log has %d lines, not one for the first failure and one for the recovery:\n%s", n, &log)
	}
}

func TestAfterAFailedSyncNothingIsWritten(t *testing.T) {
	fail := false
	s := open(t, filepath.Join(t.TempDir(), "state.db"), store.Options{Fault: func(string) error {
		if fail {
			return fmt.Errorf("%w: %w", store.Unsynced(), syscall.EIO)
		}
		return nil
	}})
	fail = true
	if err := s.Update(t.Context(), put("a", 1)); !errors.Is(err, syscall.EIO) {
		t.Errorf("update gives %v", err)
	}
	fail = false
	if err := s.Update(t.Context(), put("a", 1)); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a later update gives %v", err)
	}
	if err := s.Writable(); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "restart") {
		t.Errorf("writable: %v", err)
	}
}

func TestWhichFailuresAreOfASync(t *testing.T) {
	for want, errs := range map[bool][]error{
		true: {syscall.EIO, &fs.PathError{Op: "sync", Err: syscall.EIO}, errors.New("file sync error: input/output error")},
		false: {nil, &fs.PathError{Op: "write", Err: syscall.ENOSPC},
			errors.New("file resize error: file too large"), errors.New("database reached maximum size")},
	} {
		for _, err := range errs {
			if store.IsSync(err) != want {
				t.Errorf("%v: not %v", err, want)
			}
		}
	}
}

// A file that is cut off while it is mapped faults; the process must live on.
func TestFileThatVanishesUnderneath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	var log bytes.Buffer
	s := open(t, path, store.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	update(t, s, func(tx *store.Tx) error {
		var errs []error
		for i := range 1000 {
			errs = append(errs, tx.PutConsumer(consumer("shop", fmt.Sprint("c", i))))
		}
		return errors.Join(errs...)
	})
	if err := os.Truncate(path, int64(os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := s.Load(); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("load gives %v", err)
		}
		if err := s.Update(t.Context(), put("c1", 1)); !errors.Is(err, store.ErrCorrupt) || !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("update gives %v", err)
		}
	}
	if !strings.Contains(log.String(), "stack=") {
		t.Errorf("no stack in the log: %s", &log)
	}
}

func TestManyTransitionsInOneUpdate(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "state.db"), store.Options{})
	const consumers = 2000
	write := func(f func(tx *store.Tx, name string) error) {
		update(t, s, func(tx *store.Tx) error {
			for i := range consumers {
				if err := f(tx, fmt.Sprint("c", i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	write(func(tx *store.Tx, name string) error { return tx.PutConsumer(consumer("shop", name)) })
	for range 3 {
		write(func(tx *store.Tx, name string) error {
			return tx.AppendTransition("shop", name, &supervisorv1.Transition{Event: "start"})
		})
	}
	rows, err := s.Transitions("shop", "c1999", 0)
	if err != nil || len(rows) != 3 {
		t.Errorf("%d transitions, %v", len(rows), err)
	}
}
