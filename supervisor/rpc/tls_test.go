package rpc

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// authority signs certificates for one test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true,
		BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour),
	}
	der, key := a.sign(a.cert)
	a.key = key
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a.cert = cert
	return a
}

func (a *authority) sign(c *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	signer := a.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	return der, key
}

// issue writes a certificate and its key, and returns them too.
func (a *authority) issue(dir string, c *x509.Certificate) tls.Certificate {
	a.t.Helper()
	c.SerialNumber, c.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(time.Hour)
	der, key := a.sign(c)
	b, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: b})
	for name, content := range map[string][]byte{
		"tls.crt": certPEM, "tls.key": keyPEM,
		"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		a.t.Fatal(err)
	}
	return pair
}

func serverCertificate() *x509.Certificate { return &x509.Certificate{DNSNames: []string{"localhost"}} }

func files(dir string) *spec.TLS {
	return &spec.TLS{
		CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"), ClientCAFile: filepath.Join(dir, "ca.crt"),
	}
}

func (a *authority) client(certs ...tls.Certificate) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{RootCAs: pool, Certificates: certs, ServerName: "localhost", MinVersion: tls.VersionTLS12}
}

// tlsRig serves over TCP with the authority's certificates in dir.
func tlsRig(t *testing.T, dir string) (*rig, string) {
	t.Helper()
	l, err := Listen("tcp://127.0.0.1:0", files(dir))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, logged: &logs{}, broker: memory.NewBroker(memory.Options{CreateTargets: true})}
	r.s = r.supervise(t.TempDir())
	r.serve(l)
	return r, l.Addr().String()
}

// pauseBy pauses a consumer over a connection and returns who that is noted to be.
func pauseBy(t *testing.T, r *rig, addr string, creds credentials.TransportCredentials) (string, error) {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := pb.NewConsumerServiceClient(conn)
	if _, err := c.Apply(ctx, &pb.ApplyRequest{Items: []*pb.ApplyItem{{Spec: newSpec("orders")}}}); err != nil {
		return "", err
	}
	if _, err := c.Pause(ctx, &pb.PauseRequest{Target: named("orders")}); err != nil {
		return "", err
	}
	got, err := r.s.Get("", "orders")
	if err != nil {
		t.Fatal(err)
	}
	return got.GetDesired().GetHolds()[0].GetActor(), nil
}

func TestCallersOverTCPAreNamedByTheirCertificate(t *testing.T) {
	a, dir := newAuthority(t), t.TempDir()
	a.issue(dir, serverCertificate())
	r, addr := tlsRig(t, dir)
	cert := a.issue(t.TempDir(), &x509.Certificate{Subject: pkix.Name{CommonName: "cn"}, EmailAddresses: []string{"alice@example.com"}})
	got, err := pauseBy(t, r, addr, credentials.NewTLS(a.client(cert)))
	if err != nil || got != "alice@example.com" {
		t.Errorf("the pause is by %q, %v", got, err)
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(credentials.NewTLS(a.client(cert))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := services(t, conn); status.Code(err) != codes.Unimplemented {
		t.Errorf("reflection over TCP gives %v", err)
	}
}

func TestCallersWithoutTheirCertificateAreRefused(t *testing.T) {
	a, dir := newAuthority(t), t.TempDir()
	a.issue(dir, serverCertificate())
	r, addr := tlsRig(t, dir)
	stranger := newAuthority(t).issue(t.TempDir(), &x509.Certificate{DNSNames: []string{"mallory"}})
	old := a.client(a.issue(t.TempDir(), &x509.Certificate{DNSNames: []string{"old"}}))
	old.MinVersion, old.MaxVersion = tls.VersionTLS11, tls.VersionTLS11
	for what, creds := range map[string]credentials.TransportCredentials{
		"no TLS":                   insecure.NewCredentials(),
		"no certificate":           credentials.NewTLS(a.client()),
		"one of another authority": credentials.NewTLS(a.client(stranger)),
		"a version of TLS too old": credentials.NewTLS(old),
	} {
		if who, err := pauseBy(t, r, addr, creds); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: accepted as %q, %v", what, who, err)
		}
	}
	if out, err := r.s.List(&pb.ListRequest{Namespace: "*"}); err != nil || len(out.GetConsumers()) != 0 {
		t.Errorf("something was applied: %v, %v", out, err)
	}
}

func TestRenewedCertificatesAreTakenUp(t *testing.T) {
	before, dir := newAuthority(t), t.TempDir()
	before.issue(dir, serverCertificate())
	r, addr := tlsRig(t, dir)
	alice := before.issue(t.TempDir(), &x509.Certificate{DNSNames: []string{"alice"}})
	if _, err := pauseBy(t, r, addr, credentials.NewTLS(before.client(alice))); err != nil {
		t.Fatal(err)
	}
	// A half-written file changes nothing.
	if err := os.WriteFile(filepath.Join(dir, "tls.crt"), []byte("-----BEGIN"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := pauseBy(t, r, addr, credentials.NewTLS(before.client(alice))); err != nil {
		t.Errorf("with a half-written file: %v", err)
	}
	after := newAuthority(t)
	after.issue(dir, serverCertificate())
	bob := after.issue(t.TempDir(), &x509.Certificate{DNSNames: []string{"bob"}})
	if _, err := pauseBy(t, r, addr, credentials.NewTLS(after.client(bob))); err != nil {
		t.Errorf("with renewed certificates: %v", err)
	}
	if _, err := pauseBy(t, r, addr, credentials.NewTLS(before.client(alice))); err == nil {
		t.Error("the old authority is still trusted")
	}
}

func TestBadTLSFilesAreRefusedAtOnce(t *testing.T) {
	a, dir := newAuthority(t), t.TempDir()
	a.issue(dir, serverCertificate())
	for name, want := range map[string]string{"tls.crt": "tls.cert_file", "tls.key": "tls.key_file", "ca.crt": "tls.client_ca_file"} {
		path := filepath.Join(dir, name)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []func() error{
			func() error { return os.WriteFile(path, []byte("no PEM"), 0o600) },
			func() error { return os.Remove(path) },
		} {
			if err := bad(); err != nil {
				t.Fatal(err)
			}
			if _, err := Listen("127.0.0.1:0", files(dir)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNamesOfCertificates(t *testing.T) {
	spiffe := &url.URL{Scheme: "spiffe", Host: "example.org", Path: "/ci"}
	for want, c := range map[string]*x509.Certificate{
		"a@example.com":           {EmailAddresses: []string{"a@example.com"}, DNSNames: []string{"host"}, Subject: pkix.Name{CommonName: "cn"}},
		"host":                    {DNSNames: []string{"host"}, Subject: pkix.Name{CommonName: "cn"}},
		"spiffe://example.org/ci": {URIs: []*url.URL{spiffe}, Subject: pkix.Name{CommonName: "cn"}},
		"cn":                      {Subject: pkix.Name{CommonName: "cn"}},
		"O=org":                   {Subject: pkix.Name{Organization: []string{"org"}}},
		"certificate:7":           {SerialNumber: big.NewInt(7)},
		"aliceroot":               {Subject: pkix.Name{CommonName: " alice\n\x1b\u202eroot\xff "}},
		strings.Repeat("x", 128):  {Subject: pkix.Name{CommonName: strings.Repeat("x", 1000)}},
	} {
		if got := certificateName(c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
