package rpc

import (
	"context"
	"errors"
	"net"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// actor is who calls: a unix user by the socket's credentials, or the name in
// a verified client certificate.
func actor(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "unknown"
	}
	switch info := p.AuthInfo.(type) {
	case unixInfo:
		return info.name
	case credentials.TLSInfo:
		if certs := info.State.PeerCertificates; len(certs) > 0 {
			c := certs[0]
			switch {
			case len(c.EmailAddresses) > 0:
				return c.EmailAddresses[0]
			case c.Subject.CommonName != "":
				return c.Subject.CommonName
			case len(c.DNSNames) > 0:
				return c.DNSNames[0]
			}
			return c.Subject.String()
		}
	}
	return "unknown"
}

// unixCredentials asks the kernel who is at the other end of a unix socket.
type unixCredentials struct{}

type unixInfo struct {
	credentials.CommonAuthInfo
	uid  uint32
	pid  int32
	name string
}

// AuthType is [credentials.AuthInfo]'s.
func (unixInfo) AuthType() string { return "unix" }

func (unixCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return nil, nil, errors.New("not a unix socket")
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	var cred *unix.Ucred
	var inner error
	err = raw.Control(func(fd uintptr) { cred, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, inner); err != nil {
		return nil, nil, err
	}
	info := unixInfo{
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		uid:            cred.Uid, pid: cred.Pid, name: userName(cred.Uid),
	}
	return conn, info, nil
}

func userName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	u, err := user.LookupId(id)
	if err != nil {
		return "uid:" + id
	}
	return u.Username
}

func (unixCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("only a server has these")
}

func (unixCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix"}
}

func (unixCredentials) Clone() credentials.TransportCredentials { return unixCredentials{} }

func (unixCredentials) OverrideServerName(string) error { return nil }
