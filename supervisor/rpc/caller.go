package rpc

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// maxActor bounds a name that a certificate brings, in bytes.
const maxActor = 128

// caller is who is at the other end of one connection.
type caller struct {
	credentials.CommonAuthInfo
	name string
	// streams has a place for each stream that the connection may have open.
	streams chan struct{}
}

// AuthType is [credentials.AuthInfo]'s.
func (*caller) AuthType() string { return "supervisord" }

func newCaller(name string) *caller {
	return &caller{
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		name:           name, streams: make(chan struct{}, streamsPerConnection),
	}
}

// callerOf is never nil: each listener's credentials make one.
func callerOf(ctx context.Context) *caller {
	if p, ok := peer.FromContext(ctx); ok {
		if c, ok := p.AuthInfo.(*caller); ok {
			return c
		}
	}
	return newCaller("unknown")
}

// actor is who calls: a unix user by the socket's credentials, or the name in
// a verified client certificate; never what the message says.
func actor(ctx context.Context) string { return callerOf(ctx).name }

// serverOnly is what credentials have that no client uses.
type serverOnly struct{ protocol string }

func (serverOnly) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are a server's")
}

func (s serverOnly) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: s.protocol}
}

func (serverOnly) OverrideServerName(string) error { return nil }

// unixCredentials ask the kernel who is at the other end of a unix socket.
type unixCredentials struct {
	serverOnly
	users *users
}

func newUnixCredentials() unixCredentials {
	return unixCredentials{serverOnly{"unix"}, &users{names: map[uint32]string{}}}
}

func (c unixCredentials) Clone() credentials.TransportCredentials { return c }

func (c unixCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	uid, err := peerUID(conn)
	if err != nil {
		return nil, nil, fmt.Errorf("ask for the peer of a unix socket: %w", err)
	}
	return conn, newCaller(c.users.name(uid)), nil
}

// users remembers names: looking one up may ask a server on the network.
type users struct {
	mu    sync.Mutex
	names map[uint32]string
}

func (u *users) name(uid uint32) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	name, ok := u.names[uid]
	if !ok {
		id := strconv.FormatUint(uint64(uid), 10)
		name = "uid:" + id
		if found, err := user.LookupId(id); err == nil {
			name = clean(found.Username)
		}
		u.names[uid] = name
	}
	return name
}

// tlsCredentials name the caller by its certificate, which TLS has verified.
type tlsCredentials struct {
	serverOnly
	tls credentials.TransportCredentials
}

func (c tlsCredentials) Clone() credentials.TransportCredentials { return c }

func (c tlsCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := c.tls.ServerHandshake(conn)
	if err != nil {
		return nil, nil, err
	}
	t, ok := info.(credentials.TLSInfo)
	if !ok || len(t.State.PeerCertificates) == 0 {
		return nil, nil, errors.Join(errors.New("the caller showed no certificate"), secure.Close())
	}
	return secure, newCaller(certificateName(t.State.PeerCertificates[0])), nil
}

// certificateName is the most specific name that a certificate has.
func certificateName(c *x509.Certificate) string {
	var names []string
	names = append(names, c.EmailAddresses...)
	names = append(names, c.DNSNames...)
	for _, uri := range c.URIs {
		names = append(names, uri.String())
	}
	for _, name := range append(names, c.Subject.CommonName, c.Subject.String()) {
		if name = clean(name); name != "" {
			return name
		}
	}
	return "certificate:" + c.SerialNumber.String()
}

// clean makes a name fit for logs and tables: one short line.
func clean(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(name, ""))
	if len(name) > maxActor {
		name = strings.ToValidUTF8(name[:maxActor], "")
	}
	return strings.TrimSpace(name)
}
