package nats

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

const (
	// dialTimeout bounds one attempt on one server, TLS handshake included.
	dialTimeout = 5 * time.Second
	// writeTimeout bounds one write to the socket. nats.go holds its lock
	// meanwhile, so this is how long a server that does not read can hold up
	// what else needs the lock.
	writeTimeout = 5 * time.Second
	// A server that answers no ping for pingInterval x (maxPingsOut+1) is taken
	// for dead.
	pingInterval = 10 * time.Second
	maxPingsOut  = 2
	// Between two rounds over all servers: full jitter up to this.
	longestReconnectWait = 8 * time.Second
	firstReconnectWait   = 100 * time.Millisecond
)

// dialer knows how to reach one connection's servers.
type dialer struct {
	name string
	cfg  *supervisorv1.NatsConnection
	env  brokers.Env
	// server is the embedded one; nil without.
	server nats.InProcessConnProvider
	// secretErr is why the last dial went without its secret; nil when it had it.
	secretErr atomic.Pointer[error]
}

// dial connects within ctx. purpose tells the connections of one process apart
// in the server's monitoring.
func (d *dialer) dial(ctx context.Context, purpose string, more ...nats.Option) (*nats.Conn, error) {
	opts := []nats.Option{
		nats.Name("supervisord " + d.name + " " + purpose),
		nats.Timeout(d.timeout(ctx)),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.CustomReconnectDelay(reconnectDelay),
		// What is written while the connection is down would belong to epochs
		// that are over by then.
		nats.ReconnectBufSize(-1),
		nats.FlusherTimeout(writeTimeout),
		nats.ReconnectOnFlusherError(),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(maxPingsOut),
		// Subjects are checked by Parse, or are the server's own.
		nats.SkipSubjectValidation(),
	}
	if d.server != nil {
		opts = append(opts, nats.InProcessServer(d.server))
	}
	auth, err := d.auth()
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect(strings.Join(d.cfg.GetUrls(), ","), slices.Concat(opts, auth, d.tls(), more)...)
	if p := d.secretErr.Load(); err != nil && p != nil {
		return nil, *p
	}
	return nc, err
}

func (d *dialer) timeout(ctx context.Context) time.Duration {
	if t, ok := ctx.Deadline(); ok {
		return max(time.Millisecond, min(dialTimeout, time.Until(t)))
	}
	return dialTimeout
}

// reconnectDelay doubles from the first wait to the longest with full jitter.
func reconnectDelay(rounds int) time.Duration {
	limit := firstReconnectWait << min(rounds, 10)
	return time.Duration(rand.Int64N(int64(min(limit, longestReconnectWait))))
}

// auth resolves secrets once now, so that one that is not there is told at
// once, and again at each dial.
func (d *dialer) auth() ([]nats.Option, error) {
	a := d.cfg.GetAuth()
	switch {
	case a.GetPassword() != "":
		if _, err := d.env.Secret(a.GetPassword()); err != nil {
			return nil, secretError("nats.auth.password", err)
		}
		return []nats.Option{nats.UserInfoHandler(func() (string, string) {
			return a.GetUser(), d.secret("nats.auth.password", a.GetPassword())
		})}, nil
	case a.GetToken() != "":
		if _, err := d.env.Secret(a.GetToken()); err != nil {
			return nil, secretError("nats.auth.token", err)
		}
		return []nats.Option{nats.TokenHandler(func() string {
			return d.secret("nats.auth.token", a.GetToken())
		})}, nil
	case a.GetCredentialsFile() != "":
		if _, err := os.Stat(a.GetCredentialsFile()); err != nil {
			return nil, secretError("nats.auth.credentials_file", err)
		}
		return []nats.Option{nats.UserCredentials(a.GetCredentialsFile())}, nil
	}
	return nil, nil
}

// secret cannot return an error to nats.go: the server then refuses the empty
// one, and dial and the connection's state tell the true reason.
func (d *dialer) secret(path, ref string) string {
	v, err := d.env.Secret(ref)
	if err != nil {
		err = secretError(path, err)
		d.secretErr.Store(&err)
		return ""
	}
	d.secretErr.Store(nil)
	return v
}

func secretError(path string, err error) error {
	return fmt.Errorf("%s: %w: %w", path, errSecret, err)
}

func (d *dialer) tls() []nats.Option {
	t := d.cfg.GetTls()
	if t == nil {
		return nil
	}
	var (
		cert nats.TLSCertHandler
		ca   nats.RootCAsHandler
	)
	if t.GetCertFile() != "" {
		cert = func() (tls.Certificate, error) {
			c, err := tls.LoadX509KeyPair(t.GetCertFile(), t.GetKeyFile())
			return c, tlsFileError("cert_file", err)
		}
	}
	if t.GetCaFile() != "" {
		ca = func() (*x509.CertPool, error) { return readCA(t.GetCaFile()) }
	}
	opts := []nats.Option{nats.Secure(&tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.GetServerName()})}
	if cert != nil || ca != nil {
		opts = append(opts, nats.ClientTLSConfig(cert, ca))
	}
	return opts
}

func readCA(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, tlsFileError("ca_file", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, tlsFileError("ca_file", errors.New("holds no certificate in PEM"))
	}
	return pool, nil
}

func tlsFileError(field string, err error) error {
	if err == nil {
		return nil
	}
	return &brokers.Error{Class: brokers.Refused, Op: "read nats.tls." + field, Err: err, Remedy: "check the file"}
}
