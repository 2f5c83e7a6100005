// Package endpoint says where a supervisord listens, so that the daemon and
// its clients agree without being told.
package endpoint

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Endpoint is an address that net.Listen and net.Dial take.
type Endpoint struct {
	// Network is "unix" or "tcp".
	Network string
	// Address is a socket's path or host:port.
	Address string
}

// String gives the form that Parse reads: unix:///run/x.sock, tcp://host:port.
func (e Endpoint) String() string { return e.Network + "://" + e.Address }

// Default is the address of this user's daemon when nobody names another:
// supervisord/supervisord.sock in $XDG_RUNTIME_DIR, else /run/supervisord/
// for root, else supervisord-UID/ in the folder for temporary files.
func Default() string {
	return Endpoint{Network: "unix", Address: defaultPath(os.Getenv, os.Geteuid(), os.TempDir())}.String()
}

func defaultPath(getenv func(string) string, uid int, temp string) string {
	const name = "supervisord.sock"
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "supervisord", name)
	}
	if uid == 0 {
		return filepath.Join("/run/supervisord", name)
	}
	return filepath.Join(temp, "supervisord-"+strconv.Itoa(uid), name)
}

// Parse reads an address: unix://PATH, unix:PATH or a path with a slash in it;
// tcp://HOST:PORT or HOST:PORT. A host may be empty, which only listeners take.
func Parse(s string) (Endpoint, error) {
	if path, ok := unixPath(s); ok {
		if path == "" {
			return Endpoint{}, fmt.Errorf("address %q names no socket: write unix:///path/to/supervisord.sock", s)
		}
		if limit := len(syscall.RawSockaddrUnix{}.Path) - 1; len(path) > limit {
			return Endpoint{}, fmt.Errorf("socket path %q has %d bytes, the system takes at most %d: choose a shorter one", path, len(path), limit)
		}
		return Endpoint{Network: "unix", Address: path}, nil
	}
	address := strings.TrimPrefix(s, "tcp://")
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		err = checkPort(port)
	}
	if err != nil {
		return Endpoint{}, fmt.Errorf("address %q: %w: write HOST:PORT or unix:///path/to/supervisord.sock", s, err)
	}
	return Endpoint{Network: "tcp", Address: address}, nil
}

func unixPath(s string) (string, bool) {
	if path, ok := strings.CutPrefix(s, "unix://"); ok {
		return path, true
	}
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		return path, true
	}
	return s, strings.Contains(s, "/") && !strings.Contains(s, "://")
}

func checkPort(port string) error {
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return errors.New("the port is not a number from 0 to 65535")
	}
	return nil
}
