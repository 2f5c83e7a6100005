package rabbitmq

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// closeLimit bounds the closing of a TCP connection that nobody uses.
const closeLimit = 2 * time.Second

// conn is a connection of the configuration: TCP connections for consumers, each
// shared by a bounded number of them, and one for publications. One that ends
// takes its own subscriptions with it; they come back on another, dialled when
// needed. With the last one the conn is lost.
type conn struct {
	dialer *dialer
	log    *slog.Logger
	pub    publisher
	lost   chan struct{}
	// work counts goroutines that outlive the call that started them.
	work sync.WaitGroup
	// tags numbers consumer tags.
	tags atomic.Uint64

	mu    sync.Mutex
	links []*link
	// dialing is the dial under way; nil when none is.
	dialing *flight
	// err is why the conn is lost; nil while it is up.
	err     error
	closing bool
}

var _ brokers.Conn = (*conn)(nil)

// flight is a dial that several wait for.
type flight struct {
	done chan struct{}
	err  error // set before done is closed
}

func newConn(name string, cfg *supervisorv1.RabbitmqConnection, env brokers.Env) *conn {
	c := &conn{
		dialer: &dialer{settingsOf(name, cfg), env},
		log:    env.Log,
		lost:   make(chan struct{}),
	}
	c.pub.c = c
	c.pub.idle = make(chan struct{}, 1)
	return c
}

func (c *conn) op() string { return "connect to " + c.dialer.name }

// background runs f, which must end by itself, beyond the call that needs it.
func (c *conn) background(f func()) { c.work.Go(f) }

// Err says why the connection is lost.
func (c *conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Lost is closed when the last TCP connection for consumers has ended: whoever
// opens again dials once for all of them.
func (c *conn) Lost() <-chan struct{} { return c.lost }

// drop forgets a link that has ended.
func (c *conn) drop(l *link, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.links, l)
	if i < 0 {
		return // retired
	}
	c.links = slices.Delete(c.links, i, i+1)
	if c.closing {
		return
	}
	c.log.Warn("a connection ended", "error", why, "left", len(c.links))
	if len(c.links) == 0 {
		c.err = why
		close(c.lost)
	}
}

// reserve finds a link with room, or dials one. Whoever gets one calls release.
func (c *conn) reserve(ctx context.Context, op string) (*link, error) {
	for {
		c.mu.Lock()
		switch {
		case c.closing:
			c.mu.Unlock()
			return nil, &brokers.Error{Class: brokers.Fenced, Op: op, Err: errConnDone}
		case c.err != nil:
			defer c.mu.Unlock()
			return nil, c.err
		}
		for _, l := range c.links {
			if l.used < c.dialer.consumers && !l.amqp.IsClosed() {
				l.used++
				c.mu.Unlock()
				return l, nil
			}
		}
		wait := c.dialing
		if wait == nil {
			return c.extend(ctx) // unlocks
		}
		c.mu.Unlock()
		select {
		case <-wait.done:
			if wait.err != nil {
				return nil, wait.err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// extend dials one more link and reserves it; mu is held, and released.
func (c *conn) extend(ctx context.Context) (*link, error) {
	f := &flight{done: make(chan struct{})}
	c.dialing = f
	c.mu.Unlock()
	l, err := c.dialLink(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dialing = nil
	if ctx.Err() == nil {
		f.err = err // else it is this caller's alone
	}
	close(f.done)
	switch {
	case err != nil:
		return nil, err
	case c.closing || c.err != nil:
		c.background(func() { closeNow(l.amqp) })
		return nil, &brokers.Error{Class: brokers.Unreachable, Op: c.op(), Err: errConnDone, Remedy: redials}
	}
	l.used++
	c.links = append(c.links, l)
	return l, nil
}

// release gives a place on a link back. A link that nobody uses is closed, unless
// it is the only one.
func (c *conn) release(l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.used--
	i := slices.Index(c.links, l)
	if l.used > 0 || len(c.links) == 1 || i < 0 || c.closing {
		return
	}
	c.links = slices.Delete(c.links, i, i+1)
	c.background(func() { closeNow(l.amqp) })
}

// tag makes a consumer tag that no epoch before had.
func (c *conn) tag(s *source) string {
	return "supervisord " + s.consumer + " " + strconv.FormatUint(c.tags.Add(1), 10)
}

// Close waits for what closed subscriptions still have to say, then ends the TCP
// connections. When ctx ends first they are ended in the background.
func (c *conn) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return nil
	}
	c.closing = true
	raw := make([]*amqp.Connection, 0, len(c.links)+1)
	for _, l := range c.links {
		raw = append(raw, l.amqp)
	}
	c.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		quiet := make(chan struct{})
		go func() {
			defer close(quiet)
			c.work.Wait()
		}()
		select {
		case <-quiet:
		case <-ctx.Done():
		}
		c.end(append(raw, c.pub.close()...))
		<-quiet // all calls end with their connections
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return &brokers.Error{
			Class: brokers.Unreachable, Op: "close " + c.dialer.name, Err: context.Cause(ctx),
			Remedy: "it goes on in the background",
		}
	}
}

// end closes connections side by side, and returns when all are.
func (c *conn) end(all []*amqp.Connection) {
	var wg sync.WaitGroup
	for _, raw := range all {
		wg.Go(func() { closeNow(raw) })
	}
	wg.Wait()
}

// closeNow closes a connection that nobody shares, whatever the broker does.
func closeNow(raw *amqp.Connection) { _ = raw.CloseDeadline(time.Now().Add(closeLimit)) }
