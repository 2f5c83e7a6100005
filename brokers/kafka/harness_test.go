package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/brokertest"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

const (
	appUser      = "app"
	canary       = "canary-5d1c"
	rootUser     = "root"
	rootPassword = "root-secret"
)

// harness lends one cluster to the suite, and to the driver's own tests.
type harness struct {
	gate     *gate
	admin    []kgo.Opt // of an administrator's client, past the gate
	brokers  []string
	user     string
	password string
	change   func(*supervisorv1.KafkaSource)
	features brokertest.Features
	sources  atomic.Int32

	fake *kfake.Cluster
	real process

	mu      sync.Mutex
	unblock chan struct{}
}

// process is what a real Kafka can do beyond the protocol.
type process interface {
	Kill()
	Restart(ctx context.Context) error
	Freeze()
	Thaw()
	Forbid(ctx context.Context, topic string) error
	Permit(ctx context.Context, topic string) error
}

func faultsOf(more ...brokertest.Fault) []brokertest.Fault {
	return append([]brokertest.Fault{
		brokertest.Cut, brokertest.Freeze, brokertest.Thaw, brokertest.Kill, brokertest.Restart, brokertest.Delete,
		brokertest.Recreate, brokertest.Forbid, brokertest.Permit, brokertest.Redeliver,
	}, more...)
}

// newFake starts kfake on a network of its own.
func newFake(change func(*supervisorv1.KafkaSource), more ...kfake.Opt) *harness {
	network := &kfake.VirtualNetwork{}
	allow := func(r kmsg.ACLResourceType) kfake.ACL {
		return kfake.ACL{Resource: r, Name: "*", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationAll, Allow: true}
	}
	c := kfake.MustCluster(append([]kfake.Opt{
		kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(network.Listen), kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.GroupMinSessionTimeout(time.Second),
		kfake.Superuser("SCRAM-SHA-512", rootUser, rootPassword),
		kfake.User("PLAIN", appUser, canary, allow(kmsg.ACLResourceTypeTopic), allow(kmsg.ACLResourceTypeGroup), allow(kmsg.ACLResourceTypeCluster)),
	}, more...)...)
	h := &harness{
		gate: newGate(network.DialContext), brokers: c.ListenAddrs(), user: appUser, password: canary, change: change, fake: c,
		admin: []kgo.Opt{
			kgo.SeedBrokers(c.ListenAddrs()...), kgo.Dialer(network.DialContext),
			kgo.SASL(scram.Auth{User: rootUser, Pass: rootPassword}.AsSha512Mechanism()),
		},
	}
	h.features = features(change, faultsOf(brokertest.Block, brokertest.Unblock))
	refuseInWords(c)
	return h
}

// refuseInWords has kfake refuse a wrong password as a broker does, which it
// answers by hanging up.
func refuseInWords(c *kfake.Cluster) {
	c.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		r, ok := req.(*kmsg.SASLAuthenticateRequest)
		if !ok || !bytes.HasPrefix(r.SASLAuthBytes, []byte("\x00"+appUser+"\x00")) || bytes.HasSuffix(r.SASLAuthBytes, []byte("\x00"+canary)) {
			return nil, nil, false
		}
		resp := kmsg.NewPtrSASLAuthenticateResponse()
		resp.Version, resp.ErrorCode = r.Version, kerr.SaslAuthenticationFailed.Code
		resp.ErrorMessage = new("Authentication failed: Invalid username or password")
		return resp, nil, true
	})
}

func features(change func(*supervisorv1.KafkaSource), faults []brokertest.Fault) brokertest.Features {
	f := brokertest.Features{
		Faults: faults, Survives: true, Revokes: true, Seek: true, Credentials: true, Create: true, Members: true, Order: true, Keys: true, Headers: true,
		Partitions: true, Patience: 30 * time.Second, Prompt: 2 * time.Second, Quiet: 600 * time.Millisecond,
	}
	k := &supervisorv1.KafkaSource{}
	if change != nil {
		change(k)
	}
	if k.GetProtocol() == supervisorv1.KafkaProtocol_KAFKA_PROTOCOL_CONSUMER {
		f.Patience = defaultSession + 30*time.Second // the broker's session timeout holds
	}
	return f
}

