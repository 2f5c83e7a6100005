package handlers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

var (
	// ErrAddressRefused is why a connection was not made: the name resolved to
	// an address that handlers never call.
	ErrAddressRefused = errors.New("address refused")

	errClosed = errors.New("the consumer has stopped")
)

const (
	dialTimeout = 5 * time.Second
	// maxSlots is the largest concurrency a spec may have. As many connections
	// are kept as slots used them: a scale-up finds no lower bound here.
	maxSlots = 10000
)

// newTransport makes the connections of one consumer. The function ends dials
// under way, which go on after their request is cancelled.
func newTransport() (*http.Transport, context.CancelCauseFunc) {
	life, end := context.WithCancelCause(context.Background())
	dialer := &net.Dialer{Timeout: dialTimeout, Control: checkDial}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(life, func() { cancel(errClosed) })()
		return dialer.DialContext(ctx, network, addr)
	}
	t := &http.Transport{
		DialContext:            dial,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    dialTimeout,
		MaxIdleConnsPerHost:    maxSlots,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: maxAnswer,
		DisableCompression:     true,
		// One HTTP/2 connection carries all calls: find out when it is dead.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
	}
	return t, end
}

// checkDial looks at the resolved address, after which no name is looked up
// again.
func checkDial(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s is not an IP address", ErrAddressRefused, address)
	}
	if why := refusedAddr(ap.Addr()); why != "" {
		return fmt.Errorf("%w: %s %s", ErrAddressRefused, ap.Addr(), why)
	}
	return nil
}

// refusedLiteral is refusedAddr of a host that is an address; "" for a name.
func refusedLiteral(host string) string {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return ""
	}
	return refusedAddr(addr)
}

// refusedAddr says why handlers never call an address, or "".
func refusedAddr(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if netip.MustParsePrefix("64:ff9b::/96").Contains(a) { // NAT64: the last four bytes are an IPv4 address
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	switch {
	case a.IsLinkLocalUnicast():
		return "is link-local, where cloud metadata and other host services live"
	case a == netip.MustParseAddr("fd00:ec2::254"):
		return "is a cloud's metadata service"
	case a.IsMulticast(), a == netip.MustParseAddr("255.255.255.255"):
		return "is a multicast or broadcast address"
	case a.IsUnspecified(), netip.MustParsePrefix("0.0.0.0/8").Contains(a):
		return "means this host and not an endpoint"
	}
	return ""
}
