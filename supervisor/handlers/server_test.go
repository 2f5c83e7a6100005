package handlers

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
)

// rawServer serves each connection, numbered from 1, by a function, and closes
// it after. The second result counts connections.
func rawServer(t *testing.T, serve func(conn net.Conn, n int)) (url string, conns func() int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var n atomic.Int64
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			i := int(n.Add(1))
			wg.Go(func() {
				defer func() { _ = conn.Close() }()
				serve(conn, i)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return "http://" + l.Addr().String(), func() int { return int(n.Load()) }
}

// readRequest reads one request, if the client sends one.
func readRequest(conn net.Conn) {
	r, err := http.ReadRequest(bufio.NewReader(conn))
	if err == nil {
		io.Copy(io.Discard, r.Body) //nolint:errcheck // the client may be gone
	}
}
