package kafka

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

const (
	// dialTimeout bounds one attempt on one broker, TLS handshake included.
	dialTimeout = 5 * time.Second
	// requestOverhead is how long a broker may be silent beyond what a request
	// itself allows; then its connection is taken for dead.
	requestOverhead = 5 * time.Second
	// metadataAge is how long new partitions and topics may go unnoticed.
	metadataAge = time.Minute
	// metadataPause is the least time between two looks after an error.
	metadataPause = 500 * time.Millisecond
)

// dialer knows how to reach one connection's brokers.
type dialer struct {
	cfg  *supervisorv1.KafkaConnection
	env  brokers.Env
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// options are what every client of a connection has.
func (d *dialer) options(log *slog.Logger) []kgo.Opt {
	id := d.cfg.GetClientId()
	if id == "" {
		id = "supervisord"
	}
	opts := []kgo.Opt{
		kgo.SeedBrokers(d.cfg.GetBrokers()...),
		kgo.ClientID(id),
		kgo.Dialer(d.connect),
		kgo.RequestTimeoutOverhead(requestOverhead),
		kgo.MetadataMaxAge(metadataAge),
		kgo.MetadataMinAge(metadataPause),
		kgo.DisableClientMetrics(),
		kgo.WithLogger(logger{log}),
	}
	if m := d.mechanism(); m != nil {
		opts = append(opts, kgo.SASL(m))
	}
	return opts
}

// connect dials one broker. Certificates are read at each dial, so that rotated
// ones are taken up.
func (d *dialer) connect(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var cfg *tls.Config
	if d.cfg.GetTls() != nil {
		var err error
		if cfg, err = d.tls(address); err != nil {
			return nil, err
		}
	}
	conn, err := d.dial(ctx, network, address)
	if err != nil || cfg == nil {
		return conn, err
	}
	secure := tls.Client(conn, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // the handshake's error says more
		return nil, err
	}
	return secure, nil
}

func (d *dialer) tls(address string) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return brokers.TLSConfig("kafka", d.cfg.GetTls(), host)
}

// mechanism signs in; the secret is resolved each time.
func (d *dialer) mechanism() sasl.Mechanism {
	a := d.cfg.GetAuth()
	if a == nil {
		return nil
	}
	login := func(context.Context) (scram.Auth, error) {
		p, err := d.env.Secret(a.GetPassword())
		if err != nil {
			return scram.Auth{}, fmt.Errorf("kafka.auth.password: %w: %w", errSecret, err)
		}
		return scram.Auth{User: a.GetUser(), Pass: p}, nil
	}
	switch a.GetMechanism() {
	case supervisorv1.KafkaMechanism_KAFKA_MECHANISM_PLAIN:
		return plain.Plain(func(ctx context.Context) (plain.Auth, error) {
			s, err := login(ctx)
			return plain.Auth{User: s.User, Pass: s.Pass}, err
		})
	case supervisorv1.KafkaMechanism_KAFKA_MECHANISM_SCRAM_SHA_256:
		return scram.Sha256(login)
	default:
		return scram.Sha512(login)
	}
}

// logger shows what the client library says, to whoever debugs: what matters
// the driver says itself.
type logger struct{ log *slog.Logger }

// Level is called often.
func (l logger) Level() kgo.LogLevel {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelNone
}

// Log writes one line.
func (l logger) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	l.log.Debug("client", slog.String("level", level.String()), slog.String("says", msg), slog.Group("with", keyvals...))
}
