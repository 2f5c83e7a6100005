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
	// stalled is closed when what clients send goes on; nil while it does.
	stalled chan struct{}
	// fatal: the next that a client sends cuts all.
	fatal bool
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
		p.unstall()
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
		go p.pipe(c, requests{c, p}, d)
		go p.pipe(d, d, c)
	}
}

func (p *proxy) pipe(from net.Conn, data io.Reader, to net.Conn) {
	_, _ = io.Copy(to, data)
	_, _ = from.Close(), to.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, from)
}

// requests is what a client sends.
type requests struct {
	net.Conn

	proxy *proxy
}

func (r requests) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	p := r.proxy
	p.mu.Lock()
	stalled, fatal := p.stalled, p.fatal
	p.fatal = false
	p.mu.Unlock()
	if fatal {
		p.cut()
	}
	if stalled != nil {
		<-stalled
	}
	return n, err
}

// stall swallows what clients send, until unstall.
func (p *proxy) stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = make(chan struct{})
}

func (p *proxy) unstall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled != nil {
		close(p.stalled)
		p.stalled = nil
	}
}

// cutAtNext cuts all as soon as a client sends anything.
func (p *proxy) cutAtNext() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fatal = true
}

// cut resets every connection: what is in the buffers is lost.
func (p *proxy) cut() { p.cutFrom("") }

// cutFrom resets the connection of one client, by its address.
func (p *proxy) cutFrom(client string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if client != "" && c.RemoteAddr().String() != client {
			continue
		}
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		_ = c.Close()
	}
}
