package console

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

// consumerMetrics are the series of each consumer. The state is one series,
// which has the current state as a label and the value 1: with all nine, ten
// thousand consumers would need 80,000 series more that say nothing.
type consumerMetrics struct {
	state, condition                                      *prometheus.Desc
	inFlight, inFlightBytes, running, concurrency, oldest *prometheus.Desc
	bufferUse, leaked                                     *prometheus.Desc
	received, messages, retries, panics, late             *prometheus.Desc
	lag, uncommitted, gap, lagAge                         *prometheus.Desc
	duration                                              *prometheus.Desc
}

func newConsumerMetrics() consumerMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("supervisord_consumer_"+name, help, append([]string{"namespace", "consumer"}, labels...), nil)
	}
	return consumerMetrics{
		state:         desc("state", "The state the consumer is in, as a label; always 1.", "state"),
		condition:     desc("condition", "Whether a condition that the consumer reports is true (1) or false (0).", "condition"),
		inFlight:      desc("in_flight", "Messages taken from the broker and not yet settled."),
		inFlightBytes: desc("in_flight_bytes", "Bytes of the messages in flight."),
		running:       desc("running", "Messages that are in a handler."),
		concurrency:   desc("concurrency", "Handler calls that may run at the same time, less those that leaked handlers hold."),
		oldest:        desc("oldest_in_flight_seconds", "Age of the oldest message in flight; 0 with none."),
		bufferUse:     desc("buffer_use_ratio", "How full max_in_flight is, in messages or in bytes, whichever is fuller."),
		leaked:        desc("leaked_handlers", "Handler calls that were given up and still run."),
		received:      desc("received_total", "Messages taken from the broker."),
		messages:      desc("messages_total", "Messages that are no longer in flight, by what became of them.", "outcome"),
		retries:       desc("retries_total", "Handler calls that failed and were or will be repeated."),
		panics:        desc("panics_total", "Handler calls that panicked."),
		late:          desc("late_settlements_total", "Results that came after their epoch was fenced; never sent to the broker."),
		lag:           desc("lag_messages", "Messages that wait at the broker, taken by nobody, as it said last."),
		uncommitted:   desc("lag_uncommitted", "From the committed positions to the ends of the partitions; missing where the broker keeps none."),
		gap:           desc("position_gap", "The longest way from an unfinished message to the newest taken of its partition; missing where the broker keeps no positions."),
		lagAge:        desc("lag_age_seconds", "How long ago the broker said so."),
		duration:      desc("handler_duration_seconds", "How long handler calls took; missing until the first."),
	}
}

// processMetrics are the series of the process beside those of the Go runtime.
type processMetrics struct {
	build, bytes, hardLimits, store, connection *prometheus.Desc
}

func newProcessMetrics() processMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("supervisord_"+name, help, labels, nil)
	}
	return processMetrics{
		build:      desc("build_info", "The program's version, as a label; always 1.", "version"),
		bytes:      desc("bytes_in_flight", "Bytes of the messages in flight of all consumers."),
		hardLimits: desc("hard_limit_fired_total", "Stops that ended because their hard limit fired."),
		store:      desc("store_writable", "Whether what operators want can be made durable (1) or not (0)."),
		connection: desc("connection_up", "Whether a broker connection is up (1) or not (0).", "connection", "driver"),
	}
}

// collector reads the supervisor at each scrape; between scrapes it costs
// nothing.
type collector struct {
	source   func() Source
	now      func() time.Time
	consumer consumerMetrics
	process  processMetrics
}

func newCollector(source func() Source, now func() time.Time) *collector {
	return &collector{source: source, now: now, consumer: newConsumerMetrics(), process: newProcessMetrics()}
}

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	m, p := c.consumer, c.process
	for _, d := range []*prometheus.Desc{
		m.state, m.condition, m.inFlight, m.inFlightBytes, m.running, m.concurrency, m.oldest, m.bufferUse, m.leaked,
		m.received, m.messages, m.retries, m.panics, m.late, m.lag, m.uncommitted, m.gap, m.lagAge, m.duration,
		p.build, p.bytes, p.hardLimits, p.store, p.connection,
	} {
		ch <- d
	}
}

func (c *collector) Collect(ch chan<- prometheus.Metric) {
	source := c.source()
	if source == nil {
		return
	}
	now := c.now()
	source.Each(func(s supervisor.Snapshot) { c.collectConsumer(ch, s, now) })
	c.collectProcess(ch, source)
}

