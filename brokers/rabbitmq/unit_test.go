package rabbitmq

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

type (
	specT    = supervisorv1.ConsumerSpec
	sourceT  = supervisorv1.RabbitmqSource
	bindingT = supervisorv1.RabbitmqBinding
)

const (
	missingCreate = supervisorv1.Missing_MISSING_CREATE
	missingFail   = supervisorv1.Missing_MISSING_FAIL
	classic       = supervisorv1.RabbitmqQueueType_RABBITMQ_QUEUE_TYPE_CLASSIC
	quorum        = supervisorv1.RabbitmqQueueType_RABBITMQ_QUEUE_TYPE_QUORUM
)

func spec(change func(*specT, *sourceT)) *specT {
	in := &sourceT{Queue: "q"}
	s := &specT{
		Namespace: "default", Name: "c", Concurrency: new(int32(1)),
		Source:      &supervisorv1.Source{Connection: "test", Broker: &supervisorv1.Source_Rabbitmq{Rabbitmq: in}},
		MaxInFlight: &supervisorv1.MaxInFlight{Messages: new(int32(100))},
	}
	if change != nil {
		change(s, in)
	}
	return s
}

func arguments(t *testing.T, m map[string]any) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(m)
	must(t, err)
	return s
}

func TestParseFaults(t *testing.T) {
	long := strings.Repeat("x", 256)
	for name, c := range map[string]struct {
		change func(*specT, *sourceT)
		paths  []string
	}{
		"empty":              {func(_ *specT, in *sourceT) { in.Queue = "" }, []string{"source.rabbitmq.queue"}},
		"long":               {func(_ *specT, in *sourceT) { in.Queue = long }, []string{"source.rabbitmq.queue"}},
		"own name":           {func(_ *specT, in *sourceT) { in.Queue, in.Missing = "amq.q", missingCreate }, []string{"source.rabbitmq.queue"}},
		"prefetch 0":         {func(_ *specT, in *sourceT) { in.Prefetch = new(int32(0)) }, []string{"source.rabbitmq.prefetch"}},
		"prefetch too large": {func(_ *specT, in *sourceT) { in.Prefetch = new(int32(65536)) }, []string{"source.rabbitmq.prefetch"}},
		"ack batch": {func(_ *specT, in *sourceT) {
			in.AckBatch = &supervisorv1.RabbitmqAckBatch{Max: new(int32(-1)), Linger: durationpb.New(2 * time.Second)}
		}, []string{"source.rabbitmq.ack_batch.linger", "source.rabbitmq.ack_batch.max"}},
		"only with CREATE": {func(_ *specT, in *sourceT) {
			in.DeliveryLimit = new(int32(3))
			in.Bindings = []*supervisorv1.RabbitmqBinding{{Exchange: "x"}}
			in.Arguments = arguments(t, map[string]any{"x-max-length": 1})
		}, []string{"source.rabbitmq.arguments", "source.rabbitmq.bindings", "source.rabbitmq.delivery_limit"}},
		"limit without dead letter exchange": {func(_ *specT, in *sourceT) {
			in.Missing, in.DeliveryLimit = missingCreate, new(int32(3))
		}, []string{"source.rabbitmq.delivery_limit"}},
		"limit of a classic queue": {func(_ *specT, in *sourceT) {
			in.Missing, in.DeliveryLimit, in.Type = missingCreate, new(int32(3)), classic
		}, []string{"source.rabbitmq.delivery_limit"}},
		"limit 0": {func(_ *specT, in *sourceT) {
			in.Missing, in.DeliveryLimit = missingCreate, new(int32(0))
			in.Arguments = arguments(t, map[string]any{"x-dead-letter-exchange": "dlx"})
		}, []string{"source.rabbitmq.delivery_limit"}},
		"arguments with fields of their own": {func(_ *specT, in *sourceT) {
			in.Missing = missingCreate
			in.Arguments = arguments(t, map[string]any{"x-queue-type": "classic", "x-delivery-limit": 2, "empty": nil, "large": 1e300})
		}, []string{"source.rabbitmq.arguments.empty", "source.rabbitmq.arguments.large", "source.rabbitmq.arguments.x-delivery-limit", "source.rabbitmq.arguments.x-queue-type"}},
		"binding": {func(_ *specT, in *sourceT) {
			in.Missing, in.Bindings = missingCreate, []*supervisorv1.RabbitmqBinding{{RoutingKey: long}}
		}, []string{"source.rabbitmq.bindings[0].exchange", "source.rabbitmq.bindings[0].routing_key"}},
		"exclusive and single active": {func(_ *specT, in *sourceT) {
			in.Missing, in.Exclusive = missingCreate, true
			in.Arguments = arguments(t, map[string]any{"x-single-active-consumer": true})
		}, []string{"source.rabbitmq.exclusive"}},
		"PARTITION": {func(s *specT, _ *sourceT) { s.Ordering = supervisorv1.Ordering_ORDERING_PARTITION }, []string{"ordering"}},
		"dead letter of another broker": {func(s *specT, _ *sourceT) {
			s.DeadLetter = &supervisorv1.DeadLetter{Target: &supervisorv1.DeadLetter_Topic{Topic: "t"}}
		}, []string{"dead_letter"}},
		"dead letter comes round": {func(s *specT, _ *sourceT) {
			s.DeadLetter = &supervisorv1.DeadLetter{Target: &supervisorv1.DeadLetter_Queue{Queue: "q"}}
		}, []string{"dead_letter.queue"}},
		"all at once": {func(s *specT, in *sourceT) {
			in.Queue, in.Prefetch, s.Ordering = "", new(int32(0)), supervisorv1.Ordering_ORDERING_PARTITION
		}, []string{"ordering", "source.rabbitmq.prefetch", "source.rabbitmq.queue"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, faults := Driver{}.Parse(spec(c.change))
			checkPaths(t, faults, c.paths)
		})
	}
}

