package nats

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// backgroundLimit bounds what goes on after a caller's context has ended, where
// nothing closer bounds it.
const backgroundLimit = 30 * time.Second

// conn is one connection. Its nats.go connection reconnects by itself; each
// time it is down, the subscriptions of that time break.
type conn struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	dialer *dialer
	log    *slog.Logger
	out    outbox
	pub    publisher
	server *embedded // nil without
	// proofs is what the subjects that answers to acks come to begin with.
	proofs string
	// base is what the monotonic times of deliveries count from.
	base time.Time
	// lost is closed when nats.go gave up against its instructions.
	lost chan struct{}
	// over is closed when nothing can be told to the server any more: the
	// connection is lost, or Close has waited for long enough.
	over    chan struct{}
	endOver func()
	// work counts goroutines that outlive the call that started them.
	work sync.WaitGroup

	mu sync.Mutex
	// err is why the connection is down; nil while it is up.
	err error
	// up is closed while the connection is up, down while it is not.
	up, down chan struct{}
	// session counts connections of nats.go: an outcome is sent in the session
	// that it was settled in, or not at all.
	session uint64
	subs    map[uint32]*subscription
	// requests wait for an answer of the server.
	requests map[*request]bool
	lastID   uint32
	// closing: Close was called; ended: so was nats.go's.
	closing, ended bool
}

var _ brokers.Conn = (*conn)(nil)

// open dials. It may take longer than ctx; the caller waits for that.
func open(ctx context.Context, name string, cfg *supervisorv1.NatsConnection, env brokers.Env) (*conn, error) {
	if env.Log == nil {
		env.Log = slog.New(slog.DiscardHandler)
	}
	c := &conn{
		dialer:   &dialer{name: name, cfg: cfg, env: env},
		log:      env.Log.With("connection", name),
		base:     time.Now(),
		lost:     make(chan struct{}),
		over:     make(chan struct{}),
		up:       make(chan struct{}),
		down:     make(chan struct{}),
		subs:     map[uint32]*subscription{},
		requests: map[*request]bool{},
	}
	close(c.up)
	c.endOver = sync.OnceFunc(func() { close(c.over) })
	if cfg.GetEmbedded() {
		server, err := startEmbedded(ctx, name, cfg, env)
		if err != nil {
			return nil, err
		}
		c.server, c.dialer.server = server, server.server
	}
	if err := c.connect(ctx); err != nil {
		c.stopServer()
		return nil, err
	}
	return c, nil
}

func (c *conn) connect(ctx context.Context) error {
	nc, err := c.dialer.dial(ctx, "consumers",
		nats.DisconnectErrHandler(c.wentDown), nats.ReconnectHandler(c.cameUp),
		nats.ReconnectErrHandler(c.dialFailed), nats.ErrorHandler(c.serverSaid),
		nats.ClosedHandler(c.gaveUp))
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return err
	}
	c.nc, c.js = nc, js
	c.proofs = nc.NewInbox() + "."
	if err := c.listen(ctx, nc); err != nil {
		nc.Close()
		return err
	}
	c.pub.dialer, c.pub.heard = c.dialer, c.serverSaid
	c.out.start(c)
	return nil
}

// listen subscribes to the proofs. A server that refuses inboxes says so before
// it answers a ping.
func (c *conn) listen(ctx context.Context, nc *nats.Conn) error {
	if _, err := nc.Subscribe(c.proofs+"*.*", c.proved); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, errGaveUp)
	defer cancel()
	if err := nc.FlushWithContext(ctx); err != nil {
		return err
	}
	if err := nc.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
		return err
	}
	return nil
}

// wentDown breaks all subscriptions. nats.go calls this and the other handlers
// one after another on a goroutine of its own.
func (c *conn) wentDown(_ *nats.Conn, err error) {
	if err == nil {
		err = nats.ErrDisconnected
	}
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return
	}
	if c.err == nil {
		c.err = &brokers.Error{Class: brokers.Unreachable, Op: c.op(), Err: err, Remedy: "it is dialled again until it answers"}
		c.up = make(chan struct{})
		close(c.down)
	}
	c.session++
	why, subs := c.err, c.all()
	c.mu.Unlock()
	c.log.Warn("connection down", "error", err)
	for _, s := range subs {
		s.fail(why)
	}
}

func (c *conn) cameUp(*nats.Conn) {
	c.mu.Lock()
	if c.err != nil {
		c.err = nil
		c.down = make(chan struct{})
		close(c.up)
	}
	c.mu.Unlock()
	c.log.Info("connection is back")
}

