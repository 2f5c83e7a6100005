package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/seed-111f5b8e/supervisord/proto/endpoint"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

const (
	// callTimeout bounds one call when --timeout does not.
	callTimeout = 30 * time.Second
	// connectTimeout bounds one attempt to connect.
	connectTimeout = 5 * time.Second
	// maxMessage bounds a reply; a page of 500 consumers takes a few MiB.
	maxMessage = 64 << 20
)

// client is the connection to one daemon. Every error of a unary call comes as
// an *apiError; those of a stream are to be put through explain.
type client struct {
	consumers pb.ConsumerServiceClient
	server    pb.ServerServiceClient
	conn      *grpc.ClientConn
	address   endpoint.Endpoint
	// dialErr is why the last attempt to connect failed; nil after a success.
	dialErr atomic.Pointer[error]
	// denied is why the daemon would refuse the client certificate; nil else.
	denied atomic.Pointer[error]
}

// connect makes the client; the connection itself is made by the first call.
func (a *app) connect() (*client, error) {
	s, err := a.settings()
	if err != nil {
		return nil, err
	}
	c := &client{}
	if c.address, err = endpoint.Parse(s.Addr); err != nil {
		return nil, failf(exitUsage, "%w", err)
	}
	creds, err := c.credentials(s.TLS)
	if err != nil {
		return nil, err
	}
	// The dialer knows where to go; the target only has to name the host, for
	// the certificate's check.
	target := "passthrough:///" + c.address.Address
	if c.address.Network == "unix" {
		target = "passthrough:///localhost"
	}
	c.conn, err = grpc.NewClient(target,
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(c.dial),
		grpc.WithUnaryInterceptor(c.unary),
		grpc.WithUserAgent("supctl/"+version()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: connectTimeout,
		}),
		// A watch on a connection that is dead on one side only must not wait for
		// ever. Daemons allow a ping every ten seconds.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
	)
	if err != nil {
		return nil, failf(exitUsage, "address %s: %w", c.address, err)
	}
	c.consumers = pb.NewConsumerServiceClient(c.conn)
	c.server = pb.NewServerServiceClient(c.conn)
	return c, nil
}

func (c *client) close() { _ = c.conn.Close() }

func (c *client) dial(ctx context.Context, _ string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, c.address.Network, c.address.Address)
	if err != nil {
		c.dialErr.Store(&err)
		return nil, err
	}
	c.dialErr.Store(nil)
	return conn, nil
}

func (c *client) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	call, cancel := context.WithTimeoutCause(ctx, callTimeout, timeoutError{callTimeout})
	defer cancel()
	return c.explain(call, method, invoke(call, method, req, reply, cc, opts...))
}

// credentials are none on a socket, where the kernel vouches for both sides, and
// TLS on TCP, always.
func (c *client) credentials(files tlsFiles) (credentials.TransportCredentials, error) {
	if c.address.Network == "unix" {
		return insecure.NewCredentials(), nil
	}
	host, _, err := net.SplitHostPort(c.address.Address)
	if err != nil {
		return nil, failf(exitUsage, "address %s: %w", c.address, err)
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	if files.ServerName != "" {
		conf.ServerName = files.ServerName
	}
	if files.CA != "" {
		if conf.RootCAs, err = readPool(files.CA); err != nil {
			return nil, err
		}
	}
	if (files.Cert == "") != (files.Key == "") {
		return nil, failf(exitUsage, "--tls-cert and --tls-key go together: give both or none")
	}
	var own *tls.Certificate
	if files.Cert != "" {
		pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		if err != nil {
			return nil, failf(exitUsage, "client certificate %s with key %s: %w", files.Cert, files.Key, err)
		}
		own = &pair
	}
	conf.GetClientCertificate = func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return c.present(own, asked)
	}
	return credentials.NewTLS(conf), nil
}

// present answers a daemon that asks for a certificate. One that it would
// refuse is not sent: of a refusal, which comes after the handshake, sometimes
// only a broken connection is left.
func (c *client) present(own *tls.Certificate, asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	err := errors.New("it asks for a client certificate and none was given")
	if own != nil {
		if err = asked.SupportsCertificate(own); err != nil {
			err = fmt.Errorf("it would refuse the client certificate: %w", err)
		}
	}
	if err != nil {
		c.denied.Store(&err)
		return nil, err
	}
	c.denied.Store(nil)
	return own, nil
}

func readPool(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, failf(exitUsage, "--tls-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, failf(exitUsage, "--tls-ca: %s holds no PEM certificate", file)
	}
	return pool, nil
}
