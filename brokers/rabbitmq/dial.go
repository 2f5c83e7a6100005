package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

const (
	// dialTimeout bounds one attempt on one server, handshakes included;
	// leastDial is how long it gets at least while others wait for their turn.
	dialTimeout = 8 * time.Second
	leastDial   = 4 * time.Second
	// A broker refuses a password by closing the socket without a word, three
	// seconds later. One that closes sooner may have had another reason, so that
	// only so many of these in a row are believed.
	silence        = 2500 * time.Millisecond
	signInAttempts = 3
	signInPause    = 200 * time.Millisecond
)

// dialer knows how to reach one connection's servers.
type dialer struct {
	settings

	env brokers.Env
}

// dial tries the servers in order within ctx, and says what each answered.
// purpose tells the connections of one process apart in the broker's lists.
func (d *dialer) dial(ctx context.Context, purpose string) (*amqp.Connection, error) {
	op := "connect to " + d.name
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var all []error
	for i, raw := range d.urls {
		conn, err := d.signIn(ctx, raw, purpose, len(d.urls)-i)
		if err == nil {
			return conn, nil
		}
		all = append(all, classify(op, err, connectKinds()))
		if assumed(err) {
			break // the others know the same users
		}
	}
	return nil, worst(op, all)
}

// worst is the error that says most: what trying again does not help, then what
// the broker answered.
func worst(op string, all []error) error {
	if len(all) == 1 {
		return all[0]
	}
	out := &brokers.Error{Class: brokers.Unreachable, Op: op}
	rank := map[brokers.Class]int{brokers.Unreachable: 1, brokers.Transient: 2, brokers.Refused: 3}
	best := 0
	texts := make([]string, 0, len(all))
	for _, err := range all {
		e, ok := errors.AsType[*brokers.Error](err)
		if !ok {
			texts = append(texts, err.Error())
			continue
		}
		texts = append(texts, e.Err.Error())
		if rank[e.Class] > best {
			best, out.Class, out.Remedy = rank[e.Class], e.Class, e.Remedy
		}
	}
	out.Err = errors.New(strings.Join(texts, "; "))
	return out
}

// signIn dials one server, and again while it may have hung up for another reason
// than the one that the library assumes. left counts the servers still to be
// tried: each gets its share of the time.
func (d *dialer) signIn(ctx context.Context, raw, purpose string, left int) (*amqp.Connection, error) {
	limit := dialTimeout
	if t, ok := ctx.Deadline(); ok {
		limit = min(limit, max(leastDial, time.Until(t)/time.Duration(left)))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errGaveUp)
	defer cancel()
	for attempt := 1; ; attempt++ {
		began := time.Now()
		conn, err := d.dialOne(ctx, raw, purpose)
		if !assumed(err) || time.Since(began) > silence || attempt == signInAttempts {
			return conn, err
		}
		pause := time.NewTimer(rand.N(signInPause))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, err
		}
	}
}

// assumed tells errors that the library makes up when the broker hangs up.
func assumed(err error) bool {
	return errors.Is(err, amqp.ErrCredentials) || errors.Is(err, amqp.ErrVhost)
}

// dialOne dials one server once.
func (d *dialer) dialOne(ctx context.Context, raw, purpose string) (*amqp.Connection, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("the URL cannot be read") // its text may hold a password
	}
	cfg := amqp.Config{
		Vhost: d.vhost, Heartbeat: d.heartbeat,
		// The library writes into these, so each dial has its own.
		Properties: amqp.Table{
			"product": "supervisord", "platform": "golang", "connection_name": "supervisord " + d.name + " " + purpose,
		},
	}
	if cfg.SASL, err = d.auth(); err != nil {
		return nil, err
	}
	if u.Scheme == "amqps" {
		if cfg.TLSClientConfig, err = brokers.TLSConfig("rabbitmq", d.tls, u.Hostname()); err != nil {
			return nil, err
		}
	}
	var socket net.Conn
	live := func() bool { return true }
	cfg.Dial = func(network, addr string) (net.Conn, error) {
		socket, err = (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		s := socket
		live = context.AfterFunc(ctx, func() { _ = s.Close() }) // ends the handshakes
		return s, nil
	}
	conn, err := amqp.DialConfig(u.Scheme+"://"+u.Host, cfg)
	switch {
	case !live():
		err = context.Cause(ctx)
	case err == nil:
		return conn, nil
	}
	if socket != nil {
		_ = socket.Close() // the library leaves it open after some errors
	}
	return nil, err
}

// auth resolves the password at each dial, so that a rotated one is taken up.
func (d *dialer) auth() ([]amqp.Authentication, error) {
	if d.user == "" {
		return []amqp.Authentication{&amqp.ExternalAuth{}}, nil
	}
	password, err := d.env.Secret(d.password)
	if err != nil {
		return nil, fmt.Errorf("rabbitmq.auth.password: %w: %w", errSecret, err)
	}
	return []amqp.Authentication{&amqp.PlainAuth{Username: d.user, Password: password}}, nil
}
