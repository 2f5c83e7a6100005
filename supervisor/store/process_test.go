package store_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-111f5b8e/supervisord/supervisor/store"
)

// childVar names the function that a process started by a test runs instead
// of the tests.
const childVar = "STORE_TEST_CHILD"

func children() map[string]func(arg string) int {
	return map[string]func(arg string) int{
		"write": childWrites,
		"limit": childUnderFileLimit,
		"tmpfs": childOnSmallDisk,
	}
}

func child(t *testing.T, name, arg string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, arg)
	cmd.Env = append(os.Environ(), childVar+"="+name)
	cmd.Stderr = os.Stderr
	return cmd
}

// childWrites writes consumers from several goroutines until it is killed, and
// prints the name of each when its write was acknowledged.
func childWrites(path string) int {
	s, err := store.Open(path, store.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("b%d-w%d-%d", s.Boot(), w, i)
				err := s.Update(context.Background(), func(tx *store.Tx) error {
					return errors.Join(tx.PutConsumer(consumer("shop", name)), tx.PutReceipt(receipt(name, name, 1)))
				})
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				fmt.Println(name)
			}
		})
	}
	writers.Wait()
	return 0
}

func TestKilledProcessLosesNothingAcknowledged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	acknowledged := map[string]bool{}
	r := seed(t)
	for round := range 20 {
		cmd := child(t, "write", path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range 1 + r.IntN(60) {
			if !lines.Scan() {
				t.Fatalf("the writer ended by itself: %v", cmd.Wait())
			}
			acknowledged[lines.Text()] = true
		}
		if round == 0 {
			checkLocked(t, path, cmd.Process.Pid)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
			acknowledged[lines.Text()] = true
		}
		_ = cmd.Wait()
		checkAcknowledged(t, path, uint64(2*round+2), acknowledged)
	}
	if len(acknowledged) < 300 {
		t.Errorf("only %d writes were acknowledged", len(acknowledged))
	}
}

func checkAcknowledged(t *testing.T, path string, boot uint64, acknowledged map[string]bool) {
	t.Helper()
	s, err := store.Open(path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if s.Boot() != boot {
		t.Errorf("boot is %d, not %d", s.Boot(), boot)
	}
	all, err := s.Load()
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, c := range all {
		name := c.GetSpec().GetName()
		there[name] = true
		if _, err := s.Receipt(name); err != nil {
			t.Errorf("half a transaction: %s has no receipt: %v", name, err)
		}
	}
	for name := range acknowledged {
		if !there[name] {
			t.Errorf("%s was acknowledged and is lost", name)
		}
	}
	if err := boltCheck(store.DB(s)); err != nil {
		t.Error(err)
	}
}

func TestFileSizeLimit(t *testing.T) {
	out, err := child(t, "limit", t.TempDir()).Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

func childUnderFileLimit(dir string) int {
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return report(err)
	}
	set := func(cur uint64) error {
		return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: cur, Max: limit.Max})
	}
	return report(writeUntilFull(dir, nil, func() error { return set(300 << 10) }, func() error { return set(limit.Cur) }))
}

func report(err error) int {
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// writeUntilFull writes until it fails with want, twice, frees the disk, and
// checks what is there at each step and after reopening.
func writeUntilFull(dir string, want error, fill, free func() error) error {
	path := filepath.Join(dir, "state.db")
	s, err := store.Open(path, store.Options{})
	if err != nil {
		return err
	}
	if err := fill(); err != nil {
		return err
	}
	written := 0
	write := func() error {
		c := consumer("shop", fmt.Sprintf("c%06d", written))
		c.Spec.Labels["note"] = strings.Repeat("x", 1500)
		return s.Update(context.Background(), func(tx *store.Tx) error { return tx.PutConsumer(c) })
	}
	for failures := 0; failures < 5; {
		switch err := write(); {
		case err == nil:
			written++
		case !errors.Is(err, store.ErrUnavailable), want != nil && !errors.Is(err, want):
			return fmt.Errorf("update %d fails with %w", written, err)
		case s.Writable() == nil:
			return errors.New("writable after a failed write")
		default:
			failures++
		}
		if written > 1e6 {
			return errors.New("the disk does not fill up")
		}
	}
	if err := count(s, written); err != nil {
		return err
	}
	fmt.Printf("full after %d updates\n", written)
	if err := free(); err != nil {
		return err
	}
	for range 100 {
		if err := write(); err != nil {
			return fmt.Errorf("with space again: %w", err)
		}
		written++
	}
	if err := errors.Join(s.Writable(), count(s, written), boltCheck(store.DB(s)), s.Close()); err != nil {
		return err
	}
	if s, err = store.Open(path, store.Options{}); err != nil {
		return err
	}
	return errors.Join(count(s, written), s.Close())
}

func count(s *store.Store, want int) error {
	all, err := s.Load()
	if err == nil && len(all) != want {
		err = fmt.Errorf("%d consumers are there, %d were written", len(all), want)
	}
	return err
}

func checkLocked(t *testing.T, path string, pid int) {
	t.Helper()
	_, err := store.Open(path, store.Options{})
	if !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d holds", pid)) {
		t.Errorf("a second open gives %v, not the name of process %d", err, pid)
	}
}

func TestSecondOpenIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	synctest.Test(t, func(t *testing.T) { secondOpen(t, path) })
}

func secondOpen(t *testing.T, path string) {
	first := open(t, path, store.Options{})
	begin := time.Now()
	checkLocked(t, path, os.Getpid())
	if waited := time.Since(begin); waited != time.Second {
		t.Errorf("it waited %v", waited)
	}
	// Moving the file away does not make room for a second daemon.
	if err := os.Rename(path, path+".moved"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(path, store.Options{}); !errors.Is(err, store.ErrLocked) {
		t.Errorf("after a move: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if s := open(t, path, store.Options{}); s.Boot() != 1 {
		t.Errorf("boot is %d", s.Boot())
	}
}
