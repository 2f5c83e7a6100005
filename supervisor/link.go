package supervisor

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

const (
	// dialTimeout bounds one attempt to connect.
	dialTimeout = 10 * time.Second
	// subscribesAtOnce paces the subscriptions of many consumers on one
	// connection, at the start and after a reconnect.
	subscribesAtOnce = 16
)

// link is a connection that many consumers share. Whoever needs it first dials
// for all; after a failure nobody dials again before the backoff is over.
type link struct {
	cfg    *pb.Connection
	driver brokers.Driver
	env    brokers.Env
	jitter func() float64
	pace   chan struct{}

	mu      sync.Mutex
	conn    brokers.Conn
	dialing chan struct{} // closed when the dial under way has ended
	err     error         // of the last dial
	fails   int
	next    time.Time // no dial before
	closed  bool
}

func newLink(c *pb.Connection, d brokers.Driver, env brokers.Env, jitter func() float64) *link {
	return &link{cfg: c, driver: d, env: env, jitter: jitter, pace: make(chan struct{}, subscribesAtOnce)}
}

// hurry lets the next who needs the connection dial at once.
func (l *link) hurry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = time.Time{}
}

// get returns the connection, dialling when there is none.
func (l *link) get(ctx context.Context) (brokers.Conn, error) {
	for {
		l.mu.Lock()
		if l.conn != nil {
			select {
			case <-l.conn.Lost():
				go closeConn(l.conn, l.env.Log)
				l.conn = nil
			default:
				defer l.mu.Unlock()
				return l.conn, nil
			}
		}
		wait := l.dialing
		switch {
		case l.closed:
			l.mu.Unlock()
			return nil, &brokers.Error{Class: brokers.Fenced, Op: "connect", Err: errors.New("the process is shutting down")}
		case wait == nil && l.err != nil && time.Now().Before(l.next):
			defer l.mu.Unlock()
			return nil, l.err
		case wait == nil:
			wait = make(chan struct{})
			l.dialing = wait
			go l.dial(wait)
		}
		l.mu.Unlock()
		select {
		case <-wait:
			l.mu.Lock()
			err := l.err
			l.mu.Unlock()
			if err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (l *link) dial(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	conn, err := l.driver.Open(ctx, l.cfg, l.env)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dialing, l.err = nil, err
	switch {
	case err != nil:
		l.fails++
		l.next = time.Now().Add(backoff{500 * time.Millisecond, 30 * time.Second}.after(l.fails, l.jitter))
	case l.closed:
		go closeConn(conn, l.env.Log)
	default:
		l.conn, l.fails = conn, 0
	}
	close(done)
}

// subscribe opens one consumer's intake, in its turn. Waiting for the turn takes
// as long as ctx allows, the rest has limits of its own.
func (l *link) subscribe(ctx context.Context, source any, o brokers.Observer) (brokers.Subscription, error) {
	conn, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	select {
	case l.pace <- struct{}{}:
		defer func() { <-l.pace }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	return conn.Subscribe(ctx, source, o)
}

// publish sends on the connection, which must be there already.
func (l *link) publish(ctx context.Context, p []brokers.Publication) error {
	conn, err := l.get(ctx)
	if err != nil {
		return err
	}
	return conn.Publish(ctx, p)
}

// status tells whether the connection is up, and why not.
func (l *link) status() (bool, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.conn != nil:
		if err := l.conn.Err(); err != nil {
			return false, err.Error()
		}
		return true, ""
	case l.err != nil:
		return false, l.err.Error()
	}
	return false, "not used yet"
}

func (l *link) close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	conn := l.conn
	l.conn = nil
	wait := l.dialing
	l.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
		}
	}
	if conn == nil {
		return nil
	}
	return conn.Close(ctx)
}

func closeConn(c brokers.Conn, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		log.Warn("closing a connection", "error", err)
	}
}
