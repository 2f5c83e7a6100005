package store

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// lockFile is held while the store is open. It is a file of its own: it guards
// also the making of the store, stays in force when someone moves the store's
// file away meanwhile, and says who holds it.
type lockFile struct{ f *os.File }

// acquire takes the lock, or fails with ErrLocked after timeout. The system
// gives the lock back when the process ends, however it ends.
func acquire(path string, timeout time.Duration) (*lockFile, error) {
	const pause = 20 * time.Millisecond
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the state store: %w", err)
	}
	for waited := time.Duration(0); ; waited += pause {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		if waited >= timeout {
			return nil, errors.Join(lockedBy(f), f.Close())
		}
		<-time.After(pause)
	}
	l := &lockFile{f}
	if err := l.sign(); err != nil {
		return nil, errors.Join(err, l.release())
	}
	return l, nil
}

// sign notes who holds the lock, for people only.
func (l *lockFile) sign() error {
	if err := l.f.Truncate(0); err != nil {
		return fmt.Errorf("write %s: %w", l.f.Name(), err)
	}
	// On a full disk the note stays empty; the lock holds all the same.
	_, _ = l.f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return nil
}

func lockedBy(f *os.File) error {
	b := make([]byte, 32)
	n, _ := f.ReadAt(b, 0)
	who := "another process"
	if pid := strings.TrimSpace(string(b[:n])); pid != "" {
		who = "process " + pid
	}
	return fmt.Errorf("%w: %s holds %s: stop that supervisord, or use another data directory",
		ErrLocked, who, f.Name())
}

// release gives the lock back. The file stays: removing it would let two
// processes hold a lock each.
func (l *lockFile) release() error { return l.f.Close() }