// Close ends the cluster, and what stands before it.
func (h *harness) Close() {
	h.gate.kill()
	if h.fake != nil {
		h.fake.Close()
	} else {
		h.real.Kill()
	}
	h.gate.work.Wait()
}

func (h *harness) Driver() brokers.Driver        { return Driver{dial: h.gate.connect, probe: time.Second} }
func (h *harness) Features() brokertest.Features { return h.features }
func (h *harness) Secrets() map[string]string {
	return map[string]string{"env:PASSWORD": h.password, "env:WRONG": "wrong-7e2b"}
}

func (h *harness) Connection(valid bool) *supervisorv1.Connection {
	ref := "env:PASSWORD"
	if !valid {
		ref = "env:WRONG"
	}
	return &supervisorv1.Connection{Name: "main", Broker: &supervisorv1.Connection_Kafka{Kafka: &supervisorv1.KafkaConnection{
		Brokers: h.brokers, Auth: &supervisorv1.KafkaAuth{User: h.user, Password: ref, Mechanism: supervisorv1.KafkaMechanism_KAFKA_MECHANISM_PLAIN},
	}}}
}

// with lends an administrator's client.
func (h *harness) with(use func(*kgo.Client, *kadm.Client) error, more ...kgo.Opt) error {
	c, err := kgo.NewClient(append(append([]kgo.Opt{kgo.DisableClientMetrics(), kgo.MetadataMinAge(50 * time.Millisecond)}, h.admin...), more...)...)
	if err != nil {
		return err
	}
	defer c.Close()
	return use(c, kadm.NewClient(c))
}

// spec is a consumer of topic with timeouts for tests.
func (h *harness) spec(topic string, missing supervisorv1.Missing) *supervisorv1.ConsumerSpec {
	k := &supervisorv1.KafkaSource{
		Topics: []string{topic}, Group: topic + "-group", Missing: missing,
		SessionTimeout: durationpb.New(3 * time.Second), HeartbeatInterval: durationpb.New(200 * time.Millisecond),
		RebalanceTimeout: durationpb.New(5 * time.Second), CommitInterval: durationpb.New(50 * time.Millisecond),
		FetchMaxWait: durationpb.New(200 * time.Millisecond), Reset_: supervisorv1.KafkaReset_KAFKA_RESET_EARLIEST,
	}
	if h.change != nil {
		h.change(k)
	}
	return &supervisorv1.ConsumerSpec{
		Namespace: "default", Name: topic,
		Source:     &supervisorv1.Source{Connection: "main", Broker: &supervisorv1.Source_Kafka{Kafka: k}},
		DeadLetter: &supervisorv1.DeadLetter{Target: &supervisorv1.DeadLetter_Topic{Topic: topic + ".dead"}},
	}
}

func (h *harness) Source(ctx context.Context, o brokertest.SourceOptions) (*supervisorv1.ConsumerSpec, error) {
	name := fmt.Sprintf("t%d", h.sources.Add(1))
	s := h.spec(name, o.Missing)
	if o.Absent {
		return s, nil
	}
	if err := h.create(ctx, name, int32(max(1, o.Partitions))); err != nil || o.NoTarget {
		return s, err
	}
	return s, h.create(ctx, name+".dead", 1)
}

