package nats

import (
	"bytes"
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
	conns  map[net.Conn]bool // true: a client's
	// blocked is closed when publishers may go on; nil while they may.
	blocked chan struct{}
}

func startProxy(tb testing.TB, target string) *proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &proxy{l: l, target: target, done: make(chan struct{}), conns: map[net.Conn]bool{}}
	go p.accept()
	tb.Cleanup(func() {
		_ = l.Close()
		<-p.done
		p.unblock()
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
		p.conns[c], p.conns[d] = true, false
		p.mu.Unlock()
		go p.pipe(c, &requests{Conn: c, proxy: p}, d)
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

// requests is what a client sends. What the driver's publisher sends waits while
// the proxy is blocked, as it does when the server stalls a fast producer.
type requests struct {
	net.Conn

	proxy     *proxy
	publisher bool
}

func (r *requests) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.publisher = r.publisher || bytes.Contains(b[:n], []byte(`"name":"supervisord test publisher"`))
	r.proxy.mu.Lock()
	blocked := r.proxy.blocked
	r.proxy.mu.Unlock()
	if r.publisher && blocked != nil {
		<-blocked
	}
	return n, err
}

func (p *proxy) block() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocked = make(chan struct{})
}

func (p *proxy) unblock() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.blocked != nil {
		close(p.blocked)
		p.blocked = nil
	}
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

// say puts words into the server's mouth, on every connection.
func (p *proxy) say(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, client := range p.conns {
		if client {
			_, _ = io.WriteString(c, line)
		}
	}
}
