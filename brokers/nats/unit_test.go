package nats

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

func TestParseAck(t *testing.T) {
	for subject, want := range map[string]ackInfo{
		"$JS.ACK.S.C.3.17.21.1700000000000000001.5":                {deliveries: 3, seq: 17, published: 1700000000000000001},
		"$JS.ACK._.HASH.S.C.1.9.9.1700000000000000002.0":           {deliveries: 1, seq: 9, published: 1700000000000000002},
		"$JS.ACK.hub.HASH.S.C.2.10.11.1700000000000000003.7.extra": {deliveries: 2, seq: 10, published: 1700000000000000003},
	} {
		got, ok := parseAck(subject)
		if !ok || got != want {
			t.Errorf("%s: %+v, %v; want %+v", subject, got, ok, want)
		}
	}
	for _, subject := range []string{
		"", "x", "$JS.ACK.", "$JS.ACK.S.C.1.2.3.4", "$JS.ACK.S.C.1.2.3.4.5.6", "$JS.ACK.S.C.x.17.21.1.5", "$JS.ACK.S.C.1.-2.3.4.5",
		"$JS.ACK.S.C.1.99999999999999999999.3.4.5", "_INBOX.a.b.c.d.e.f.g.h",
	} {
		if got, ok := parseAck(subject); ok {
			t.Errorf("%q was read as %+v", subject, got)
		}
	}
}

// What the client's own parser reads, ours reads alike, and it never panics.
func FuzzParseAck(f *testing.F) {
	f.Add("$JS.ACK.S.C.3.17.21.1700000000000000001.5")
	f.Add("$JS.ACK._.HASH.S.C.1.9.9.1700000000000000002.0")
	f.Fuzz(func(t *testing.T, subject string) {
		got, ok := parseAck(subject)
		m := &nats.Msg{Reply: subject, Sub: &nats.Subscription{}}
		meta, err := m.Metadata()
		if ok && err == nil && (got.seq != meta.Sequence.Stream || got.deliveries != meta.NumDelivered) {
			t.Errorf("%q: %+v, the client reads %+v", subject, got, meta)
		}
	})
}

func TestSubjects(t *testing.T) {
	for s, fine := range map[string]bool{
		"a": true, "a.b": true, "a.*": true, "a.>": true, ">": true, "": false, "a..b": false, ".a": false, "a.": false,
		"a b": false, "a\tb": false, "a.>.b": false, "a\x00": false,
	} {
		if bad := badSubject(s, true); (bad == "") != fine {
			t.Errorf("%q: %q", s, bad)
		}
	}
	for _, s := range []string{"a.*", ">", "*"} {
		if badSubject(s, false) == "" {
			t.Errorf("%q has a wildcard", s)
		}
	}
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"a.*", "a.b", true}, {"a.*", "a.b.c", false}, {"a.>", "a.b.c", true}, {"a.>", "a", false},
		{"*.b", "a.*", true}, {">", "x.y", true}, {"a.b", "a", false},
	} {
		if overlap(c.a, c.b) != c.want || overlap(c.b, c.a) != c.want {
			t.Errorf("overlap(%q, %q) is not %v", c.a, c.b, c.want)
		}
	}
}

func spec(change func(*supervisorv1.ConsumerSpec, *supervisorv1.NatsSource)) *supervisorv1.ConsumerSpec {
	in := &supervisorv1.NatsSource{Stream: "ORDERS", FilterSubjects: []string{"orders.>"}}
	s := &supervisorv1.ConsumerSpec{Namespace: "shop", Name: "orders", Source: &supervisorv1.Source{
		Broker: &supervisorv1.Source_Nats{Nats: in},
	}}
	if change != nil {
		change(s, in)
	}
	return s
}

