package rpc

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/seed-111f5b8e/supervisord/proto/endpoint"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
	"google.golang.org/grpc/credentials"
)

// Listener is where a Server serves, with how it knows its callers.
type Listener struct {
	net.Listener
	creds credentials.TransportCredentials
	// Reflection tells whether callers may ask what there is.
	reflection bool
}

// Listen opens an address. A unix socket is for its owner alone (0600, in a
// folder that is made 0700 when absent); a stale one is replaced, one that
// answers is not. A TCP address needs TLS that verifies clients.
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
	cfg, err := serverTLS(t)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", at.Address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", at, err)
	}
	return &Listener{Listener: l, creds: credentials.NewTLS(cfg)}, nil
}

func serverTLS(t *spec.TLS) (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("tls.cert_file and tls.key_file: %w", err)
	}
	pem, err := os.ReadFile(t.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("tls.client_ca_file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("tls.client_ca_file: %s has no certificate", t.ClientCAFile)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS12,
	}, nil
}

func listenUnix(path string) (*Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("folder of the socket: %w", err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	// The socket must never be open to others, not even between bind and chmod.
	old := syscall.Umask(0o177)
	l, err := net.Listen("unix", path)
	syscall.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return &Listener{Listener: l, creds: unixCredentials{}, reflection: true}, nil
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
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		return errors.Join(fmt.Errorf("another supervisord listens on %s: stop it, or choose another address", path), conn.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("socket %s: %w", path, err)
	}
	return os.Remove(path)
}
