package kafka

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

const (
	defaultSession        = 45 * time.Second
	defaultHeartbeat      = 3 * time.Second
	defaultRebalance      = 60 * time.Second
	defaultMaxGap         = 10_000
	defaultCommitInterval = time.Second
	defaultCommitEvery    = 5_000
	defaultFetchWait      = 500 * time.Millisecond
	defaultFetchBytes     = 16 << 20
	defaultPartitionBytes = 1 << 20
	defaultInFlightBytes  = 64 << 20
	// longestName is Kafka's limit of a topic's name.
	longestName = 249
)

// source is what Parse read.
type source struct {
	topics  []string
	pattern *regexp.Regexp // nil with topics
	// wanted is the pattern as the user wrote it.
	wanted string
	group  string
	// instance is "" for a dynamic member.
	instance string
	consumer bool // KIP-848
	balancer supervisorv1.KafkaBalancer

	session, heartbeat, rebalance time.Duration

	start       supervisorv1.KafkaPosition
	reset       supervisorv1.KafkaReset
	missing     supervisorv1.Missing
	partitions  int32 // -1: the broker's own
	replication int16 // -1: the broker's own

	maxGap         int
	commitInterval time.Duration
	commitEvery    int
	fetchWait      time.Duration
	fetchBytes     int32
	partitionBytes int32
	committedOnly  bool
	rack           string
}

// String names it for people.
func (s *source) String() string {
	if s.pattern != nil {
		return "topics that match " + s.wanted
	}
	if len(s.topics) == 1 {
		return "topic " + s.topics[0]
	}
	return "topics " + strings.Join(s.topics, ", ")
}

// fails: a loss ends in FAILED, until an operator seeks.
func (s *source) fails() bool { return s.reset <= supervisorv1.KafkaReset_KAFKA_RESET_FAIL }

// eager: all partitions are given up at each rebalance.
func (s *source) eager() bool {
	return !s.consumer && s.balancer > supervisorv1.KafkaBalancer_KAFKA_BALANCER_COOPERATIVE_STICKY
}

// revokeTimeout is how long giving partitions up may take, so that the group
// waits for it.
func (s *source) revokeTimeout() time.Duration {
	if s.eager() {
		return s.rebalance * 6 / 10
	}
	return min(s.session/2, s.rebalance*6/10)
}

// topic is the target of dead letters.
type topic string

func (t topic) String() string { return "topic " + string(t) }

// Parse reads source.kafka and what else of a spec concerns Kafka.
func (Driver) Parse(spec *supervisorv1.ConsumerSpec) (brokers.Plan, []brokers.Fault) {
	in := spec.GetSource().GetKafka()
	if in == nil {
		return brokers.Plan{}, []brokers.Fault{brokers.Faultf("source.kafka", "is missing; name at least a topic and a group")}
	}
	inFlight := orDefault(spec.GetMaxInFlight().GetBytes(), spec.GetMaxInFlight().GetBytes() != 0, defaultInFlightBytes)
	fetch := orDefault(in.GetFetchMaxBytes(), in.FetchMaxBytes != nil, min(defaultFetchBytes, inFlight))
	src := &source{
		topics: in.GetTopics(), group: in.GetGroup(), instance: in.GetInstanceId(),
		consumer:  in.GetProtocol() == supervisorv1.KafkaProtocol_KAFKA_PROTOCOL_CONSUMER,
		balancer:  in.GetBalancer(),
		session:   durationOr(in.GetSessionTimeout(), defaultSession),
		rebalance: durationOr(in.GetRebalanceTimeout(), defaultRebalance),
		start:     in.GetStart(), reset: in.GetReset_(), missing: in.GetMissing(),
		partitions:     orDefault(in.GetPartitions(), in.Partitions != nil, -1),
		replication:    int16(orDefault(in.GetReplicationFactor(), in.ReplicationFactor != nil, -1)),
		maxGap:         int(orDefault(in.GetMaxGapPerPartition(), in.MaxGapPerPartition != nil, defaultMaxGap)),
		commitInterval: durationOr(in.GetCommitInterval(), defaultCommitInterval),
		commitEvery:    int(orDefault(in.GetCommitEvery(), in.CommitEvery != nil, defaultCommitEvery)),
		fetchWait:      durationOr(in.GetFetchMaxWait(), defaultFetchWait),
		committedOnly:  in.GetIsolation() == supervisorv1.KafkaIsolation_KAFKA_ISOLATION_READ_COMMITTED,
		rack:           in.GetRack(),
	}
	src.heartbeat = durationOr(in.GetHeartbeatInterval(), min(defaultHeartbeat, src.session/3))
	partition := orDefault(in.GetPartitionMaxBytes(), in.PartitionMaxBytes != nil, min(defaultPartitionBytes, fetch))
	src.fetchBytes, src.partitionBytes = int32(min(fetch, 1<<30)), int32(min(partition, 1<<30))

	var f faults
	f.checkTopics(in, src)
	f.checkGroup(in, src)
	f.checkTimes(src)
	f.checkBounds(in, src)
	f.checkBytes(fetch, partition, inFlight)
	target := f.checkDeadLetter(spec.GetDeadLetter(), src)
	if len(f) > 0 {
		return brokers.Plan{}, f
	}
	return brokers.Plan{Source: src, Origin: src.String(), DeadLetter: target}, nil
}

