package nats

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

var (
	errClosed   = errors.New("the subscription is closed")
	errForeign  = errors.New("the delivery belongs to another subscription")
	errConnDone = errors.New("the connection is closed")
	errGaveUp   = errors.New("no answer in time")
	errSecret   = errors.New("a secret cannot be read")
)

// kind is a row of the table that classifies: an error, its class, what to do.
type kind struct {
	err    error
	class  brokers.Class
	remedy string
}

// kinds is read from the top; what is not in it is Transient when the server
// answered, else Unreachable.
func kinds() []kind {
	return []kind{
		{errSecret, brokers.Refused, "see nats.auth: is the variable set, the file there?"},
		{nats.ErrAuthorization, brokers.Refused, "check nats.auth against the server's users"},
		{nats.ErrAuthExpired, brokers.Refused, "renew the credentials"},
		{nats.ErrAuthRevoked, brokers.Refused, "get new credentials from the account's operator"},
		{nats.ErrAccountAuthExpired, brokers.Refused, "the account's token has to be renewed by its operator"},
		{nats.ErrPermissionViolation, brokers.Refused, "grant this user the subject named"},
		{nats.ErrSecureConnRequired, brokers.Refused, "the server wants TLS: use a tls:// URL"},
		{nats.ErrSecureConnWanted, brokers.Refused, "the server has no TLS: use a nats:// URL, or turn TLS on there"},
		{nats.ErrNkeysNotSupported, brokers.Refused, "the server does not take credentials files"},
		{nats.ErrHeadersNotSupported, brokers.Refused, "use a nats-server of 2.10 or later"},
		{nats.ErrMaxPayload, brokers.Refused, "the message is larger than the server's max_payload"},
		{jetstream.ErrStreamNotFound, brokers.Missing, "create the stream, or set source.nats.missing: CREATE"},
		{jetstream.ErrConsumerNotFound, brokers.Missing, "create the durable, or set source.nats.manage: CREATE_IF_MISSING"},
		{jetstream.ErrConsumerDoesNotExist, brokers.Missing, "create the durable, or set source.nats.manage: CREATE_IF_MISSING"},
		{jetstream.ErrConsumerDeleted, brokers.Missing, "somebody deleted the durable or its stream; a new durable begins at deliver_policy"},
		{jetstream.ErrNoStreamResponse, brokers.Missing, "no stream listens on that subject: add it to a stream"},
		{jetstream.ErrJetStreamNotEnabled, brokers.Transient, "turn JetStream on in the server, or wait for it to come up"},
		{jetstream.ErrJetStreamNotEnabledForAccount, brokers.Refused, "turn JetStream on for this account"},
		{jetstream.ErrNotPullConsumer, brokers.Refused, "the durable pushes; name another one in source.nats.durable"},
		{jetstream.ErrConsumerExists, brokers.Transient, "another process created the durable at this moment with other settings"},
		{jetstream.ErrConsumerCreate, brokers.Refused, "see source.nats for what the server does not take"},
		{jetstream.ErrBadRequest, brokers.Refused, "the server does not understand the request; is it of 2.10 or later?"},
		{jetstream.ErrMaximumConsumersLimit, brokers.Refused, "raise max_consumers of the stream or the account"},
		{nats.ErrReconnectBufExceeded, brokers.Unreachable, "the connection is down; it is dialled again until it answers"},
		{nats.ErrNoResponders, brokers.Transient, "is JetStream up on the server?"},
		{nats.ErrSlowConsumer, brokers.Transient, "report this as a bug: more came than was asked for"},
		{nats.ErrMaxConnectionsExceeded, brokers.Transient, "raise max_connections of the server"},
		{nats.ErrMaxAccountConnectionsExceeded, brokers.Transient, "raise the account's connection limit"},
	}
}

// classify wraps err for the contract. An error of the contract and a
// context's own pass as they are.
func classify(op string, err error) error {
	var done *brokers.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	for _, k := range kinds() {
		if errors.Is(err, k.err) {
			return &brokers.Error{Class: k.class, Op: op, Err: err, Remedy: k.remedy}
		}
	}
	if isTLS(err) {
		return &brokers.Error{Class: brokers.Refused, Op: op, Err: err, Remedy: "see nats.tls: ca_file, server_name, cert_file"}
	}
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return classifyAPI(op, err, api)
	}
	return &brokers.Error{Class: brokers.Unreachable, Op: op, Err: err}
}

// classifyAPI classifies an answer of JetStream that has no row of its own: a
// client's mistake (400 to 499) does not get better by trying again.
func classifyAPI(op string, err error, api *jetstream.APIError) error {
	e := &brokers.Error{Class: brokers.Transient, Op: op, Err: err}
	if api.Code >= 400 && api.Code < 500 {
		e.Class, e.Remedy = brokers.Refused, "change what the server names"
	}
	return e
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