// dialFailed hears of each attempt that failed.
func (c *conn) dialFailed(_ *nats.Conn, err error) { c.explain(err) }

// explain tells more about why the connection is down.
func (c *conn) explain(err error) {
	if p := c.dialer.secretErr.Load(); p != nil {
		err = *p
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		c.err = classify(c.op(), err)
	}
}

func (c *conn) op() string { return "connect to " + c.dialer.name }

// gaveUp is called by nats.go when it will not reconnect: because we closed it,
// or after an error of the server that it takes for final.
func (c *conn) gaveUp(nc *nats.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	err := nc.LastError()
	if err == nil {
		err = nats.ErrConnectionClosed
	}
	if c.err == nil {
		c.up = make(chan struct{})
		close(c.down)
	}
	why := classify(c.op(), err)
	c.err = why
	close(c.lost)
	c.endOver()
	for _, s := range c.all() {
		c.background(func() { s.fail(why) })
	}
}

// all lists the subscriptions; mu is held.
func (c *conn) all() []*subscription {
	subs := make([]*subscription, 0, len(c.subs))
	for _, s := range c.subs {
		subs = append(subs, s)
	}
	return subs
}

// serverSaid hears of errors that belong to no call: refusals of a subject,
// and of a sign-in while reconnecting.
func (c *conn) serverSaid(_ *nats.Conn, sub *nats.Subscription, err error) {
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		_, rest, _ := strings.Cut(err.Error(), `"`)
		subject, _, _ := strings.Cut(rest, `"`)
		c.refused(subject, err)
		return
	case errors.Is(err, nats.ErrSlowConsumer) && sub != nil:
		c.refused(sub.Subject, err) // dropped: see inbox for why that cannot be
		return
	}
	c.explain(err)
	c.log.Warn("server reports", "error", err)
}

// proved takes the server's answer to an acknowledgement: PROOFS.id.number.
func (c *conn) proved(m *nats.Msg) {
	token, number, _ := strings.Cut(m.Subject[len(c.proofs):], ".")
	id, err1 := strconv.ParseUint(token, 36, 32)
	n, err2 := strconv.ParseUint(number, 36, 64)
	if err1 != nil || err2 != nil {
		return
	}
	c.mu.Lock()
	s := c.subs[uint32(id)]
	c.mu.Unlock()
	if s == nil {
		return
	}
	if m.Header.Get("Status") == "503" { // nobody listens to acks of this durable
		s.unheard()
		return
	}
	if n == lastWord {
		s.answered()
		return
	}
	s.proved(n)
}

// Err says why the connection is down.
func (c *conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Lost is closed only when nats.go gave up, which it does after some protocol
// errors; an outage is none.
func (c *conn) Lost() <-chan struct{} { return c.lost }

// link is what a connection is at one moment.
type link struct {
	session uint64
	// up and down are closed while it is so.
	up, down chan struct{}
	err      error
}

func (c *conn) link() link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return link{c.session, c.up, c.down, c.err}
}

// add registers s, unless the session that it was begun in is over.
func (c *conn) add(s *subscription) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closing:
		return &brokers.Error{Class: brokers.Fenced, Op: s.op, Err: errConnDone}
	case c.err != nil:
		return c.err
	case s.session != c.session:
		return &brokers.Error{Class: brokers.Unreachable, Op: s.op, Err: nats.ErrDisconnected}
	}
	c.lastID++
	s.id = c.lastID
	c.subs[s.id] = s
	return nil
}

func (c *conn) remove(s *subscription) {
	c.mu.Lock()
	delete(c.subs, s.id)
	c.mu.Unlock()
}

// background runs f, which must end by itself, beyond the call that needs it.
func (c *conn) background(f func()) { c.work.Go(f) }

// Close waits for what closed subscriptions still have to say, then ends the
// connection, and the server inside it.
func (c *conn) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return nil
	}
	c.closing = true
	c.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.work.Wait()
		c.pub.close()
		c.out.stop()
		c.mu.Lock()
		c.ended = true
		c.mu.Unlock()
		c.nc.Close()
		c.stopServer()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		c.endOver()
		return &brokers.Error{Class: brokers.Unreachable, Op: "close " + c.dialer.name, Err: context.Cause(ctx),
			Remedy: "it goes on in the background"}
	}
}

func (c *conn) stopServer() {
	if c.server != nil {
		c.server.stop()
	}
}