func orDefault[T any](v T, set bool, def T) T {
	if set {
		return v
	}
	return def
}

func durationOr(d *durationpb.Duration, def time.Duration) time.Duration {
	if d == nil {
		return def
	}
	return d.AsDuration()
}

// badTopic says what a broker would not take in a topic's name.
func badTopic(name string) string {
	switch {
	case name == "":
		return "is empty; name a topic"
	case len(name) > longestName:
		return fmt.Sprintf("is longer than %d bytes; shorten it", longestName)
	case name == "." || name == "..":
		return "is no name for a topic"
	}
	if i := strings.IndexFunc(name, func(r rune) bool {
		return r >= 0x80 || !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r))
	}); i >= 0 {
		return fmt.Sprintf("has %q in it; a topic's name has letters, digits, dot, _ and - only", []rune(name[i:])[0])
	}
	return ""
}

func (f *faults) checkTopics(in *supervisorv1.KafkaSource, s *source) {
	p := in.GetTopicPattern()
	switch {
	case len(s.topics) == 0 && p == "":
		f.addf("source.kafka.topics", "is empty; name the topics, or give a topic_pattern")
	case len(s.topics) > 0 && p != "":
		f.addf("source.kafka.topic_pattern", "stands beside topics; remove one of the two")
	case p != "":
		// The whole name must match, as users of Kafka's own tools expect.
		re, err := regexp.Compile("^(?:" + p + ")$")
		if err != nil {
			f.addf("source.kafka.topic_pattern", "is no regular expression: %v", err)
		}
		s.pattern, s.wanted = re, p
		if s.missing == supervisorv1.Missing_MISSING_CREATE {
			f.addf("source.kafka.missing", "is CREATE, but a topic_pattern names no topic to create; list topics, or use WAIT")
		}
	}
	for i, t := range s.topics {
		path := "source.kafka.topics[" + strconv.Itoa(i) + "]"
		if bad := badTopic(t); bad != "" {
			f.addf(path, "%q %s", t, bad)
		} else if slices.Contains(s.topics[:i], t) {
			f.addf(path, "%q stands there twice; remove one", t)
		}
	}
}

