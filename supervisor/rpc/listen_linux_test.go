package rpc

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// The mode must be right from the first moment, not after a chmod.
func TestSocketIsBornPrivate(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	dir := t.TempDir()
	stop, seen := make(chan struct{}), make(chan os.FileMode, 1)
	path := filepath.Join(dir, "s.sock")
	go func() {
		worst := os.FileMode(0)
		for {
			select {
			case <-stop:
				seen <- worst
				return
			default:
				if info, err := os.Stat(path); err == nil {
					worst |= info.Mode().Perm()
				}
			}
		}
	}()
	for range 200 {
		l, err := Listen(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if worst := <-seen; worst != 0o600 {
		t.Errorf("the socket was seen with mode %o", worst)
	}
}
