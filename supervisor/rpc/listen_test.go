package rpc

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
)

func listen(t *testing.T, addr string) *Listener {
	t.Helper()
	l, err := Listen(addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestSocketIsForItsOwnerAlone(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	path := filepath.Join(t.TempDir(), "run", "s.sock")
	listen(t, path)
	for name, want := range map[string]os.FileMode{
		path: os.ModeSocket | 0o600, filepath.Dir(path): os.ModeDir | 0o700, path + ".lock": 0o600,
	} {
		info, err := os.Stat(name)
		if err != nil || info.Mode() != want {
			t.Errorf("%s is %v, want %v: %v", name, info.Mode(), want, err)
		}
	}
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	l := listen(t, "unix://"+path)
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket stays after its end: %v", err)
	}
	listen(t, path)
}

func TestSocketInUseIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	first := listen(t, path)
	refused := func(what string) {
		t.Helper()
		if _, err := Listen(path, nil); err == nil || !strings.Contains(err.Error(), "another supervisord listens on") {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("one of ours")
	// One that has bound and does not answer yet is alive all the same.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	refused("one whose socket was removed")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	foreign, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = foreign.Close() }()
	refused("one of another program")
}

// A program that is alive and too busy to accept is no stale one.
func TestBusySocketStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	// Fill what it would accept.
	for {
		c, err := net.DialTimeout("unix", path, 100*time.Millisecond)
		if err != nil {
			break
		}
		defer func() { _ = c.Close() }()
	}
	if _, err := Listen(path, nil); err == nil {
		t.Error("its socket was taken")
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("its socket is gone: %v", err)
	}
}

func TestWhatIsNoSocketStays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path, nil); err == nil || !strings.Contains(err.Error(), "is no socket") {
		t.Errorf("listen gives %v", err)
	}
	if b, err := os.ReadFile(path); string(b) != "mine" {
		t.Errorf("the file is gone: %q, %v", b, err)
	}
}

func TestRefusedAddresses(t *testing.T) {
	for addr, want := range map[string]string{
		"tcp://127.0.0.1:0": "client_ca_file",
		"127.0.0.1:0":       "client_ca_file",
		"http://x":          "HOST:PORT",
		"":                  "HOST:PORT",
		"unix://":           "names no socket",
	} {
		l, err := Listen(addr, nil)
		if err == nil {
			_ = l.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", addr, err, want)
		}
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	l := listen(t, path)
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	// As if so many were open.
	l.open.Store(maxConnections - 1)
	dial := func() net.Conn {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	dial()
	last := <-accepted
	if n, err := dial().Read(make([]byte, 1)); err == nil {
		t.Errorf("one too many reads %d bytes", n)
	}
	if err := last.Close(); err != nil {
		t.Fatal(err)
	}
	_ = last.Close() // twice gives back one place
	dial()
	if err := (<-accepted).Close(); err != nil {
		t.Fatal(err)
	}
	if n := l.open.Load(); n != maxConnections-1 {
		t.Errorf("%d are counted", n)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	for range accepted {
		t.Error("accepted after the end")
	}
}

func TestCredentialsAreAServersOnly(t *testing.T) {
	for _, c := range []credentials.TransportCredentials{newUnixCredentials(), tlsCredentials{}} {
		a, b := net.Pipe()
		if _, _, err := c.ClientHandshake(t.Context(), "", a); err == nil {
			t.Error("a client may use them")
		}
		_ = a.Close()
		_ = b.Close()
	}
	a, b := net.Pipe()
	defer func() { _ = b.Close() }()
	if _, _, err := newUnixCredentials().ServerHandshake(a); err == nil {
		t.Error("a pipe has a user")
	}
	_ = a.Close()
}

func TestNamesOfUsers(t *testing.T) {
	u := &users{names: map[uint32]string{}}
	if got := u.name(0); got != "root" {
		t.Errorf("user 0 is %q", got)
	}
	const nobodyHasIt = 3999999999
	for range 2 {
		if got := u.name(nobodyHasIt); got != "uid:3999999999" {
			t.Errorf("an unknown user is %q", got)
		}
	}
}