func (f *faults) checkGroup(in *supervisorv1.KafkaSource, s *source) {
	if s.group == "" {
		f.addf("source.kafka.group", "is empty; name the consumer group that keeps the positions")
	}
	if !s.consumer {
		return
	}
	if s.balancer != supervisorv1.KafkaBalancer_KAFKA_BALANCER_UNSPECIFIED {
		f.addf("source.kafka.balancer", "has no use with protocol CONSUMER, where the broker assigns; remove it")
	}
	if in.GetSessionTimeout() != nil {
		f.addf("source.kafka.session_timeout", "has no use with protocol CONSUMER, where the broker's group.consumer.session.timeout.ms holds; remove it")
	}
	if in.GetHeartbeatInterval() != nil {
		f.addf("source.kafka.heartbeat_interval", "has no use with protocol CONSUMER, where the broker's group.consumer.heartbeat.interval.ms holds; remove it")
	}
}

func (f *faults) checkTimes(s *source) {
	if s.session < time.Second || s.session > time.Hour {
		f.addf("source.kafka.session_timeout", "is %s; use 1s to 1h, as the broker allows", s.session)
	}
	if s.heartbeat < 10*time.Millisecond || s.heartbeat > s.session/3 {
		f.addf("source.kafka.heartbeat_interval", "is %s; use 10ms to a third of session_timeout (%s)", s.heartbeat, s.session/3)
	}
	if s.rebalance < time.Second || s.rebalance > 24*time.Hour {
		f.addf("source.kafka.rebalance_timeout", "is %s; use 1s to 24h", s.rebalance)
	}
	if s.commitInterval < 10*time.Millisecond || s.commitInterval > time.Hour {
		f.addf("source.kafka.commit_interval", "is %s; use 10ms to 1h", s.commitInterval)
	}
	if s.fetchWait < 10*time.Millisecond || s.fetchWait > 10*time.Second {
		f.addf("source.kafka.fetch_max_wait", "is %s; use 10ms to 10s: a resume may wait that long", s.fetchWait)
	}
}

func (f *faults) checkBounds(in *supervisorv1.KafkaSource, s *source) {
	if s.maxGap < 1 {
		f.addf("source.kafka.max_gap_per_partition", "is %d; use at least 1", s.maxGap)
	}
	if s.commitEvery < 1 {
		f.addf("source.kafka.commit_every", "is %d; use at least 1", s.commitEvery)
	}
	create := s.missing == supervisorv1.Missing_MISSING_CREATE
	if in.Partitions != nil && (s.partitions < 1 || !create) {
		f.addf("source.kafka.partitions", "is %d; use at least 1, and with missing: CREATE only", s.partitions)
	}
	if r := in.GetReplicationFactor(); in.ReplicationFactor != nil && (r < 1 || r > 1000 || !create) {
		f.addf("source.kafka.replication_factor", "is %d; use at least 1, and with missing: CREATE only", r)
	}
}

func (f *faults) checkBytes(fetch, partition, inFlight int64) {
	if fetch < 1 || fetch > inFlight || fetch > 1<<30 {
		f.addf("source.kafka.fetch_max_bytes", "is %d; use 1 to max_in_flight.bytes (%d), at most 1GiB", fetch, inFlight)
	}
	if partition < 1 || partition > fetch {
		f.addf("source.kafka.partition_max_bytes", "is %d; use 1 to fetch_max_bytes (%d)", partition, fetch)
	}
}

func (f *faults) checkDeadLetter(d *supervisorv1.DeadLetter, s *source) brokers.Target {
	if d == nil {
		return nil
	}
	t, ok := d.GetTarget().(*supervisorv1.DeadLetter_Topic)
	if !ok {
		f.addf("dead_letter", "has no topic; on Kafka name one (dead_letter.topic)")
		return nil
	}
	if bad := badTopic(t.Topic); bad != "" {
		f.addf("dead_letter.topic", "%q %s", t.Topic, bad)
		return nil
	}
	if slices.Contains(s.topics, t.Topic) || s.pattern != nil && s.pattern.MatchString(t.Topic) {
		f.addf("dead_letter.topic", "%q is consumed by this consumer, so a dead letter would come round for ever; use another topic", t.Topic)
		return nil
	}
	return topic(t.Topic)
}
