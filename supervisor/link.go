package supervisor

import (
	"context"
	"errors"
	"log/slog"
	"slices"
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
	conn    *shared
	dialing chan struct{} // closed when the dial under way has ended
	err     error         // of the last dial
	fails   int
	next    time.Time // no dial before
	closed  bool
	// closings under way of connections that were lost.
	closings []chan struct{}
}

// shared is one connection and how many use it; the link's lock guards it.
type shared struct {
	brokers.Conn
	// users are subscriptions that are not closed yet, and those being made.
	users int
	// lost: it has been replaced, and is closed when the last user has left.
	lost bool
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

// join returns the connection, dialling when there is none, with one user more:
// the caller leaves it.
func (l *link) join(ctx context.Context) (*shared, error) {
	for {
		l.mu.Lock()
		if l.conn != nil {
			select {
			case <-l.conn.Lost():
				l.retire()
			default:
				defer l.mu.Unlock()
				l.conn.users++
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

// leave ends what join began.
func (l *link) leave(c *shared) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.users--
	l.closeLost(c)
}

// retire puts the lost connection aside. What still uses it has yet to learn of
// the loss.
func (l *link) retire() {
	c := l.conn
	l.conn = nil
	c.lost = true
	l.closeLost(c)
}

// closeLost closes a connection that was lost once nobody uses it.
func (l *link) closeLost(c *shared) {
	if !c.lost || c.users > 0 {
		return
	}
	done := make(chan struct{})
	l.closings = append(slices.DeleteFunc(l.closings, isClosed), done)
	go func() {
		defer close(done)
		closeConn(c, l.env.Log)
	}()
}

func isClosed(done chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
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
		l.conn, l.fails = &shared{Conn: conn}, 0
	}
	close(done)
}

// subscribe opens one consumer's intake, in its turn. Waiting for the turn takes
// as long as ctx allows, the rest has limits of its own.
// Whoever has closed the subscription calls leave.
func (l *link) subscribe(ctx context.Context, source any, o brokers.Observer) (sub brokers.Subscription, leave func(), err error) {
	conn, err := l.join(ctx)
	if err != nil {
		return nil, nil, err
	}
	if sub, err = l.subscribeOn(ctx, conn, source, o); err != nil {
		l.leave(conn)
		return nil, nil, err
	}
	return sub, func() { l.leave(conn) }, nil
}

func (l *link) subscribeOn(ctx context.Context, conn *shared, source any, o brokers.Observer) (brokers.Subscription, error) {
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
	conn, err := l.join(ctx)
	if err != nil {
		return err
	}
	defer l.leave(conn)
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
		awaitDone(ctx, wait)
	}
	l.mu.Lock()
	closings := l.closings
	l.mu.Unlock()
	var err error
	if conn != nil {
		err = conn.Close(ctx)
	}
	for _, done := range closings {
		awaitDone(ctx, done)
	}
	return err
}

func awaitDone(ctx context.Context, done <-chan struct{}) {
	select {
	case <-done:
	case <-ctx.Done():
	}
}

func closeConn(c brokers.Conn, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		log.Warn("closing a connection", "error", err)
	}
}