func checkPaths(t *testing.T, faults []brokers.Fault, want []string) {
	t.Helper()
	got := make([]string, 0, len(faults))
	for _, f := range faults {
		got = append(got, f.Path)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("faults at %q, want %q: %v", got, want, faults)
	}
}

func TestParseDefaults(t *testing.T) {
	plan, faults := Driver{}.Parse(spec(func(s *specT, in *sourceT) {
		s.Concurrency = new(int32(16))
		in.Missing, in.DeliveryLimit = missingCreate, new(int32(3))
		in.Arguments = arguments(t, map[string]any{
			"x-dead-letter-exchange": "dlx", "x-max-length": 100000, "ratio": 0.5, "list": []any{1, "a"}, "x-single-active-consumer": true,
		})
		s.DeadLetter = &supervisorv1.DeadLetter{Target: &supervisorv1.DeadLetter_Exchange{Exchange: "dead"}}
	}))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	src, ok := plan.Source.(*source)
	if !ok || plan.Origin != "queue q" || plan.DeadLetter.String() != "exchange dead" {
		t.Fatalf("plan %+v", plan)
	}
	if src.prefetch != 32 || src.ackMax != 3 || src.linger != 5*time.Millisecond || !src.quorum || !src.strict || !src.withKey {
		t.Errorf("source %+v", src)
	}
	want := amqp.Table{
		"x-dead-letter-exchange": "dlx", "x-max-length": int64(100000), "ratio": 0.5, "x-single-active-consumer": true,
		"x-queue-type": "quorum", "x-delivery-limit": int64(3),
	}
	list, _ := src.declare["list"].([]any)
	delete(src.declare, "list")
	if !maps.Equal(src.declare, want) || !slices.Equal(list, []any{int64(1), "a"}) {
		t.Errorf("arguments %#v and %#v, want %#v", src.declare, list, want)
	}
}

func TestPrefetchIsWithinMaxInFlight(t *testing.T) {
	plan, faults := Driver{}.Parse(spec(func(s *specT, _ *sourceT) { s.MaxInFlight.Messages = new(int32(5)) }))
	if src, ok := plan.Source.(*source); !ok || src.prefetch != 5 || src.ackMax != 1 {
		t.Errorf("source %+v, faults %v", plan.Source, faults)
	}
}

