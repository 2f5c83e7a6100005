package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

var (
	errClosed   = errors.New("the subscription is closed")
	errForeign  = errors.New("the delivery belongs to another subscription")
	errConnDone = errors.New("the connection is closed")
	errSecret   = errors.New("a secret cannot be read")
	errSilent   = errors.New("no answer in time")
)

// kind is a row of the table that classifies: an error, its class, what to do.
type kind struct {
	err    error
	class  brokers.Class
	remedy string
}

const (
	rights = "grant the right, then start the consumer"
	broken = "correct the specification or the broker's settings"
)

// kinds has every error of a broker that is not to be tried again as it is.
func kinds() []kind {
	return []kind{
		{errSecret, brokers.Refused, "set the variable or the file"},
		{kerr.SaslAuthenticationFailed, brokers.Refused, "check user and password in kafka.auth"},
		{kerr.UnsupportedSaslMechanism, brokers.Refused, "use a mechanism that the broker offers (kafka.auth.mechanism)"},
		{kerr.IllegalSaslState, brokers.Refused, "the listener wants another way to sign in; check kafka.auth and the port"},
		{kerr.TopicAuthorizationFailed, brokers.Refused, rights},
		{kerr.GroupAuthorizationFailed, brokers.Refused, rights},
		{kerr.ClusterAuthorizationFailed, brokers.Refused, rights},
		{kerr.TransactionalIDAuthorizationFailed, brokers.Refused, rights},
		{kerr.InvalidTopicException, brokers.Refused, broken},
		{kerr.InvalidGroupID, brokers.Refused, broken},
		{kerr.InvalidSessionTimeout, brokers.Refused, "keep session_timeout within group.min.session.timeout.ms and group.max.session.timeout.ms"},
		{kerr.InconsistentGroupProtocol, brokers.Refused, "all members of a group need a common balancer and the same protocol"},
		{kerr.UnsupportedVersion, brokers.Refused, "this broker cannot do it; for protocol CONSUMER it must be 4.0 or later"},
		{kerr.UnsupportedAssignor, brokers.Refused, broken},
		{kerr.InvalidRegularExpression, brokers.Refused, broken},
		{kerr.InvalidReplicationFactor, brokers.Refused, broken},
		{kerr.InvalidPartitions, brokers.Refused, broken},
		{kerr.InvalidConfig, brokers.Refused, broken},
		{kerr.PolicyViolation, brokers.Refused, broken},
		{kerr.MessageTooLarge, brokers.Refused, "raise max.message.bytes of the topic"},
		{kerr.RecordListTooLarge, brokers.Refused, "raise max.message.bytes of the topic"},
		{kerr.InvalidRecord, brokers.Refused, "the topic does not take such records"},
		{kerr.OffsetMetadataTooLarge, brokers.Refused, "raise offset.metadata.max.bytes of the broker"},
		{kerr.UnknownTopicOrPartition, brokers.Missing, ""},
		{kerr.UnknownTopicID, brokers.Missing, ""},
		{kerr.FencedInstanceID, brokers.Fenced, "another member of the group has the same instance_id: give each its own"},
		{kerr.UnreleasedInstanceID, brokers.Fenced, "another member of the group has the same instance_id: give each its own"},
		{kgo.ErrClientClosed, brokers.Fenced, ""},
		{context.DeadlineExceeded, brokers.Unreachable, ""},
		{context.Canceled, brokers.Unreachable, ""},
		{errSilent, brokers.Unreachable, ""},
		{io.EOF, brokers.Unreachable, "the broker hung up: check the port, and whether it wants TLS or SASL"},
		{io.ErrUnexpectedEOF, brokers.Unreachable, ""},
		{net.ErrClosed, brokers.Unreachable, ""},
		{io.ErrClosedPipe, brokers.Unreachable, ""},
	}
}

// classify makes err the error that leaves the driver.
func classify(op string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*brokers.Error](err); ok {
		return e
	}
	for _, k := range kinds() {
		if errors.Is(err, k.err) {
			return &brokers.Error{Class: k.class, Op: op, Err: err, Remedy: k.remedy}
		}
	}
	if badCertificate(err) {
		return &brokers.Error{Class: brokers.Refused, Op: op, Err: err, Remedy: "check kafka.tls and the broker's certificate"}
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return &brokers.Error{Class: brokers.Unreachable, Op: op, Err: err, Remedy: "is a broker listening there?"}
	}
	return &brokers.Error{Class: brokers.Transient, Op: op, Err: err}
}

func badCertificate(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.AlertError](err); ok {
		return true
	}
	_, ok := errors.AsType[x509.UnknownAuthorityError](err)
	return ok
}

// within tells an answer that came too late from a caller that gave up.
func within(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return silence(ctx)
	}
	return err
}

// silence is why a context ended before the broker answered.
func silence(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, errSilent) {
		return fmt.Errorf("%w: %w", errSilent, cause)
	}
	return errSilent
}

func fenced(op string, err error) error {
	return &brokers.Error{Class: brokers.Fenced, Op: op, Err: err}
}
