package brokers

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"

	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// TLSConfig makes the client's side of a connection to host, TLS 1.2 at the least.
// It reads the files each time: call it at each dial, so that renewed ones are
// taken up. A file that cannot be used is Refused; kind is the driver's, to name
// the field.
func TLSConfig(kind string, t *supervisorv1.ClientTls, host string) (*tls.Config, error) {
	refused := func(field string, err error) error {
		return &Error{Class: Refused, Op: "read " + kind + ".tls." + field, Err: err, Remedy: "check the file"}
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.GetServerName()}
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}
	if t.GetCaFile() != "" {
		pem, err := os.ReadFile(t.GetCaFile())
		if err != nil {
			return nil, refused("ca_file", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, refused("ca_file", errors.New("holds no certificate in PEM"))
		}
	}
	if t.GetCertFile() != "" {
		cert, err := tls.LoadX509KeyPair(t.GetCertFile(), t.GetKeyFile())
		if err != nil {
			return nil, refused("cert_file", err)
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return cfg, nil
}
