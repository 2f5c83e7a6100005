package rpc

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
	"google.golang.org/grpc/credentials"
)

// newTLSCredentials reads the files once, to refuse what is wrong with them,
// and again for each connection. While they cannot be read, the last good ones
// stay in force.
func newTLSCredentials(t *spec.TLS) (credentials.TransportCredentials, error) {
	first, err := serverTLS(t)
	if err != nil {
		return nil, err
	}
	var good atomic.Pointer[tls.Config]
	good.Store(first)
	outer := first.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if fresh, err := serverTLS(t); err == nil {
			good.Store(fresh)
		}
		return good.Load(), nil
	}
	return tlsCredentials{serverOnly{"tls"}, credentials.NewTLS(outer)}, nil
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
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
	}, nil
}