func TestParseDefaults(t *testing.T) {
	plan, faults := Driver{}.Parse(spec(nil))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	s, ok := plan.Source.(*source)
	if !ok || plan.Origin != "stream ORDERS" || plan.DeadLetter != nil {
		t.Fatalf("%+v", plan)
	}
	want := source{
		stream: "ORDERS", durable: "shop_orders", filters: []string{"orders.>"}, policy: jetstream.DeliverAllPolicy,
		ackWait: 30 * time.Second, maxAckPending: 1000, pullMessages: 100, pullBytes: 16 << 20, pullExpiry: 30 * time.Second,
		messages: 100, bytes: 64 << 20,
	}
	if got, want := fmt.Sprintf("%+v", *s), fmt.Sprintf("%+v", want); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if s.heartbeat() != 15*time.Second {
		t.Errorf("heartbeat %v", s.heartbeat())
	}
}

func TestParseFaults(t *testing.T) {
	type change = func(*supervisorv1.ConsumerSpec, *supervisorv1.NatsSource)
	for path, c := range map[string]change{
		"source.nats.stream":             func(_ *supervisorv1.ConsumerSpec, n *supervisorv1.NatsSource) { n.Stream = "" },
		"source.nats.durable":            func(_ *supervisorv1.ConsumerSpec, n *supervisorv1.NatsSource) { n.Durable = "a.b" },
		"source.nats.filter_subjects[0]": func(_ *supervisorv1.ConsumerSpec, n *supervisorv1.NatsSource) { n.FilterSubjects = []string{"a..b"} },
		"source.nats.filter_subjects[1]": func(_ *supervisorv1.ConsumerSpec, n *supervisorv1.NatsSource) {
			n.FilterSubjects = []string{"a.*", "a.b"}
		},
		"source.nats.ack_wait": func(_ *supervisorv1.ConsumerSpec, n *supervisorv1.NatsSource) {
			n.AckWait = durationpb.New(time.Millisecond)
		},
		"source.nats.max_ack_pending":   func(_ *supervisorv1.ConsumerSpec, n *supervisorv1.NatsSource) { n.MaxAckPending = new(int32(99)) },
		"source.nats.pull_max_messages": func(_ *supervisorv1.ConsumerSpec, n *supervisorv1.NatsSource) { n.PullMaxMessages = new(int32(0)) },
		"source.nats.pull_max_bytes":    func(_ *supervisorv1.ConsumerSpec, n *supervisorv1.NatsSource) { n.PullMaxBytes = new(int64(1 << 40)) },
		"source.nats.pull_expiry": func(_ *supervisorv1.ConsumerSpec, n *supervisorv1.NatsSource) {
			n.PullExpiry = durationpb.New(time.Millisecond)
		},
		"source.nats.missing": func(_ *supervisorv1.ConsumerSpec, n *supervisorv1.NatsSource) {
			n.FilterSubjects, n.Missing = nil, supervisorv1.Missing_MISSING_CREATE
		},
		"ordering": func(s *supervisorv1.ConsumerSpec, _ *supervisorv1.NatsSource) {
			s.Ordering = supervisorv1.Ordering_ORDERING_PARTITION
		},
		"dead_letter": func(s *supervisorv1.ConsumerSpec, _ *supervisorv1.NatsSource) {
			s.DeadLetter = &supervisorv1.DeadLetter{Target: &supervisorv1.DeadLetter_Topic{Topic: "t"}}
		},
		"dead_letter.subject": func(s *supervisorv1.ConsumerSpec, _ *supervisorv1.NatsSource) {
			s.DeadLetter = &supervisorv1.DeadLetter{Target: &supervisorv1.DeadLetter_Subject{Subject: "orders.dead"}}
		},
	} {
		_, faults := Driver{}.Parse(spec(c))
		if len(faults) != 1 || faults[0].Path != path || !strings.ContainsAny(faults[0].Message, ";,") {
			t.Errorf("%s: got %v", path, faults)
		}
	}
}