func TestCheckConnectionFaults(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*supervisorv1.RabbitmqConnection)
		paths  []string
	}{
		"good":           {nil, nil},
		"no urls":        {func(r *supervisorv1.RabbitmqConnection) { r.Urls = nil }, []string{"rabbitmq.urls"}},
		"not a URL":      {func(r *supervisorv1.RabbitmqConnection) { r.Urls = []string{"localhost:5672"} }, []string{"rabbitmq.urls[0]"}},
		"scheme":         {func(r *supervisorv1.RabbitmqConnection) { r.Urls = []string{"http://h"} }, []string{"rabbitmq.urls[0]"}},
		"credentials":    {func(r *supervisorv1.RabbitmqConnection) { r.Urls = []string{"amqp://u:hunter2@h"} }, []string{"rabbitmq.urls[0]"}},
		"vhost":          {func(r *supervisorv1.RabbitmqConnection) { r.Urls = []string{"amqp://h/vhost"} }, []string{"rabbitmq.urls[0]"}},
		"port":           {func(r *supervisorv1.RabbitmqConnection) { r.Urls = []string{"amqp://h:70000"} }, []string{"rabbitmq.urls[0]"}},
		"clear password": {func(r *supervisorv1.RabbitmqConnection) { r.Auth.Password = "hunter2" }, []string{"rabbitmq.auth.password"}},
		"half of auth":   {func(r *supervisorv1.RabbitmqConnection) { r.Auth.Password = "" }, []string{"rabbitmq.auth"}},
		"no auth":        {func(r *supervisorv1.RabbitmqConnection) { r.Auth = nil }, []string{"rabbitmq.auth"}},
		"certificate signs in": {func(r *supervisorv1.RabbitmqConnection) {
			r.Urls, r.Auth, r.Tls = []string{"amqps://h"}, nil, &supervisorv1.ClientTls{CertFile: "c", KeyFile: "k"}
		}, nil},
		"half of tls": {func(r *supervisorv1.RabbitmqConnection) {
			r.Urls, r.Tls = []string{"amqps://h"}, &supervisorv1.ClientTls{CertFile: "c"}
		}, []string{"rabbitmq.tls"}},
		"tls without amqps": {func(r *supervisorv1.RabbitmqConnection) { r.Tls = &supervisorv1.ClientTls{} }, []string{"rabbitmq.tls"}},
		"numbers": {func(r *supervisorv1.RabbitmqConnection) {
			r.Heartbeat, r.MaxConsumersPerConnection = durationpb.New(time.Millisecond), new(int32(0))
		}, []string{"rabbitmq.heartbeat", "rabbitmq.max_consumers_per_connection"}},
		"all at once": {func(r *supervisorv1.RabbitmqConnection) {
			r.Urls, r.Auth, r.Heartbeat = []string{"x"}, nil, durationpb.New(-1)
		}, []string{"rabbitmq.auth", "rabbitmq.heartbeat", "rabbitmq.urls[0]"}},
	} {
		t.Run(name, func(t *testing.T) {
			conn := connection("amqp://h:5672", passwordRef)
			if c.change != nil {
				c.change(conn.GetRabbitmq())
			}
			faults := Driver{}.CheckConnection(conn)
			checkPaths(t, faults, c.paths)
			for _, f := range faults {
				if strings.Contains(f.Message, "hunter2") {
					t.Errorf("%v repeats a secret", f)
				}
			}
		})
	}
}

