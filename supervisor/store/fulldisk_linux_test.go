package store_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

const noMount = 77

// A disk that is really full: a tmpfs of one megabyte in a namespace of the
// child's own. Where the system allows no such thing, TestFileSizeLimit stands
// for it alone.
func TestFullDisk(t *testing.T) {
	cmd := child(t, "tmpfs", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case err == nil:
		t.Logf("%s", out)
	case !errors.As(err, &exit), exit.ExitCode() == noMount:
		t.Logf("this system does not let tests mount: %v", err)
	default:
		t.Fatalf("%v\n%s", err, out)
	}
}

func childOnSmallDisk(dir string) int {
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return noMount
	}
	filler := filepath.Join(dir, "filler")
	fill := func() error {
		f, err := os.Create(filler)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, io.LimitReader(zeroes{}, 700<<10))
		return errors.Join(err, f.Close())
	}
	return report(writeUntilFull(dir, syscall.ENOSPC, fill, func() error { return os.Remove(filler) }))
}

type zeroes struct{}

func (zeroes) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
