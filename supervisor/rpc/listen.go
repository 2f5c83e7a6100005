package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/seed-111f5b8e/supervisord/proto/endpoint"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
	"google.golang.org/grpc/credentials"
)

// maxConnections bounds the callers of a listener; further ones are closed at
// once. Each costs some 100 KiB.
const maxConnections = 1000

// Listener is where a Server serves, with how it knows its callers.
type Listener struct {
	net.Listener
	creds credentials.TransportCredentials
	// reflection tells whether callers may ask what there is.
	reflection bool
	// lock, of a unix socket, says that the path is ours; nil for TCP.
	lock *os.File
	open atomic.Int32
}

// Listen opens an address. A unix socket is for its owner alone (0600, in a
// folder that is made 0700 when absent); a stale one is replaced, one that is
// in use is not. A TCP address needs TLS that verifies clients; its files are
// read again for each connection, so that renewed certificates are taken up.
func Listen(addr string, t *spec.TLS) (*Listener, error) {
	at, err := endpoint.Parse(addr)
	if err != nil {
		return nil, err
	}
	if at.Network == "unix" {
		return listenUnix(at.Address)
	}
	if t == nil {
		return nil, fmt.Errorf("refusing to listen on %s: a TCP address needs tls with cert_file, key_file and client_ca_file in the configuration, so that callers show who they are; or listen on a unix socket", at)
	}
	creds, err := newTLSCredentials(t)
	if err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", at.Address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", at, err)
	}
	return &Listener{Listener: l, creds: creds}, nil
}

// Accept waits for the next caller within the bound.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= maxConnections {
			return &conn{Conn: c, closed: sync.OnceFunc(func() { l.open.Add(-1) })}, nil
		}
		l.open.Add(-1)
		_ = c.Close()
	}
}

// Close ends the listener and leaves its address to others.
func (l *Listener) Close() error {
	err := l.Listener.Close()
	if l.lock != nil {
		err = errors.Join(err, l.lock.Close())
	}
	return err
}

// conn gives its place back when it is closed.
type conn struct {
	net.Conn
	closed func()
}

func (c *conn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// rawConn is the system's handle of an accepted connection.
func rawConn(c net.Conn) (syscall.RawConn, error) {
	if ours, ok := c.(*conn); ok {
		c = ours.Conn
	}
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("%T has no handle", c)
	}
	return sc.SyscallConn()
}

func listenUnix(path string) (*Listener, error) {
	if err := privateFolder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	lock, err := lockSocket(path)
	if err != nil {
		return nil, err
	}
	l, err := bindUnix(path)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &Listener{Listener: l, creds: newUnixCredentials(), reflection: true, lock: lock}, nil
}

// privateFolder makes the folder of a socket. Who owns it could put a socket
// of his own in the place of ours.
func privateFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("folder of the socket: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("folder of the socket: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("folder %s of the socket belongs to user %d: choose one of your own", dir, st.Uid)
	}
	return nil
}

// lockSocket makes sure that of two daemons that start at once, neither takes
// the other's socket for a stale one. The system gives the lock back when the
// process ends; the file stays.
func lockSocket(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the socket: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		err = inUse(path)
	default:
		err = fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return nil, errors.Join(err, f.Close())
}

func inUse(path string) error {
	return fmt.Errorf("another supervisord listens on %s: stop it, or choose another address", path)
}

func bindUnix(path string) (net.Listener, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := privateBind().Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), l.Close())
	}
	return l, nil
}

// privateBind binds sockets with mode 0600, whatever the umask, on Linux: there
// the mode of a socket before it is bound becomes that of its file. Elsewhere
// the folder keeps others out until the mode is changed.
func privateBind() *net.ListenConfig {
	return &net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), 0o600) })
	}}
}

// removeStale removes a socket that nobody answers on.
func removeStale(path string) error {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("socket: %w", err)
	case st.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("%s is there and is no socket: choose another address, or move it away", path)
	}
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "unix", path)
	if err == nil {
		return errors.Join(inUse(path), conn.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("socket %s: %w: if nobody uses it, remove it", path, err)
	}
	return os.Remove(path)
}
