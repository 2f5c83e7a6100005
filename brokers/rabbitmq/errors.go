package rabbitmq

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

var (
	errClosed    = errors.New("the subscription is closed")
	errForeign   = errors.New("the delivery belongs to another subscription")
	errConnDone  = errors.New("the connection is closed")
	errGaveUp    = errors.New("no answer in time")
	errCancelled = errors.New("the broker cancelled the consumer")
	errSecret    = errors.New("a secret cannot be read")
)

// words are the broker's own, without the library's around them.
type words struct{ err *amqp.Error }

func (w words) Error() string {
	if w.err.Reason == "" {
		return "closed without a word"
	}
	return w.err.Reason
}

// Unwrap gives the library's error.
func (w words) Unwrap() error { return w.err }

// kind is a row of the table that classifies what the broker says: the first
// whose code and text fit counts.
type kind struct {
	code   int
	text   string // part of the reason; "": any
	class  brokers.Class
	remedy string
}

// channelKinds are errors that end one channel, or a call on it.
func channelKinds() []kind {
	return []kind{
		{amqp.NotFound, "is down or inaccessible", brokers.Transient, "the node that hosts the queue is down; it is tried again"},
		{amqp.NotFound, "no queue", brokers.Missing, "create the queue, or set source.rabbitmq.missing: CREATE"},
		{amqp.NotFound, "no exchange", brokers.Missing, "create the exchange"},
		{amqp.NotFound, "", brokers.Missing, "create it"},
		{amqp.NoRoute, "", brokers.Missing, "no queue takes it: create the queue, or bind one to the exchange"},
		{amqp.AccessRefused, "in exclusive use", brokers.Transient, "another consumer has the queue to itself; it is tried again"},
		{amqp.AccessRefused, "", brokers.Refused, "give the user the right: rabbitmqctl set_permissions"},
		{amqp.ResourceLocked, "", brokers.Refused, "the queue belongs to another connection alone; name another queue"},
		{amqp.PreconditionFailed, "delivery acknowledgement on channel", brokers.Transient, "a message was held longer than the broker's consumer_timeout: shorten handler.timeout or prefetch, or raise consumer_timeout"},
		{amqp.PreconditionFailed, "inequivalent arg", brokers.Refused, "the queue is there with other settings: make the spec equal to them, or set missing: WAIT to take it as it is"},
		{amqp.PreconditionFailed, "unknown delivery tag", brokers.Transient, "report this as a bug: a message was settled twice"},
		{amqp.PreconditionFailed, "", brokers.Refused, "change what source.rabbitmq asks for"},
		{amqp.NotAllowed, "", brokers.Refused, "change what source.rabbitmq asks for"},
		{amqp.NotImplemented, "", brokers.Refused, "this broker does not know what source.rabbitmq asks for"},
		{amqp.ContentTooLarge, "", brokers.Refused, "the message is larger than the broker takes"},
		{amqp.ResourceError, "", brokers.Transient, "the broker is short of resources; see its log"},
		{amqp.InternalError, "", brokers.Transient, "see the broker's log"},
	}
}

// connectKinds are errors of opening a connection.
func connectKinds() []kind {
	return []kind{
		{amqp.NotAllowed, "limit", brokers.Transient, "raise the connection limit of the virtual host or the user"},
		{amqp.NotAllowed, "is down", brokers.Transient, "the virtual host is down on that node: rabbitmqctl restart_vhost"},
		{amqp.NotAllowed, "not found", brokers.Refused, "create the virtual host (rabbitmqctl add_vhost), or correct rabbitmq.vhost"},
		{amqp.NotAllowed, "", brokers.Refused, "give the user rights on the virtual host: rabbitmqctl set_permissions"},
		{amqp.AccessRefused, "vhost", brokers.Refused, "give the user rights on the virtual host: rabbitmqctl set_permissions"},
		{amqp.AccessRefused, "", brokers.Refused, "check rabbitmq.auth: user, and what password refers to"},
		// The library tells what it could not read, and so what TLS said, as a bad frame.
		{amqp.FrameError, "remote error: tls", brokers.Refused, seeTLS},
		{amqp.ConnectionForced, "", brokers.Unreachable, "the broker is closing; it is dialled again until it answers"},
		{amqp.InternalError, "", brokers.Transient, "see the broker's log"},
	}
}

func (k *kind) fits(e *amqp.Error) bool {
	return k.code == e.Code && strings.Contains(e.Reason, k.text)
}

// classify wraps err for the contract. An error of the contract and a context's
// own pass as they are.
func classify(op string, err error, kinds []kind) error {
	var (
		done *brokers.Error
		said *amqp.Error
	)
	if err == nil || errors.As(err, &done) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if errors.As(err, &said) {
		for i := range kinds {
			if kinds[i].fits(said) {
				return &brokers.Error{Class: kinds[i].class, Op: op, Err: words{said}, Remedy: kinds[i].remedy}
			}
		}
	}
	switch {
	case errors.Is(err, amqp.ErrChannelMax):
		return &brokers.Error{Class: brokers.Transient, Op: op, Err: words{said}, Remedy: "raise channel_max of the broker, or lower max_consumers_per_connection"}
	case errors.Is(err, amqp.ErrSASL):
		return &brokers.Error{Class: brokers.Refused, Op: op, Err: words{said}, Remedy: "the broker does not offer this way to sign in; see rabbitmq.auth and the broker's auth_mechanisms"}
	case errors.Is(err, errSecret):
		return &brokers.Error{Class: brokers.Refused, Op: op, Err: err, Remedy: "set it where the daemon runs"}
	case isTLS(err):
		return &brokers.Error{Class: brokers.Refused, Op: op, Err: err, Remedy: seeTLS}
	case said != nil:
		return &brokers.Error{Class: brokers.Unreachable, Op: op, Err: words{said}, Remedy: redials}
	}
	return &brokers.Error{Class: brokers.Unreachable, Op: op, Err: err, Remedy: "is RabbitMQ listening there?"}
}

const (
	redials = "it is dialled again until it answers"
	seeTLS  = "see rabbitmq.tls: ca_file, server_name, cert_file; and whether the port speaks TLS"
)

// classifySource is classify for a source, whose spec says whether to wait for it.
func (s *source) classify(op string, err error) error {
	err = classify(op, err, channelKinds())
	var e *brokers.Error
	if errors.As(err, &e) && e.Class == brokers.Missing {
		e.Wait = s.waits()
		if s.creates() {
			e.Class = brokers.Refused // what a binding names, for the queue is made
		}
	}
	return err
}

// isTLS tells whether one of the two sides refused the other's certificate or
// protocol, which is not the same as a handshake that broke off.
func isTLS(err error) bool {
	var (
		verify   *tls.CertificateVerificationError
		record   tls.RecordHeaderError
		op       *net.OpError
		unknown  x509.UnknownAuthorityError
		hostname x509.HostnameError
		invalid  x509.CertificateInvalidError
	)
	// Package tls has no exported type for an alert of the other side.
	alert := errors.As(err, &op) && op.Op == "remote error"
	return alert || errors.As(err, &verify) || errors.As(err, &record) ||
		errors.As(err, &unknown) || errors.As(err, &hostname) || errors.As(err, &invalid)
}

// fenced is what a subscription says once its epoch is over.
func fenced(why error) error {
	return &brokers.Error{Class: brokers.Fenced, Op: "use the subscription", Err: why}
}
