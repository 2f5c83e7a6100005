package handlers

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
)

func TestRefusedAddresses(t *testing.T) {
	for _, c := range []struct{ addr, why string }{
		{"127.0.0.1", ""},
		{"10.0.0.1", ""},
		{"192.168.1.1", ""},
		{"8.8.8.8", ""},
		{"::1", ""},
		{"fd00::1", ""},
		{"2001:db8::1", ""},
		{"64:ff9b::808:808", ""},
		{"169.254.169.254", "link-local"},
		{"169.254.0.1", "link-local"},
		{"fe80::1", "link-local"},
		{"fe80::1%eth0", "link-local"},
		{"::ffff:169.254.169.254", "link-local"},
		{"64:ff9b::a9fe:a9fe", "link-local"},
		{"0.0.0.0", "this host"},
		{"0.1.2.3", "this host"},
		{"::", "this host"},
		{"::ffff:0.0.0.0", "this host"},
		{"224.0.0.1", "multicast"},
		{"239.1.2.3", "multicast"},
		{"ff02::1", "multicast"},
		{"255.255.255.255", "broadcast"},
		{"fd00:ec2::254", "metadata"},
	} {
		why := refusedAddr(netip.MustParseAddr(c.addr))
		if (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: got %q, want %q", c.addr, why, c.why)
		}
	}
}

// The check is where the connection is made: what a spec or a name says does
// not matter.
func TestHTTPRefusesAddressesAtDial(t *testing.T) {
	for _, host := range []string{"169.254.169.254", "[::ffff:169.254.169.254]", "0.0.0.0", "[::]"} {
		got := newHTTP(t, httpSpec("http://"+host+"/", nil), nil).post(t.Context(), message())
		if got.action != retryLater || !errors.Is(got.err, ErrAddressRefused) {
			t.Errorf("%s: got %+v", host, got)
		}
		addr := netip.MustParseAddr(strings.Trim(host, "[]"))
		if !strings.Contains(got.err.Error(), addr.String()) && !strings.Contains(got.err.Error(), addr.Unmap().String()) {
			t.Errorf("%s is not named in %q", host, got.err)
		}
	}
}

func TestHTTPConnectionRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	got := newHTTP(t, httpSpec("http://"+l.Addr().String(), nil), nil).post(t.Context(), message())
	if got.action != retryLater || !strings.Contains(got.err.Error(), "connection refused") {
		t.Errorf("got %+v", got)
	}
}
