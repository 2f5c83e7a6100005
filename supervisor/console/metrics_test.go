package console

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func now() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// busy is a consumer with a figure of its own in every field.
func busy() supervisor.Snapshot {
	return supervisor.Snapshot{
		Consumer: &supervisorv1.Consumer{
			Spec: &supervisorv1.ConsumerSpec{
				Namespace: "shop", Name: "orders",
				MaxInFlight: &supervisorv1.MaxInFlight{Bytes: proto.Int64(4000)},
			},
			Status: &supervisorv1.Status{
				State: supervisorv1.State_STATE_RUNNING,
				Conditions: []*supervisorv1.Condition{
					{Type: supervisorv1.ConditionType_CONDITION_TYPE_CONNECTED, Status: true},
					{Type: supervisorv1.ConditionType_CONDITION_TYPE_HEAD_BLOCKED, Status: false},
				},
				InFlight: 5, InFlightBytes: 3000, Running: 2, Concurrency: 3, LeakedHandlers: 1,
				Oldest: durationpb.New(1500 * time.Millisecond),
				Lag: &supervisorv1.Lag{
					Messages: 77, At: timestamppb.New(now().Add(-4 * time.Second)), Uncommitted: new(int64(90)), Gap: new(int64(13)),
				},
				Counters: &supervisorv1.Counters{
					Received: 31, Acked: 32, Retried: 33, DeadLettered: 34, Returned: 35, Abandoned: 36, Late: 37, Panics: 38,
				},
			},
		},
		Durations: supervisor.Durations{
			Bounds: []time.Duration{time.Millisecond, time.Second}, Counts: []uint64{4, 3, 2}, Sum: 12500 * time.Millisecond,
		},
		MaxMessages: 10,
	}
}

// idle is a consumer that has done nothing.
func idle(name string) supervisor.Snapshot {
	return supervisor.Snapshot{
		Consumer: &supervisorv1.Consumer{
			Spec:   &supervisorv1.ConsumerSpec{Namespace: "shop", Name: name},
			Status: &supervisorv1.Status{State: supervisorv1.State_STATE_STOPPED},
		},
		Durations: supervisor.Durations{Bounds: []time.Duration{time.Millisecond, time.Second}, Counts: []uint64{0, 0, 0}},
	}
}

func supervisorOf(s ...supervisor.Snapshot) *fixed {
	return &fixed{
		consumers: s,
		info: &supervisorv1.GetServerInfoResponse{
			Version: "v1.2.3", StoreWritable: true,
			Connections: []*supervisorv1.ConnectionInfo{{Name: "main", Driver: "nats", Connected: true}, {Name: "other", Driver: "nats"}},
		},
	}
}

func collectorOf(s Source) *collector {
	return newCollector(func() Source { return s }, now)
}