func TestClassify(t *testing.T) {
	src := &source{queue: "q"}
	said := func(code int, reason string) error { return &amqp.Error{Code: code, Reason: reason, Server: true} }
	for _, c := range []struct {
		err  error
		want brokers.Class
	}{
		{said(404, "NOT_FOUND - no queue 'q' in vhost '/'"), brokers.Missing},
		{said(404, "NOT_FOUND - home node 'rabbit@b' of durable queue 'q' in vhost '/' is down or inaccessible"), brokers.Transient},
		{said(403, "ACCESS_REFUSED - access to queue 'q' in vhost '/' refused for user 'u'"), brokers.Refused},
		{said(403, "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"), brokers.Transient},
		{said(405, "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q'"), brokers.Refused},
		{said(406, "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q'"), brokers.Refused},
		{said(406, "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out"), brokers.Transient},
		{said(540, "NOT_IMPLEMENTED - x"), brokers.Refused},
		{said(541, "INTERNAL_ERROR"), brokers.Transient},
		{said(320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"), brokers.Unreachable},
		{amqp.ErrClosed, brokers.Unreachable},
		{amqp.ErrChannelMax, brokers.Transient},
		{errors.New("EOF"), brokers.Unreachable},
	} {
		err := src.classify("subscribe to queue q", c.err)
		if got := brokers.ClassOf(err); got != c.want {
			t.Errorf("%v: class %v, want %v", err, got, c.want)
		}
		var e *brokers.Error
		if errors.As(err, &e) && e.Wait != (c.want == brokers.Missing) {
			t.Errorf("%v: waits is %v", err, e.Wait)
		}
	}
	for _, err := range []error{context.Canceled, context.DeadlineExceeded} {
		if got := src.classify("x", err); got != err { //nolint:errorlint // it is passed as it is
			t.Errorf("%v became %v", err, got)
		}
	}
}

func TestVersions(t *testing.T) {
	for text, counts := range map[string]bool{"3.10.8": true, "4.2.9": true, "4.3.0": false, "4.10.0-rc.1": false, "5.0": false, "x": true} {
		if got := versionOf(amqp.Table{"product": "RabbitMQ", "version": text}).nackCounts(); got != counts {
			t.Errorf("%s: %v", text, got)
		}
	}
	if !versionOf(amqp.Table{"product": "LavinMQ", "version": "9.9"}).nackCounts() {
		t.Error("another broker is not known not to count")
	}
}

func TestFactsAreRead(t *testing.T) {
	for reason, want := range map[string]facts{
		"PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received the value 'a' of type 'longstr' but current is none": {kind: "classic"},
		"PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received 'a' but current is 'quorum'":                         {kind: "quorum"},
		"PRECONDITION_FAILED - inequivalent arg 'auto_delete' for queue 'q' in vhost '/': received 'false' but current is 'true'":                        {kind: "classic", autoDelete: true},
		"PRECONDITION_FAILED - invalid arg 'x-queue-type' for queue 'q' in vhost '/': \"unsupported queue type 'a'\"":                                    {},
	} {
		if got := readFacts(reason); got != want {
			t.Errorf("%s: %+v, want %+v", reason, got, want)
		}
	}
}

// What a dead letter carries comes as it was, and without what the broker would act
// upon or keep book by.
func TestPublishingKeepsProperties(t *testing.T) {
	p := publishing(&brokers.Publication{ID: "id", Body: []byte("b"), Headers: []brokers.Header{
		{Name: "content-type", Value: "application/json"}, {Name: "tenant", Value: "shop"}, {Name: "tenant", Value: "other"},
		{Name: "CC", Value: "elsewhere"}, {Name: "x-death", Value: "[]"}, {Name: "x-first-death-queue", Value: "q"}, {Name: "x-delivery-count", Value: "3"},
	}})
	if p.ContentType != "application/json" || p.MessageId != "id" || p.DeliveryMode != amqp.Persistent || !maps.Equal(p.Headers, amqp.Table{"tenant": "shop"}) {
		t.Errorf("published as %+v", p)
	}
}

func TestHeadersAreRead(t *testing.T) {
	h := &properties{table: headers{
		"cloudEvents:id": "1", "n": int64(7), "b": true, "bytes": []byte("x"), "list": []any{"a", int32(1)}, "content-type": "hidden",
	}, contentType: "text/plain"}
	want := map[string]string{"cloudEvents:id": "1", "n": "7", "b": "true", "bytes": "x", "list": `["a",1]`, "content-type": "text/plain"}
	if got := maps.Collect(h.All()); !maps.Equal(got, want) {
		t.Errorf("headers %v, want %v", got, want)
	}
	for name, v := range want {
		if got, ok := h.Get(name); !ok || got != v {
			t.Errorf("%s is %q, want %q", name, got, v)
		}
	}
	if _, ok := h.Get("correlation-id"); ok {
		t.Error("a property that is not there is found")
	}
}