// All faults of a spec are told at once.
func TestParseAllFaults(t *testing.T) {
	_, faults := Driver{}.Parse(spec(func(s *supervisorv1.ConsumerSpec, n *supervisorv1.NatsSource) {
		n.Stream, n.Durable, n.AckWait = "a b", "c>", durationpb.New(0)
		s.Ordering = supervisorv1.Ordering_ORDERING_PARTITION
	}))
	if len(faults) != 4 {
		t.Errorf("got %v", faults)
	}
}

func TestSubjectIsTheKey(t *testing.T) {
	for want, key := range map[bool]*supervisorv1.LaneKey{
		true:  nil,
		false: {From: &supervisorv1.LaneKey_Header{Header: "tenant"}},
	} {
		plan, faults := Driver{}.Parse(spec(func(s *supervisorv1.ConsumerSpec, _ *supervisorv1.NatsSource) {
			s.Ordering, s.Key = supervisorv1.Ordering_ORDERING_KEY, key
		}))
		if s, ok := plan.Source.(*source); !ok || s.subjectKey != want {
			t.Errorf("%v: %v %v", key, plan, faults)
		}
	}
}

func TestCheckConnection(t *testing.T) {
	url := []string{"nats://a:4222"}
	for name, c := range map[string]struct {
		cfg  *supervisorv1.NatsConnection
		want []string
	}{
		"nothing":         {nil, []string{"nats"}},
		"no urls":         {&supervisorv1.NatsConnection{}, []string{"nats.urls"}},
		"fine":            {&supervisorv1.NatsConnection{Urls: url}, nil},
		"scheme":          {&supervisorv1.NatsConnection{Urls: []string{"http://a"}}, []string{"nats.urls[0]"}},
		"no host":         {&supervisorv1.NatsConnection{Urls: []string{"nats://"}}, []string{"nats.urls[0]"}},
		"credentials":     {&supervisorv1.NatsConnection{Urls: []string{"nats://u:c4nary@a"}}, []string{"nats.urls[0]"}},
		"not a URL":       {&supervisorv1.NatsConnection{Urls: []string{"nats://u:c4nary@a:%zz"}}, []string{"nats.urls[0]"}},
		"listen":          {&supervisorv1.NatsConnection{Urls: url, Listen: "127.0.0.1:1"}, []string{"nats.listen"}},
		"embedded":        {&supervisorv1.NatsConnection{Embedded: true}, nil},
		"embedded listen": {&supervisorv1.NatsConnection{Embedded: true, Listen: "[::1]:4222"}, nil},
		"listen anywhere": {&supervisorv1.NatsConnection{Embedded: true, Listen: "0.0.0.0:4222"}, []string{"nats.listen"}},
		"listen no port":  {&supervisorv1.NatsConnection{Embedded: true, Listen: "127.0.0.1"}, []string{"nats.listen"}},
		"embedded urls":   {&supervisorv1.NatsConnection{Embedded: true, Urls: url}, []string{"nats.urls"}},
		"two ways": {&supervisorv1.NatsConnection{Urls: url, Auth: &supervisorv1.NatsAuth{Token: "env:A", CredentialsFile: "f"}},
			[]string{"nats.auth"}},
		"half a pair": {&supervisorv1.NatsConnection{Urls: url, Auth: &supervisorv1.NatsAuth{User: "u"}}, []string{"nats.auth"}},
		"in clear": {&supervisorv1.NatsConnection{Urls: url, Auth: &supervisorv1.NatsAuth{User: "u", Password: "c4nary"}},
			[]string{"nats.auth.password"}},
		"half a certificate": {&supervisorv1.NatsConnection{Urls: url, Tls: &supervisorv1.ClientTls{CertFile: "c"}}, []string{"nats.tls"}},
	} {
		conn := &supervisorv1.Connection{Name: "c"}
		if c.cfg != nil {
			conn.Broker = &supervisorv1.Connection_Nats{Nats: c.cfg}
		}
		var paths []string
		for _, f := range (Driver{}).CheckConnection(conn) {
			paths = append(paths, f.Path)
			if strings.Contains(f.Error(), "c4nary") {
				t.Errorf("%s: the secret is told: %v", name, f)
			}
		}
		if !slices.Equal(paths, c.want) {
			t.Errorf("%s: got %v, want %v", name, paths, c.want)
		}
	}
}

