package rabbitmq

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// Defaults and bounds of a RabbitmqSource; the schema's comments promise them.
const (
	leastPrefetch   = 20
	mostPrefetch    = 65535
	defaultInFlight = 100
	mostAckBatch    = 50
	defaultLinger   = 5 * time.Millisecond
	mostLinger      = time.Second
	mostName        = 255 // bytes of a short string
)

// source is a checked RabbitmqSource with its defaults.
type source struct {
	queue string
	// consumer begins the consumer tag, which people meet in the broker's lists.
	consumer string
	missing  supervisorv1.Missing
	quorum   bool
	// declare are the arguments of a queue to be created, bindings what it is
	// bound to then.
	declare  amqp.Table
	bindings []binding
	// strict: handing over must keep the order of the queue.
	strict    bool
	prefetch  int
	priority  *int32
	exclusive bool
	// Acks wait for so many, or so long.
	ackMax int
	linger time.Duration
	// withKey: deliveries carry their routing key as Key.
	withKey bool
	// expires: the queue deletes itself when it has no consumer for a while.
	expires bool

	// facts are what the queue was found to be; nil before.
	facts atomic.Pointer[facts]
}

type binding struct {
	exchange, key string
	arguments     amqp.Table
}

func (s *source) String() string { return "queue " + s.queue }

// target is where dead letters go.
type target struct{ exchange, queue string }

func (t target) String() string {
	if t.exchange != "" {
		return "exchange " + t.exchange
	}
	return "queue " + t.queue
}

// Parse reads source.rabbitmq and what else of a spec concerns RabbitMQ.
func (Driver) Parse(spec *supervisorv1.ConsumerSpec) (brokers.Plan, []brokers.Fault) {
	in := spec.GetSource().GetRabbitmq()
	if in == nil {
		return brokers.Plan{}, []brokers.Fault{brokers.Faultf("source.rabbitmq", "is missing; name at least a queue")}
	}
	inFlight := defaultInFlight
	if n := spec.GetMaxInFlight().GetMessages(); n != 0 {
		inFlight = int(n)
	}
	src := &source{
		queue:     in.GetQueue(),
		consumer:  spec.GetNamespace() + "/" + spec.GetName(),
		missing:   in.GetMissing(),
		quorum:    in.GetType() != supervisorv1.RabbitmqQueueType_RABBITMQ_QUEUE_TYPE_CLASSIC,
		prefetch:  min(max(2*int(spec.GetConcurrency()), leastPrefetch), inFlight),
		priority:  in.Priority,
		exclusive: in.GetExclusive(),
		linger:    defaultLinger,
	}
	if in.Prefetch != nil {
		src.prefetch = int(in.GetPrefetch())
	}
	src.ackMax = min(max(src.prefetch/10, 1), mostAckBatch)
	if in.GetAckBatch().GetMax() != 0 {
		src.ackMax = int(in.GetAckBatch().GetMax())
	}
	if d := in.GetAckBatch().GetLinger(); d != nil {
		src.linger = d.AsDuration()
	}
	var f faults
	f.checkCreate(in, src)
	f.checkQueue(in, src)
	f.checkLimits(in, src)
	f.checkOrdering(spec, src)
	dead := f.checkDeadLetter(spec.GetDeadLetter(), src)
	if len(f) > 0 {
		return brokers.Plan{}, f
	}
	return brokers.Plan{Source: src, Origin: src.String(), DeadLetter: dead}, nil
}

func (f *faults) checkQueue(in *supervisorv1.RabbitmqSource, s *source) {
	f.checkName("source.rabbitmq.queue", s.queue, "queue to consume from")
	if s.creates() && strings.HasPrefix(s.queue, "amq.") {
		f.addf("source.rabbitmq.queue", "%q cannot be created: names that begin with amq. are the broker's own; use another", s.queue)
	}
	if in.GetExclusive() && s.strict {
		f.addf("source.rabbitmq.exclusive", "has no use with the argument x-single-active-consumer; remove one of the two")
	}
}

func (s *source) creates() bool { return s.missing == supervisorv1.Missing_MISSING_CREATE }

// checkName checks what goes over the wire as a short string.
func (f *faults) checkName(path, name, what string) {
	switch {
	case name == "":
		f.addf(path, "is empty; name the %s", what)
	case len(name) > mostName:
		f.addf(path, "is longer than %d bytes; shorten it", mostName)
	}
}