const wantMetrics = `
# HELP supervisord_build_info The program's version, as a label; always 1.
# TYPE supervisord_build_info gauge
supervisord_build_info{version="v1.2.3"} 1
# HELP supervisord_bytes_in_flight Bytes of the messages in flight of all consumers.
# TYPE supervisord_bytes_in_flight gauge
supervisord_bytes_in_flight 4711
# HELP supervisord_connection_up Whether a broker connection is up (1) or not (0).
# TYPE supervisord_connection_up gauge
supervisord_connection_up{connection="main",driver="nats"} 1
supervisord_connection_up{connection="other",driver="nats"} 0
# HELP supervisord_consumer_buffer_use_ratio How full max_in_flight is, in messages or in bytes, whichever is fuller.
# TYPE supervisord_consumer_buffer_use_ratio gauge
supervisord_consumer_buffer_use_ratio{consumer="mails",namespace="shop"} 0
supervisord_consumer_buffer_use_ratio{consumer="orders",namespace="shop"} 0.75
# HELP supervisord_consumer_concurrency Handler calls that may run at the same time, less those that leaked handlers hold.
# TYPE supervisord_consumer_concurrency gauge
supervisord_consumer_concurrency{consumer="mails",namespace="shop"} 0
supervisord_consumer_concurrency{consumer="orders",namespace="shop"} 3
# HELP supervisord_consumer_condition Whether a condition that the consumer reports is true (1) or false (0).
# TYPE supervisord_consumer_condition gauge
supervisord_consumer_condition{condition="CONNECTED",consumer="orders",namespace="shop"} 1
supervisord_consumer_condition{condition="HEAD_BLOCKED",consumer="orders",namespace="shop"} 0
# HELP supervisord_consumer_handler_duration_seconds How long handler calls took; missing until the first.
# TYPE supervisord_consumer_handler_duration_seconds histogram
supervisord_consumer_handler_duration_seconds_bucket{consumer="orders",namespace="shop",le="0.001"} 4
supervisord_consumer_handler_duration_seconds_bucket{consumer="orders",namespace="shop",le="1"} 7
supervisord_consumer_handler_duration_seconds_bucket{consumer="orders",namespace="shop",le="+Inf"} 9
supervisord_consumer_handler_duration_seconds_sum{consumer="orders",namespace="shop"} 12.5
supervisord_consumer_handler_duration_seconds_count{consumer="orders",namespace="shop"} 9
# HELP supervisord_consumer_in_flight Messages taken from the broker and not yet settled.
# TYPE supervisord_consumer_in_flight gauge
supervisord_consumer_in_flight{consumer="mails",namespace="shop"} 0
supervisord_consumer_in_flight{consumer="orders",namespace="shop"} 5
# HELP supervisord_consumer_in_flight_bytes Bytes of the messages in flight.
# TYPE supervisord_consumer_in_flight_bytes gauge
supervisord_consumer_in_flight_bytes{consumer="mails",namespace="shop"} 0
supervisord_consumer_in_flight_bytes{consumer="orders",namespace="shop"} 3000
# HELP supervisord_consumer_lag_age_seconds How long ago the broker said so.
# TYPE supervisord_consumer_lag_age_seconds gauge
supervisord_consumer_lag_age_seconds{consumer="orders",namespace="shop"} 4
# HELP supervisord_consumer_lag_messages Messages that wait at the broker, taken by nobody, as it said last.
# TYPE supervisord_consumer_lag_messages gauge
supervisord_consumer_lag_messages{consumer="orders",namespace="shop"} 77
# HELP supervisord_consumer_lag_uncommitted From the committed positions to the ends of the partitions; missing where the broker keeps none.
# TYPE supervisord_consumer_lag_uncommitted gauge
supervisord_consumer_lag_uncommitted{consumer="orders",namespace="shop"} 90
# HELP supervisord_consumer_position_gap The longest way from an unfinished message to the newest taken of its partition; missing where the broker keeps no positions.
# TYPE supervisord_consumer_position_gap gauge
supervisord_consumer_position_gap{consumer="orders",namespace="shop"} 13
# HELP supervisord_consumer_late_settlements_total Results that came after their epoch was fenced; never sent to the broker.
# TYPE supervisord_consumer_late_settlements_total counter
supervisord_consumer_late_settlements_total{consumer="mails",namespace="shop"} 0
supervisord_consumer_late_settlements_total{consumer="orders",namespace="shop"} 37
# HELP supervisord_consumer_leaked_handlers Handler calls that were given up and still run.
# TYPE supervisord_consumer_leaked_handlers gauge
supervisord_consumer_leaked_handlers{consumer="mails",namespace="shop"} 0
supervisord_consumer_leaked_handlers{consumer="orders",namespace="shop"} 1
# HELP supervisord_consumer_messages_total Messages that are no longer in flight, by what became of them.
# TYPE supervisord_consumer_messages_total counter
supervisord_consumer_messages_total{consumer="mails",namespace="shop",outcome="abandoned"} 0
supervisord_consumer_messages_total{consumer="mails",namespace="shop",outcome="acked"} 0
supervisord_consumer_messages_total{consumer="mails",namespace="shop",outcome="dead_lettered"} 0
supervisord_consumer_messages_total{consumer="mails",namespace="shop",outcome="returned"} 0
supervisord_consumer_messages_total{consumer="orders",namespace="shop",outcome="abandoned"} 36
supervisord_consumer_messages_total{consumer="orders",namespace="shop",outcome="acked"} 32
supervisord_consumer_messages_total{consumer="orders",namespace="shop",outcome="dead_lettered"} 34
supervisord_consumer_messages_total{consumer="orders",namespace="shop",outcome="returned"} 35
# HELP supervisord_consumer_oldest_in_flight_seconds Age of the oldest message in flight; 0 with none.
# TYPE supervisord_consumer_oldest_in_flight_seconds gauge
supervisord_consumer_oldest_in_flight_seconds{consumer="mails",namespace="shop"} 0
supervisord_consumer_oldest_in_flight_seconds{consumer="orders",namespace="shop"} 1.5
# HELP supervisord_consumer_panics_total Handler calls that panicked.
# TYPE supervisord_consumer_panics_total counter
supervisord_consumer_panics_total{consumer="mails",namespace="shop"} 0
supervisord_consumer_panics_total{consumer="orders",namespace="shop"} 38
# HELP supervisord_consumer_received_total Messages taken from the broker.
# TYPE supervisord_consumer_received_total counter
supervisord_consumer_received_total{consumer="mails",namespace="shop"} 0
supervisord_consumer_received_total{consumer="orders",namespace="shop"} 31
# HELP supervisord_consumer_retries_total Handler calls that failed and were or will be repeated.
# TYPE supervisord_consumer_retries_total counter
supervisord_consumer_retries_total{consumer="mails",namespace="shop"} 0
supervisord_consumer_retries_total{consumer="orders",namespace="shop"} 33
# HELP supervisord_consumer_running Messages that are in a handler.
# TYPE supervisord_consumer_running gauge
supervisord_consumer_running{consumer="mails",namespace="shop"} 0
supervisord_consumer_running{consumer="orders",namespace="shop"} 2
# HELP supervisord_consumer_state The state the consumer is in, as a label; always 1.
# TYPE supervisord_consumer_state gauge
supervisord_consumer_state{consumer="mails",namespace="shop",state="STOPPED"} 1
supervisord_consumer_state{consumer="orders",namespace="shop",state="RUNNING"} 1
# HELP supervisord_hard_limit_fired_total Stops that ended because their hard limit fired.
# TYPE supervisord_hard_limit_fired_total counter
supervisord_hard_limit_fired_total 3
# HELP supervisord_store_writable Whether what operators want can be made durable (1) or not (0).
# TYPE supervisord_store_writable gauge
supervisord_store_writable 1
`