func TestClassify(t *testing.T) {
	api := func(code int, number jetstream.ErrorCode) error {
		return &jetstream.APIError{Code: code, ErrorCode: number, Description: "words"}
	}
	for err, want := range map[error]brokers.Class{
		nats.ErrAuthorization:                                brokers.Refused,
		fmt.Errorf("x: %w", nats.ErrPermissionViolation):     brokers.Refused,
		api(404, 10059):                                      brokers.Missing,
		api(404, 10014):                                      brokers.Missing,
		api(400, 10999):                                      brokers.Refused,
		api(503, 10008):                                      brokers.Transient,
		jetstream.ErrNoStreamResponse:                        brokers.Missing,
		nats.ErrNoResponders:                                 brokers.Transient,
		context.DeadlineExceeded:                             brokers.Unreachable,
		errors.New("connection reset by peer"):               brokers.Unreachable,
		fmt.Errorf("%w", errSecret):                          brokers.Refused,
		x509.UnknownAuthorityError{}:                         brokers.Refused,
		fmt.Errorf("%w: %w", nats.ErrTLS, errors.New("EOF")): brokers.Unreachable,
	} {
		got := classify("try", err)
		if brokers.ClassOf(got) != want || !errors.Is(got, err) {
			t.Errorf("%v: %v, want %v", err, brokers.ClassOf(got), want)
		}
	}
	if classify("try", nil) != nil {
		t.Error("nil became an error")
	}
}

func TestHeaders(t *testing.T) {
	h := headers(nats.Header{"a": {"1", "2"}, "B": {"3"}})
	if v, ok := h.Get("a"); v != "1" || !ok {
		t.Errorf("a is %q, %v", v, ok)
	}
	if v, ok := h.Get("b"); ok {
		t.Errorf("names are case-sensitive, but b is %q", v)
	}
	got := map[string]int{}
	for name, value := range h.All() {
		got[name+value]++
	}
	if want := map[string]int{"a1": 1, "a2": 1, "B3": 1}; !maps.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	for range h.All() {
		break // stops without a panic
	}
}

// Dead letters do not take the instructions along that were meant for the stream
// they come from.
func TestServerHeadersAreNotCopied(t *testing.T) {
	m := message("dead", &brokers.Publication{ID: "id", Headers: []brokers.Header{
		{Name: "Nats-Rollup", Value: "all"}, {Name: "Nats-Msg-Id", Value: "old"}, {Name: "tenant", Value: "shop"}, {Name: "tenant", Value: "two"},
	}})
	want := nats.Header{"Nats-Msg-Id": {"id"}, "tenant": {"shop", "two"}}
	if !maps.EqualFunc(m.Header, want, slices.Equal) {
		t.Errorf("got %v, want %v", m.Header, want)
	}
}

// Requests that the server lost are told from those that have nothing to bring.
func TestOverdue(t *testing.T) {
	src := &source{pullExpiry: 4 * time.Second} // heartbeats every 2 s
	second := int64(time.Second)
	for name, c := range map[string]struct {
		asked, heard, now int64
		want              bool
	}{
		"fresh":                          {0, 0, second, false},
		"two heartbeats late":            {2 * second, second, 6 * second, true},
		"heard of late":                  {2 * second, 5 * second, 6 * second, false},
		"outlived, though others answer": {0, 7 * second, 7 * second, true},
	} {
		p := pulls{}
		if p.overdue(src, c.heard, c.now) {
			t.Errorf("%s: overdue without a request", name)
		}
		p.start(1, 1, c.asked)
		if p.overdue(src, c.heard, c.now) != c.want {
			t.Errorf("%s: want %v", name, c.want)
		}
	}
}