// checkCreate checks what has a use with CREATE only.
func (f *faults) checkCreate(in *supervisorv1.RabbitmqSource, s *source) {
	if !s.creates() {
		for _, field := range []struct {
			name string
			set  bool
		}{
			{"arguments", len(in.GetArguments().GetFields()) > 0}, {"bindings", len(in.GetBindings()) > 0},
			{"delivery_limit", in.DeliveryLimit != nil},
		} {
			if field.set {
				f.addf("source.rabbitmq."+field.name, "has a use with missing: CREATE only, for a queue that is there keeps its own; remove it or create the queue")
			}
		}
		return
	}
	s.declare = f.table("source.rabbitmq.arguments", in.GetArguments())
	f.checkArguments(in, s)
	s.declare["x-queue-type"] = "classic"
	if s.quorum {
		s.declare["x-queue-type"] = "quorum"
	}
	if in.DeliveryLimit != nil {
		s.declare["x-delivery-limit"] = int64(in.GetDeliveryLimit())
	}
	for i, b := range in.GetBindings() {
		path := fmt.Sprintf("source.rabbitmq.bindings[%d]", i)
		f.checkName(path+".exchange", b.GetExchange(), "exchange to bind the queue to; the default exchange binds every queue by its name")
		if len(b.GetRoutingKey()) > mostName {
			f.addf(path+".routing_key", "is longer than %d bytes; shorten it", mostName)
		}
		s.bindings = append(s.bindings, binding{b.GetExchange(), b.GetRoutingKey(), f.table(path+".arguments", b.GetArguments())})
	}
}

// checkArguments checks the arguments of a queue to be created; s.declare holds
// them.
func (f *faults) checkArguments(in *supervisorv1.RabbitmqSource, s *source) {
	const path = "source.rabbitmq.arguments"
	for name, field := range map[string]string{"x-queue-type": "type", "x-delivery-limit": "delivery_limit"} {
		if _, ok := s.declare[name]; ok {
			f.addf(path+"."+name, "is a field of its own; use source.rabbitmq.%s", field)
		}
	}
	if active, ok := s.declare["x-single-active-consumer"].(bool); ok && active {
		s.strict = true
	}
	_, s.expires = s.declare["x-expires"]
	if in.DeliveryLimit == nil {
		return
	}
	const limit = "source.rabbitmq.delivery_limit"
	if in.GetDeliveryLimit() < 1 {
		f.addf(limit, "is %d; use at least 1", in.GetDeliveryLimit())
	}
	if !s.quorum {
		f.addf(limit, "is not known to classic queues; use type: QUORUM or remove it")
	}
	if x, ok := s.declare["x-dead-letter-exchange"].(string); s.quorum && (!ok || x == "" && s.declare["x-dead-letter-routing-key"] == nil) {
		f.addf(limit, "without a dead letter exchange makes the broker drop messages; set arguments.x-dead-letter-exchange, or remove the limit and use dead_letter")
	}
}

func (f *faults) checkLimits(in *supervisorv1.RabbitmqSource, s *source) {
	if s.prefetch < 1 || s.prefetch > mostPrefetch {
		f.addf("source.rabbitmq.prefetch", "is %d; use 1 to %d: without a limit the broker sends all it has", s.prefetch, mostPrefetch)
	}
	if b := in.GetAckBatch(); b != nil && b.Max != nil && (b.GetMax() < 1 || b.GetMax() > mostPrefetch) {
		f.addf("source.rabbitmq.ack_batch.max", "is %d; use 1 to %d", b.GetMax(), mostPrefetch)
	}
	if s.linger < 0 || s.linger > mostLinger {
		f.addf("source.rabbitmq.ack_batch.linger", "is %s; use 0s to %s", s.linger, mostLinger)
	}
}

func (f *faults) checkOrdering(spec *supervisorv1.ConsumerSpec, s *source) {
	switch spec.GetOrdering() {
	case supervisorv1.Ordering_ORDERING_PARTITION:
		f.addf("ordering", "PARTITION needs partitions, and a queue has none; use KEY, whose key is the routing key or a header")
	case supervisorv1.Ordering_ORDERING_KEY:
		_, fromHeader := spec.GetKey().GetFrom().(*supervisorv1.LaneKey_Header)
		s.withKey = !fromHeader
	}
}

func (f *faults) checkDeadLetter(d *supervisorv1.DeadLetter, s *source) brokers.Target {
	switch t := d.GetTarget().(type) {
	case *supervisorv1.DeadLetter_Queue:
		f.checkName("dead_letter.queue", t.Queue, "queue for dead letters")
		if t.Queue != "" && t.Queue == s.queue {
			f.addf("dead_letter.queue", "is the queue that is consumed, so a dead letter would come round for ever; use another")
		}
		return target{queue: t.Queue}
	case *supervisorv1.DeadLetter_Exchange:
		f.checkName("dead_letter.exchange", t.Exchange, "exchange for dead letters")
		s.withKey = true
		return target{exchange: t.Exchange}
	}
	if d != nil {
		f.addf("dead_letter", "names neither queue nor exchange; on RabbitMQ give one of dead_letter.queue and dead_letter.exchange")
	}
	return nil
}

// waits tells whether the spec wants to wait for a missing queue.
func (s *source) waits() bool {
	return s.missing == supervisorv1.Missing_MISSING_WAIT || s.missing == supervisorv1.Missing_MISSING_UNSPECIFIED
}
