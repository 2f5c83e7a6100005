package kafka_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-111f5b8e/supervisord/test/node/kafka"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	"go.uber.org/goleak"
)

func start(t *testing.T, o kafka.Options) *kafka.Node {
	t.Helper()
	o.Dir = t.TempDir()
	n, err := kafka.Start(limit(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Kill)
	return n
}

func limit(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func open(t *testing.T, o ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestNode(t *testing.T) {
	n := start(t, kafka.Options{})
	t.Logf("Kafka %s", n.Version())
	if !strings.HasPrefix(n.Version(), "4.") {
		t.Errorf("version %q", n.Version())
	}
	if err := n.Restart(limit(t)); err == nil {
		t.Error("a node that runs was started again")
	}
	t.Run("keeps its data over a kill", func(t *testing.T) { keepsData(t, n) })
	t.Run("is frozen and thawed", func(t *testing.T) { freezes(t, n) })
	t.Run("forbids topics", func(t *testing.T) { forbids(t, n) })
	t.Run("refuses wrong passwords", func(t *testing.T) { refuses(t, n) })
}

// produce returns when the record is on the broker, and its offset.
func produce(t *testing.T, c *kgo.Client, topic, value string) int64 {
	t.Helper()
	r, err := c.ProduceSync(limit(t), &kgo.Record{Topic: topic, Value: []byte(value)}).First()
	if err != nil {
		t.Fatal(err)
	}
	return r.Offset
}

func keepsData(t *testing.T, n *kafka.Node) {
	if err := n.CreateTopic(limit(t), "kept", 1); err != nil {
		t.Fatal(err)
	}
	c := open(t, kgo.SeedBrokers(n.Broker()), kgo.ConsumeTopics("kept"), kgo.ConsumerGroup("g"), kgo.DisableAutoCommit())
	for i := range 3 {
		produce(t, c, "kept", strconv.Itoa(i))
	}
	f := c.PollRecords(limit(t), 2)
	if err := f.Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.CommitRecords(limit(t), f.Records()...); err != nil {
		t.Fatal(err)
	}
	n.Kill()
	if err := n.Restart(limit(t)); err != nil {
		t.Fatal(err)
	}
	ends, err := n.Ends(limit(t), "kept")
	if err != nil || ends[0] != 3 {
		t.Errorf("ends %v, %v; want 3", ends, err)
	}
	at, err := n.Committed(limit(t), "g", "kept")
	if err != nil || at[0] != int64(len(f.Records())) {
		t.Errorf("committed %v, %v; want %d", at, err, len(f.Records()))
	}
	if err := n.DeleteRecords(limit(t), "kept", 0, 2); err != nil {
		t.Error(err)
	}
	if err := n.DeleteTopic(limit(t), "kept"); err != nil {
		t.Error(err)
	}
}

func freezes(t *testing.T, n *kafka.Node) {
	c := open(t, kgo.SeedBrokers(n.Broker()))
	if err := c.Ping(limit(t)); err != nil {
		t.Fatal(err)
	}
	n.Freeze()
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := c.Ping(short); err == nil {
		t.Error("a frozen broker answered")
	}
	n.Thaw()
	if err := c.Ping(limit(t)); err != nil {
		t.Error(err)
	}
}

func asUser(n *kafka.Node, m sasl.Mechanism) []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(n.SASLBroker()), kgo.SASL(m), kgo.RetryTimeout(5 * time.Second)}
}

func forbids(t *testing.T, n *kafka.Node) {
	if err := n.CreateTopic(limit(t), "secrets", 1); err != nil {
		t.Fatal(err)
	}
	c := open(t, asUser(n, plain.Auth{User: kafka.User, Pass: kafka.Password}.AsMechanism())...)
	produce(t, c, "secrets", "a")
	if err := n.Forbid(limit(t), "secrets"); err != nil {
		t.Fatal(err)
	}
	// A client asks about a topic once in a while; a new one has to.
	c = open(t, asUser(n, plain.Auth{User: kafka.User, Pass: kafka.Password}.AsMechanism())...)
	_, err := c.ProduceSync(limit(t), &kgo.Record{Topic: "secrets"}).First()
	if !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("forbidden, but %v", err)
	}
	if err := n.Permit(limit(t), "secrets"); err != nil {
		t.Fatal(err)
	}
	c = open(t, asUser(n, plain.Auth{User: kafka.User, Pass: kafka.Password}.AsMechanism())...)
	if at := produce(t, c, "secrets", "b"); at != 1 {
		t.Errorf("offset %d, want 1", at)
	}
}

func refuses(t *testing.T, n *kafka.Node) {
	mechanisms := map[string]func(password string) sasl.Mechanism{
		"PLAIN": func(p string) sasl.Mechanism { return plain.Auth{User: kafka.User, Pass: p}.AsMechanism() },
		"SCRAM-SHA-256": func(p string) sasl.Mechanism {
			return scram.Auth{User: kafka.User, Pass: p}.AsSha256Mechanism()
		},
		"SCRAM-SHA-512": func(p string) sasl.Mechanism {
			return scram.Auth{User: kafka.User, Pass: p}.AsSha512Mechanism()
		},
	}
	for name, mechanism := range mechanisms {
		if err := open(t, asUser(n, mechanism(kafka.Password))...).Ping(limit(t)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := open(t, asUser(n, mechanism("wrong"))...).Ping(limit(t)); !errors.Is(err, kerr.SaslAuthenticationFailed) {
			t.Errorf("%s with a wrong password: %v", name, err)
		}
	}
	if err := n.SetPassword(limit(t), "rotated"); err != nil {
		t.Fatal(err)
	}
	if err := open(t, asUser(n, mechanisms["SCRAM-SHA-512"]("rotated"))...).Ping(limit(t)); err != nil {
		t.Errorf("the new password: %v", err)
	}
}

func TestNothingIsLeftBehind(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	n, err := kafka.Start(limit(t), kafka.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	n.Kill()
}

func TestAWrongConfigurationIsSaid(t *testing.T) {
	_, err := kafka.Start(limit(t), kafka.Options{Dir: t.TempDir(), Config: []string{"num.network.threads=-7"}})
	if err == nil || !strings.Contains(err.Error(), "num.network.threads") {
		t.Errorf("a wrong configuration: %v", err)
	}
}