func (c *collector) collectProcess(ch chan<- prometheus.Metric, source Source) {
	info := source.Info()
	p := c.process
	gauge(ch, p.build, 1, info.GetVersion())
	gauge(ch, p.bytes, float64(source.BytesInFlight()))
	counter(ch, p.hardLimits, source.HardLimitsFired())
	gauge(ch, p.store, number(info.GetStoreWritable()))
	for _, conn := range info.GetConnections() {
		gauge(ch, p.connection, number(conn.GetConnected()), conn.GetName(), conn.GetDriver())
	}
}

func (c *collector) collectConsumer(ch chan<- prometheus.Metric, s supervisor.Snapshot, now time.Time) {
	m, st := c.consumer, s.Consumer.GetStatus()
	ns, name := s.Consumer.GetSpec().GetNamespace(), s.Consumer.GetSpec().GetName()
	gauge(ch, m.state, 1, ns, name, strings.TrimPrefix(st.GetState().String(), "STATE_"))
	for _, cond := range st.GetConditions() {
		gauge(ch, m.condition, number(cond.GetStatus()), ns, name,
			strings.TrimPrefix(cond.GetType().String(), "CONDITION_TYPE_"))
	}
	gauge(ch, m.inFlight, float64(st.GetInFlight()), ns, name)
	gauge(ch, m.inFlightBytes, float64(st.GetInFlightBytes()), ns, name)
	gauge(ch, m.running, float64(st.GetRunning()), ns, name)
	gauge(ch, m.concurrency, float64(st.GetConcurrency()), ns, name)
	gauge(ch, m.oldest, st.GetOldest().AsDuration().Seconds(), ns, name)
	gauge(ch, m.bufferUse, bufferUse(s), ns, name)
	gauge(ch, m.leaked, float64(st.GetLeakedHandlers()), ns, name)
	if lag := st.GetLag(); lag != nil {
		gauge(ch, m.lag, float64(lag.GetMessages()), ns, name)
		if lag.Uncommitted != nil {
			gauge(ch, m.uncommitted, float64(lag.GetUncommitted()), ns, name)
		}
		if lag.Gap != nil {
			gauge(ch, m.gap, float64(lag.GetGap()), ns, name)
		}
		gauge(ch, m.lagAge, max(0, now.Sub(lag.GetAt().AsTime()).Seconds()), ns, name)
	}
	c.collectCounters(ch, st.GetCounters(), ns, name)
	if count, buckets := cumulative(s.Durations); count > 0 {
		ch <- prometheus.MustNewConstHistogram(m.duration, count, s.Durations.Sum.Seconds(), buckets, ns, name)
	}
}

func (c *collector) collectCounters(ch chan<- prometheus.Metric, n *supervisorv1.Counters, ns, name string) {
	m := c.consumer
	counter(ch, m.received, n.GetReceived(), ns, name)
	counter(ch, m.messages, n.GetAcked(), ns, name, "acked")
	counter(ch, m.messages, n.GetDeadLettered(), ns, name, "dead_lettered")
	counter(ch, m.messages, n.GetReturned(), ns, name, "returned")
	counter(ch, m.messages, n.GetAbandoned(), ns, name, "abandoned")
	counter(ch, m.retries, n.GetRetried(), ns, name)
	counter(ch, m.panics, n.GetPanics(), ns, name)
	counter(ch, m.late, n.GetLate(), ns, name)
}

// bufferUse is 1 when no more is asked for; a single large message may exceed it.
func bufferUse(s supervisor.Snapshot) float64 {
	st := s.Consumer.GetStatus()
	use := 0.0
	if s.MaxMessages > 0 {
		use = float64(st.GetInFlight()) / float64(s.MaxMessages)
	}
	if n := s.Consumer.GetSpec().GetMaxInFlight().GetBytes(); n > 0 {
		use = max(use, float64(st.GetInFlightBytes())/float64(n))
	}
	return use
}

// cumulative turns counts of each bucket by itself into what Prometheus wants.
func cumulative(d supervisor.Durations) (count uint64, buckets map[float64]uint64) {
	buckets = make(map[float64]uint64, len(d.Bounds))
	for i, n := range d.Counts {
		count += n
		if i < len(d.Bounds) {
			buckets[d.Bounds[i].Seconds()] = count
		}
	}
	return count, buckets
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func counter(ch chan<- prometheus.Metric, d *prometheus.Desc, v int64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
