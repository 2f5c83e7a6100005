package nats

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// authority signs certificates and writes them to files.
type authority struct {
	tb   testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(tb testing.TB) *authority {
	tb.Helper()
	a := &authority{tb: tb, dir: tb.TempDir()}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	a.key = a.write("ca", a.cert, nil)
	return a
}

// write signs template with the authority's key, or its own.
func (a *authority) write(name string, template *x509.Certificate, signer *ecdsa.PrivateKey) *ecdsa.PrivateKey {
	a.tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(a.tb, err)
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, signer)
	must(a.tb, err)
	pkcs, err := x509.MarshalPKCS8PrivateKey(key)
	must(a.tb, err)
	must(a.tb, os.WriteFile(a.file(name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(a.tb, os.WriteFile(a.file(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs}), 0o600))
	return key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) issue(name, host string) {
	a.tb.Helper()
	a.write(name, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{host},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}, a.key)
}

func (a *authority) pool() *x509.CertPool {
	a.tb.Helper()
	text, err := os.ReadFile(a.file("ca.crt"))
	must(a.tb, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return pool
}

// The server's certificate is checked against the authority and the name given,
// and ours is shown.
func TestTLS(t *testing.T) {
	ours, other := newAuthority(t), newAuthority(t)
	ours.issue("server", "nats.example")
	ours.issue("client", "client.example")
	pair, err := tls.LoadX509KeyPair(ours.file("server.crt"), ours.file("server.key"))
	must(t, err)
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true, TLSTimeout: 5, TLS: true, TLSVerify: true,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: ours.pool(), ClientAuth: tls.RequireAndVerifyClientCert}})
	must(t, err)
	s.Start()
	defer func() {
		s.Shutdown()
		s.WaitForShutdown()
	}()
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server is not ready")
	}
	good := func() *supervisorv1.ClientTls {
		return &supervisorv1.ClientTls{CaFile: ours.file("ca.crt"), CertFile: ours.file("client.crt"), KeyFile: ours.file("client.key"), ServerName: "nats.example"}
	}
	for name, c := range map[string]struct {
		change func(*supervisorv1.ClientTls)
		want   brokers.Class
	}{
		"as it should be":     {func(*supervisorv1.ClientTls) {}, 0},
		"another authority":   {func(c *supervisorv1.ClientTls) { c.CaFile = other.file("ca.crt") }, brokers.Refused},
		"another name":        {func(c *supervisorv1.ClientTls) { c.ServerName = "evil.example" }, brokers.Refused},
		"no such file":        {func(c *supervisorv1.ClientTls) { c.CaFile = ours.file("absent") }, brokers.Refused},
		"no PEM":              {func(c *supervisorv1.ClientTls) { c.CaFile = ours.file("ca.key") }, brokers.Refused},
		"half of a key pair":  {func(c *supervisorv1.ClientTls) { c.KeyFile = ours.file("server.key") }, brokers.Refused},
		"without certificate": {func(c *supervisorv1.ClientTls) { c.CertFile, c.KeyFile = "", "" }, brokers.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good()
			c.change(cfg)
			conn, err := Driver{}.Open(t.Context(), &supervisorv1.Connection{Name: "tls", Broker: &supervisorv1.Connection_Nats{
				Nats: &supervisorv1.NatsConnection{Urls: []string{"tls://" + s.Addr().String()}, Tls: cfg},
			}}, brokers.Env{Log: slog.New(slog.DiscardHandler)})
			if err == nil {
				must(t, conn.Close(t.Context()))
			}
			// A server that misses our certificate says so only after the handshake, and
			// the write that follows may meet the closed socket first.
			late := name == "without certificate" && brokers.ClassOf(err) == brokers.Unreachable
			if got := brokers.ClassOf(err); got != c.want && !late {
				t.Errorf("class %v, want %v: %v", got, c.want, err)
			}
		})
	}
}