// create returns when every broker knows the topic.
func (h *harness) create(ctx context.Context, name string, partitions int32) error {
	return h.with(func(_ *kgo.Client, a *kadm.Client) error {
		for {
			_, err := a.CreateTopic(ctx, partitions, 1, nil, name)
			switch {
			case errors.Is(err, kerr.TopicAlreadyExists): // a deletion is under way
			case err != nil:
				return err
			default:
				return h.visible(ctx, a, name, true)
			}
			if err := pause(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
	})
}

func (h *harness) visible(ctx context.Context, a *kadm.Client, name string, want bool) error {
	for {
		m, err := a.Metadata(kadm.WithAuthorizedOps(ctx), name)
		if err != nil {
			return err
		}
		d := m.Topics[name]
		led := d.Err == nil && len(d.Partitions) > 0
		for _, p := range d.Partitions {
			led = led && p.Err == nil && p.Leader >= 0
		}
		if led == want {
			return nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

func topicOf(s *supervisorv1.ConsumerSpec) string { return s.GetSource().GetKafka().GetTopics()[0] }
func groupOf(s *supervisorv1.ConsumerSpec) string { return s.GetSource().GetKafka().GetGroup() }

func (h *harness) Publish(ctx context.Context, s *supervisorv1.ConsumerSpec, ms []brokertest.Message) error {
	return h.publish(ctx, topicOf(s), ms)
}

func (h *harness) publish(ctx context.Context, topic string, ms []brokertest.Message) error {
	records := make([]*kgo.Record, len(ms))
	for i, m := range ms {
		records[i] = &kgo.Record{Topic: topic, Key: m.Key, Value: m.Body}
		for _, hd := range m.Headers {
			records[i].Headers = append(records[i].Headers, kgo.RecordHeader{Key: hd.Name, Value: []byte(hd.Value)})
		}
	}
	return h.with(func(c *kgo.Client, _ *kadm.Client) error { return c.ProduceSync(ctx, records...).FirstErr() })
}

func (h *harness) Count(ctx context.Context, s *supervisorv1.ConsumerSpec) (brokertest.Count, error) {
	var out brokertest.Count
	err := h.with(func(_ *kgo.Client, a *kadm.Client) error {
		members, err := h.members(ctx, a, groupOf(s))
		if err != nil {
			return err
		}
		out.Members = members
		ends, err := a.ListEndOffsets(ctx, topicOf(s))
		if err != nil {
			return err
		}
		starts, err := a.ListStartOffsets(ctx, topicOf(s))
		if err != nil {
			return err
		}
		committed, err := a.FetchOffsets(ctx, groupOf(s))
		if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			return err
		}
		err = nil
		ends.Each(func(e kadm.ListedOffset) {
			at := int64(0)
			if st, ok := starts.Lookup(e.Topic, e.Partition); ok {
				at = st.Offset
			}
			if c, ok := committed.Lookup(e.Topic, e.Partition); ok && c.At >= 0 {
				at = c.At
			}
			out.Remaining += e.Offset - at
			err = errors.Join(err, e.Err)
		})
		return err
	})
	return out, err
}

func (h *harness) members(ctx context.Context, a *kadm.Client, group string) (int, error) {
	all, err := a.DescribeGroups(ctx, group)
	if err != nil {
		return 0, err
	}
	if g := all[group]; g.Err == nil && g.ProtocolType != "" && len(g.Members) > 0 {
		return len(g.Members), nil
	}
	consumers, err := a.DescribeConsumerGroups(ctx, group)
	if err != nil {
		return 0, nil //nolint:nilerr // no group of that protocol
	}
	return len(consumers[group].Members), nil
}

func (h *harness) DeadLetters(ctx context.Context, s *supervisorv1.ConsumerSpec) ([]brokertest.Message, error) {
	return h.read(ctx, topicOf(s)+".dead")
}

// read returns all that a topic holds.
func (h *harness) read(ctx context.Context, topic string) ([]brokertest.Message, error) {
	var out []brokertest.Message
	err := h.with(func(c *kgo.Client, a *kadm.Client) error {
		ends, err := a.ListEndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		want := int64(0)
		ends.Each(func(o kadm.ListedOffset) { want += o.Offset })
		for int64(len(out)) < want {
			fs := c.PollFetches(ctx)
			if err := fs.Err0(); err != nil {
				return err
			}
			for _, r := range fs.Records() {
				m := brokertest.Message{Key: r.Key, Body: r.Value}
				for _, hd := range r.Headers {
					m.Headers = append(m.Headers, brokers.Header{Name: hd.Key, Value: string(hd.Value)})
				}
				out = append(out, m)
			}
		}
		return nil
	}, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	return out, err
}
