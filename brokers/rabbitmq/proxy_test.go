package rabbitmq

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// proxy stands between driver and server, so that connections can be cut.
type proxy struct {
	l      net.Listener
	target string
	done   chan struct{}
	mu     sync.Mutex
	conns  map[net.Conn]struct{}
}

func startProxy(tb testing.TB, target string) *proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &proxy{l: l, target: target, done: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	go p.accept()
	tb.Cleanup(func() {
		_ = l.Close()
		<-p.done
		p.cut()
	})
	return p
}

func (p *proxy) addr() string { return p.l.Addr().String() }

func (p *proxy) accept() {
	defer close(p.done)
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		d, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", p.target)
		if err != nil {
			_ = c.Close()
			continue
		}
		p.mu.Lock()
		p.conns[c], p.conns[d] = struct{}{}, struct{}{}
		p.mu.Unlock()
		go p.pipe(c, d)
		go p.pipe(d, c)
	}
}

func (p *proxy) pipe(from, to net.Conn) {
	_, _ = io.Copy(to, from)
	_, _ = from.Close(), to.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, from)
}

// cut resets every connection: what is in the buffers is lost.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		_ = c.Close()
	}
}
