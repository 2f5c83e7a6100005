package rpc

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// peerUID is the user who connected, as the kernel noted it then.
func peerUID(conn net.Conn) (uint32, error) {
	raw, err := rawConn(conn)
	if err != nil {
		return 0, err
	}
	var cred *unix.Xucred
	var inner error
	err = raw.Control(func(fd uintptr) {
		cred, inner = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	})
	if err := errors.Join(err, inner); err != nil {
		return 0, err
	}
	return cred.Uid, nil
}
