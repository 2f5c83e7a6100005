package nats

import (
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// Defaults of a NatsSource; the schema's comments promise them.
const (
	defaultAckWait       = 30 * time.Second
	defaultMaxAckPending = 1000
	defaultPullMessages  = 500
	defaultPullBytes     = 16 << 20
	defaultPullExpiry    = 30 * time.Second
	defaultInFlight      = 100
	defaultInFlightBytes = 64 << 20
	longestHeartbeat     = 15 * time.Second
)

// source is a checked NatsSource with its defaults.
type source struct {
	stream, durable string
	filters         []string
	missing         supervisorv1.Missing
	manage          supervisorv1.NatsManage
	policy          jetstream.DeliverPolicy
	ackWait         time.Duration
	maxAckPending   int
	// One pull's bounds, and how long the server keeps it.
	pullMessages int
	pullBytes    int64
	pullExpiry   time.Duration
	// The consumer's max_in_flight.
	messages int
	bytes    int64
	// deadLetter is the subject dead letters go to; "" without.
	deadLetter string
	// subjectKey: the lane key is the subject, so deliveries carry it.
	subjectKey bool
}

func (s *source) String() string { return "stream " + s.stream }

// ackSubjects begins what deliveries are acknowledged on.
func (s *source) ackSubjects() string { return "$JS.ACK." + s.stream + "." + s.durable + "." }

// heartbeat is how often the server speaks on a pull that has nothing to give:
// its protocol wants at most half of the expiry.
func (s *source) heartbeat() time.Duration { return min(longestHeartbeat, s.pullExpiry/2) }

// subject is the target of dead letters.
type subject string

func (s subject) String() string { return "subject " + string(s) }

// Parse reads source.nats and what else of a spec concerns JetStream.
func (Driver) Parse(spec *supervisorv1.ConsumerSpec) (brokers.Plan, []brokers.Fault) {
	in := spec.GetSource().GetNats()
	if in == nil {
		return brokers.Plan{}, []brokers.Fault{brokers.Faultf("source.nats", "is missing; name at least a stream")}
	}
	src := &source{
		stream:        in.GetStream(),
		durable:       in.GetDurable(),
		filters:       in.GetFilterSubjects(),
		missing:       in.GetMissing(),
		manage:        in.GetManage(),
		policy:        deliverPolicy(in.GetDeliverPolicy()),
		ackWait:       defaultAckWait,
		maxAckPending: orDefault(int(in.GetMaxAckPending()), in.MaxAckPending != nil, defaultMaxAckPending),
		pullBytes:     orDefault(in.GetPullMaxBytes(), in.PullMaxBytes != nil, defaultPullBytes),
		pullExpiry:    defaultPullExpiry,
		messages:      orDefault(int(spec.GetMaxInFlight().GetMessages()), spec.GetMaxInFlight().GetMessages() != 0, defaultInFlight),
		bytes:         orDefault(spec.GetMaxInFlight().GetBytes(), spec.GetMaxInFlight().GetBytes() != 0, defaultInFlightBytes),
	}
	if src.durable == "" {
		src.durable = spec.GetNamespace() + "_" + spec.GetName()
	}
	if d := in.GetAckWait(); d != nil {
		src.ackWait = d.AsDuration()
	}
	if d := in.GetPullExpiry(); d != nil {
		src.pullExpiry = d.AsDuration()
	}
	if in.PullMaxBytes == nil {
		src.pullBytes = min(src.pullBytes, src.bytes)
	}
	src.pullMessages = orDefault(int(in.GetPullMaxMessages()), in.PullMaxMessages != nil, min(src.messages, defaultPullMessages))

	var f faults
	f.checkNames(src)
	f.checkLimits(src)
	f.checkFilters(src)
	f.checkOrdering(spec, src)
	target := f.checkDeadLetter(spec.GetDeadLetter(), src)
	if len(f) > 0 {
		return brokers.Plan{}, f
	}
	return brokers.Plan{Source: src, Origin: src.String(), DeadLetter: target}, nil
}

func deliverPolicy(p supervisorv1.NatsDeliverPolicy) jetstream.DeliverPolicy {
	switch p {
	case supervisorv1.NatsDeliverPolicy_NATS_DELIVER_POLICY_NEW:
		return jetstream.DeliverNewPolicy
	case supervisorv1.NatsDeliverPolicy_NATS_DELIVER_POLICY_LAST:
		return jetstream.DeliverLastPolicy
	default:
		return jetstream.DeliverAllPolicy
	}
}

func orDefault[T any](v T, set bool, def T) T {
	if set {
		return v
	}
	return def
}

func (f *faults) checkNames(s *source) {
	if s.stream == "" {
		f.addf("source.nats.stream", "is empty; name the stream to consume from")
	} else if bad := badName(s.stream); bad != "" {
		f.addf("source.nats.stream", "%q %s", s.stream, bad)
	}
	if bad := badName(s.durable); bad != "" {
		f.addf("source.nats.durable", "%q %s", s.durable, bad)
	}
}

// badName says what the server would not take in a stream's or durable's name.
func badName(name string) string {
	const limit = 255 // JSMaxNameLen of the server
	if len(name) > limit {
		return fmt.Sprintf("is longer than %d bytes; shorten it", limit)
	}
	if i := strings.IndexFunc(name, func(r rune) bool {
		return r <= ' ' || r == 0x7f || strings.ContainsRune(`.*>/\`, r)
	}); i >= 0 {
		return fmt.Sprintf("has %q in it; a name has no space, dot, slash, * or >", name[i])
	}
	return ""
}

func (f *faults) checkLimits(s *source) {
	if s.ackWait < time.Second {
		f.addf("source.nats.ack_wait", "is %s; use at least 1s, what is held is kept alive within it", s.ackWait)
	}
	if s.maxAckPending < s.messages {
		f.addf("source.nats.max_ack_pending", "is %d, below max_in_flight.messages (%d), so the server would stall the consumer; raise it or lower the other",
			s.maxAckPending, s.messages)
	}
	if s.pullMessages < 1 {
		f.addf("source.nats.pull_max_messages", "is %d; use at least 1", s.pullMessages)
	}
	if s.pullBytes < 1 {
		f.addf("source.nats.pull_max_bytes", "is %d; use at least 1, better some MiB", s.pullBytes)
	}
	if s.pullBytes > s.bytes {
		f.addf("source.nats.pull_max_bytes", "is %d, above max_in_flight.bytes (%d); lower it", s.pullBytes, s.bytes)
	}
	if s.pullExpiry < time.Second || s.pullExpiry > time.Hour {
		f.addf("source.nats.pull_expiry", "is %s; use 1s to 1h", s.pullExpiry)
	}
}

func (f *faults) checkFilters(s *source) {
	for i, a := range s.filters {
		path := fmt.Sprintf("source.nats.filter_subjects[%d]", i)
		if bad := badSubject(a, true); bad != "" {
			f.addf(path, "%q %s", a, bad)
			continue
		}
		for _, b := range s.filters[:i] {
			if badSubject(b, true) == "" && overlap(a, b) {
				f.addf(path, "%q overlaps with %q, which the server refuses; keep the wider one", a, b)
			}
		}
	}
	if s.missing == supervisorv1.Missing_MISSING_CREATE && len(s.filters) == 0 {
		f.addf("source.nats.missing", "is CREATE, but there are no filter_subjects to make the stream's subjects of; list them or use WAIT")
	}
}

func (f *faults) checkOrdering(spec *supervisorv1.ConsumerSpec, s *source) {
	switch spec.GetOrdering() {
	case supervisorv1.Ordering_ORDERING_PARTITION:
		f.addf("ordering", "PARTITION needs partitions, and JetStream has none; use KEY, whose key is the subject or a header")
	case supervisorv1.Ordering_ORDERING_KEY:
		_, fromHeader := spec.GetKey().GetFrom().(*supervisorv1.LaneKey_Header)
		s.subjectKey = !fromHeader
	}
}

func (f *faults) checkDeadLetter(d *supervisorv1.DeadLetter, s *source) brokers.Target {
	if d == nil {
		return nil
	}
	t, ok := d.GetTarget().(*supervisorv1.DeadLetter_Subject)
	if !ok {
		f.addf("dead_letter", "has no subject; on NATS name one that a stream listens on (dead_letter.subject)")
		return nil
	}
	if bad := badSubject(t.Subject, false); bad != "" {
		f.addf("dead_letter.subject", "%q %s", t.Subject, bad)
		return nil
	}
	if w := loops(t.Subject, s.filters); w != "" {
		f.addf("dead_letter.subject", "%q is consumed again by %q of filter_subjects, so a dead letter would come round for ever; use another subject", t.Subject, w)
		return nil
	}
	s.deadLetter = t.Subject
	return subject(t.Subject)
}