func TestMetrics(t *testing.T) {
	c := collectorOf(supervisorOf(busy(), idle("mails")))
	if err := testutil.CollectAndCompare(c, strings.NewReader(wantMetrics)); err != nil {
		t.Error(err)
	}
	problems, err := testutil.CollectAndLint(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// What the collector sends it has described, and it describes nothing else.
func TestMetricsAreDescribed(t *testing.T) {
	c := collectorOf(supervisorOf(busy()))
	descs := make(chan *prometheus.Desc, 100)
	c.Describe(descs)
	close(descs)
	described := map[string]bool{}
	for d := range descs {
		described[d.String()] = false
	}
	metrics := make(chan prometheus.Metric, 100)
	c.Collect(metrics)
	close(metrics)
	for m := range metrics {
		if _, ok := described[m.Desc().String()]; !ok {
			t.Errorf("not described: %s", m.Desc())
		}
		described[m.Desc().String()] = true
	}
	for d, sent := range described {
		if !sent {
			t.Errorf("never sent: %s", d)
		}
	}
}

func TestBufferUse(t *testing.T) {
	for _, c := range []struct {
		messages        int32
		bytes, maxBytes int64
		maxMessages     int
		want            float64
	}{
		{5, 100, 1000, 10, 0.5},
		{1, 900, 1000, 10, 0.9},
		{1, 2000, 1000, 10, 2},
		{5, 5, 0, 0, 0},
	} {
		got := bufferUse(supervisor.Snapshot{
			Consumer: &supervisorv1.Consumer{
				Spec:   &supervisorv1.ConsumerSpec{MaxInFlight: &supervisorv1.MaxInFlight{Bytes: &c.maxBytes}},
				Status: &supervisorv1.Status{InFlight: c.messages, InFlightBytes: c.bytes},
			},
			MaxMessages: c.maxMessages,
		})
		if got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

// BenchmarkScrape is a scrape of 10,000 busy consumers, gzipped.
func BenchmarkScrape(b *testing.B) {
	var all []supervisor.Snapshot
	for i := range 10000 {
		s := busy()
		s.Consumer.Spec.Name = fmt.Sprintf("orders-%d", i)
		s.Durations = supervisor.Durations{Bounds: make([]time.Duration, 12), Counts: make([]uint64, 13), Sum: time.Minute}
		for b := range s.Durations.Bounds {
			s.Durations.Bounds[b] = time.Microsecond << (2 * b)
			s.Durations.Counts[b] = uint64(b + i)
		}
		all = append(all, s)
	}
	c := New(Options{Log: slog.New(slog.DiscardHandler)})
	c.Show(supervisorOf(all...))
	r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	size := 0
	for b.Loop() {
		w := httptest.NewRecorder()
		c.ServeHTTP(w, r)
		size = w.Body.Len()
	}
	b.ReportMetric(float64(size), "wire-bytes")
}
