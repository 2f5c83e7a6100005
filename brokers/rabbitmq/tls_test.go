package rabbitmq

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	broker "github.com/seed-111f5b8e/supervisord/test/node/rabbitmq"
)

// certificates are the files of an authority, and of a server and a client whose
// certificates it signed.
type certificates struct{ dir string }

func (c certificates) file(name string) string { return filepath.Join(c.dir, name) }

func newCertificates(t *testing.T) certificates {
	t.Helper()
	c := certificates{t.TempDir()}
	template := func(serial int64, name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		}
	}
	authority := template(1, "authority")
	authority.IsCA, authority.BasicConstraintsValid, authority.KeyUsage = true, true, x509.KeyUsageCertSign
	key := c.write(t, "ca", authority, authority, nil)
	for i, name := range []string{"rabbit.example", "client.example"} {
		leaf := template(int64(i)+2, name)
		leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		c.write(t, name, leaf, authority, key)
	}
	return c
}

// write signs with signer, or with the new key itself.
func (c certificates) write(t *testing.T, name string, template, parent *x509.Certificate, signer *ecdsa.PrivateKey) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	for file, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: private}} {
		must(t, os.WriteFile(c.file(name+file), pem.EncodeToMemory(block), 0o600))
	}
	return key
}

// The server's certificate is checked against the authority and the name given, and
// ours is shown.
func TestTLS(t *testing.T) {
	ours, other := newCertificates(t), newCertificates(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	n, err := broker.Start(ctx, broker.Options{
		Dir: t.TempDir(), CAFile: ours.file("ca.crt"), CertFile: ours.file("rabbit.example.crt"), KeyFile: ours.file("rabbit.example.key"),
		Config: []string{"ssl_options.fail_if_no_peer_cert = true"},
	})
	must(t, err)
	defer n.Kill()
	good := supervisorv1.ClientTls{
		CaFile: ours.file("ca.crt"), CertFile: ours.file("client.example.crt"), KeyFile: ours.file("client.example.key"), ServerName: "rabbit.example",
	}
	for name, c := range map[string]struct {
		change func(*supervisorv1.ClientTls)
		want   brokers.Class
	}{
		"as it should be":    {func(*supervisorv1.ClientTls) {}, 0},
		"another authority":  {func(c *supervisorv1.ClientTls) { c.CaFile = other.file("ca.crt") }, brokers.Refused},
		"another name":       {func(c *supervisorv1.ClientTls) { c.ServerName = "evil.example" }, brokers.Refused},
		"no such file":       {func(c *supervisorv1.ClientTls) { c.CaFile = ours.file("absent") }, brokers.Refused},
		"no PEM":             {func(c *supervisorv1.ClientTls) { c.CaFile = ours.file("ca.key") }, brokers.Refused},
		"half of a key pair": {func(c *supervisorv1.ClientTls) { c.KeyFile = ours.file("ca.key") }, brokers.Refused},
		"unknown certificate": {func(c *supervisorv1.ClientTls) {
			c.CertFile, c.KeyFile = other.file("client.example.crt"), other.file("client.example.key")
		}, brokers.Refused},
		"without certificate": {func(c *supervisorv1.ClientTls) { c.CertFile, c.KeyFile = "", "" }, brokers.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := supervisorv1.ClientTls{CaFile: good.GetCaFile(), CertFile: good.GetCertFile(), KeyFile: good.GetKeyFile(), ServerName: good.GetServerName()}
			c.change(&cfg)
			conf := connection(n.TLSURL(), passwordRef)
			conf.GetRabbitmq().Tls, conf.GetRabbitmq().Auth.User = &cfg, broker.User
			opened, err := Driver{}.Open(ctx, conf, brokers.Env{Secret: func(string) (string, error) { return broker.Password, nil }})
			if err == nil {
				must(t, opened.Close(ctx))
			}
			// A server that does not like our certificate says so only after the
			// handshake, and what we write then may meet the closed socket first.
			late := c.want == brokers.Refused && cfg.GetCertFile() != good.GetCertFile() && brokers.ClassOf(err) == brokers.Unreachable
			if got := brokers.ClassOf(err); got != c.want && !late {
				t.Errorf("class %v, want %v: %v", got, c.want, err)
			}
			t.Log(err)
		})
	}
}
