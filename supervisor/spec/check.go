package spec

import (
	"maps"
	"math"
	"regexp"
	"slices"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/seed-111f5b8e/supervisord/brokers"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
)

// Defaults that the schema's comments promise.
const (
	defaultNamespace       = "default"
	defaultConcurrency     = 1
	defaultMaxMessages     = 100
	defaultMaxBytes        = 64 << 20
	defaultAttempts        = 5
	defaultRestartAttempts = 20
	defaultInitial         = 200 * time.Millisecond
	defaultMaxBackoff      = 30 * time.Second
	defaultTimeout         = 30 * time.Second
	defaultSoft            = 15 * time.Second
	defaultHard            = 25 * time.Second
	lanesPerSlot, minLanes = 4, 16
)

// Bounds.
const (
	maxName        = 63
	maxLabels      = 64
	maxConcurrency = 10_000
	maxMessages    = 1_000_000
	maxLanes       = 65_536
	minTimeout     = 10 * time.Millisecond
	day            = 24 * time.Hour
)

var (
	nameForm       = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	labelKeyForm   = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?$`)
	labelValueForm = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`)
)

// checker gathers faults.
type checker struct{ faults []brokers.Fault }

func (c *checker) faultf(path, format string, args ...any) {
	c.faults = append(c.faults, brokers.Faultf(path, format, args...))
}

func (c *checker) has(path string) bool {
	return slices.ContainsFunc(c.faults, func(f brokers.Fault) bool { return f.Path == path })
}

// IsName tells whether s may name a namespace, consumer, connection or hold: a-z,
// 0-9 and -, beginning and ending with a letter or digit, at most 63 bytes.
func IsName(s string) bool { return len(s) <= maxName && nameForm.MatchString(s) }

// name gives a name, or a stand-in for a refused one.
func (c *checker) name(path, s string) string {
	switch {
	case s == "":
		c.faultf(path, "is missing: a-z, 0-9 and -, at most %d characters", maxName)
	case len(s) > maxName:
		c.faultf(path, "is longer than %d characters", maxName)
	case !IsName(s):
		c.faultf(path, "%q is no name: write a-z, 0-9 and -, beginning and ending with a letter or digit", s)
	default:
		return s
	}
	return "refused"
}

// duration gives a duration between low and high, or its default.
func (c *checker) duration(path string, d *durationpb.Duration, fallback, low, high time.Duration) time.Duration {
	if d == nil {
		return fallback
	}
	switch v := d.AsDuration(); {
	case v <= 0:
		c.faultf(path, "must be more than 0: leave it out for the default of %s", textform.ExactDuration(fallback))
	case v < low:
		c.faultf(path, "%s is too short: at least %s", textform.ExactDuration(v), textform.ExactDuration(low))
	case v > high:
		c.faultf(path, "%s is too long: at most %s", textform.ExactDuration(v), textform.ExactDuration(high))
	default:
		return v
	}
	return fallback
}

// span is two durations of which the first must not be the longer one.
type span struct {
	low, high string
	// The defaults of both.
	lowest, highest time.Duration
}

func backoffSpan() span {
	return span{low: "initial", high: "max", lowest: defaultInitial, highest: defaultMaxBackoff}
}

func stopSpan() span {
	return span{low: "soft", high: "hard", lowest: defaultSoft, highest: defaultHard}
}

// check gives both durations, and blames the order on one that was written.
func (s span) check(c *checker, path string, low, high *durationpb.Duration) (time.Duration, time.Duration) {
	before := len(c.faults)
	l := c.duration(path+"."+s.low, low, s.lowest, 0, day)
	h := c.duration(path+"."+s.high, high, s.highest, 0, day)
	switch {
	case l <= h || len(c.faults) > before:
		return l, h
	case low == nil:
		c.faultf(path+"."+s.high, "%s is shorter than %s, which is %s by default: set that as well", textform.ExactDuration(h), s.low, textform.ExactDuration(l))
	case high == nil:
		c.faultf(path+"."+s.low, "%s is longer than %s, which is %s by default: set that as well", textform.ExactDuration(l), s.high, textform.ExactDuration(h))
	default:
		c.faultf(path+"."+s.low, "%s is longer than %s, which is %s", textform.ExactDuration(l), s.high, textform.ExactDuration(h))
	}
	return s.lowest, s.highest
}

// count gives a whole number from 1 to high, or its default.
func (c *checker) count(path string, n *int32, fallback, high int32) int32 {
	switch {
	case n == nil:
		return fallback
	case *n < 1:
		c.faultf(path, "%d is too small: at least 1", *n)
	case *n > high:
		c.faultf(path, "%d is too large: at most %d", *n, high)
	default:
		return *n
	}
	return fallback
}

func (c *checker) bytes(path string, n *int64, fallback int64) int64 {
	switch {
	case n == nil:
		return fallback
	case *n <= 0:
		c.faultf(path, "must be more than 0: leave it out for the default of %s", textform.ExactSize(fallback))
		return fallback
	}
	return *n
}

func (c *checker) identity(out *Consumer) {
	s := out.Full
	if s.GetNamespace() == "" {
		s.Namespace = defaultNamespace
	}
	s.Namespace = c.name("namespace", s.GetNamespace())
	s.Name = c.name("name", s.GetName())
	c.labels(s.GetLabels())
	out.Namespace, out.Name, out.Labels = s.GetNamespace(), s.GetName(), s.GetLabels()
}

func (c *checker) labels(labels map[string]string) {
	if len(labels) > maxLabels {
		c.faultf("labels", "has %d entries: at most %d", len(labels), maxLabels)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		value, path := labels[key], textform.KeyPath("labels", clip(key))
		switch {
		case len(key) > maxName || !labelKeyForm.MatchString(key):
			c.faultf(path, "the key must be letters, digits, -, _, . and /, beginning and ending with a letter or digit, at most %d", maxName)
		case len(value) > maxName || !labelValueForm.MatchString(value):
			c.faultf(path, "%q is no label: write letters, digits, -, _ and ., beginning and ending with a letter or digit, at most %d", clip(value), maxName)
		}
	}
}

// core checks what does not depend on broker and handler, and fills it in.
func (c *checker) core(out *Consumer) {
	s := out.Full
	concurrency := c.count("concurrency", s.Concurrency, defaultConcurrency, maxConcurrency)
	s.Concurrency, out.Concurrency = &concurrency, int(concurrency)
	c.inFlight(out, concurrency)
	c.order(out, concurrency)
	c.retry(out)
	c.restart(out)
	c.stop(out)
	if s.GetHandler() == nil {
		s.Handler = &pb.Handler{}
	}
	out.HandlerTimeout = c.duration("handler.timeout", s.GetHandler().GetTimeout(), defaultTimeout, minTimeout, day)
	s.Handler.Timeout = durationpb.New(out.HandlerTimeout)
	if d := s.GetDeadLetter(); d != nil && memberOf(d, "target") == "" {
		c.faultf("dead_letter", "names no target: add a subject or a topic, or leave it out")
	}
	if s.GetStart() == pb.DesiredState_DESIRED_STATE_UNSPECIFIED {
		s.Start = pb.DesiredState_DESIRED_STATE_RUNNING
	}
	out.Start = s.GetStart()
}

func (c *checker) inFlight(out *Consumer, concurrency int32) {
	const path = "max_in_flight.messages"
	in := out.Full.GetMaxInFlight()
	if in == nil {
		in = &pb.MaxInFlight{}
	}
	fallback := max(defaultMaxMessages, concurrency)
	messages := c.count(path, in.Messages, fallback, maxMessages)
	if messages < concurrency {
		c.faultf(path, "%d is less than concurrency, which is %d: slots would stay idle", messages, concurrency)
		messages = fallback
	}
	out.MaxMessages = int(messages)
	out.MaxBytes = c.bytes("max_in_flight.bytes", in.Bytes, defaultMaxBytes)
	out.Full.MaxInFlight = &pb.MaxInFlight{Messages: &messages, Bytes: &out.MaxBytes}
}

// order checks ordering, and key and lanes with it.
func (c *checker) order(out *Consumer, concurrency int32) {
	s := out.Full
	if s.GetOrdering() == pb.Ordering_ORDERING_UNSPECIFIED {
		s.Ordering = pb.Ordering_ORDERING_NONE
	}
	out.Ordering = s.GetOrdering()
	if out.Ordering != pb.Ordering_ORDERING_KEY {
		const message = "has no meaning without ordering KEY: write ordering: KEY, or leave it out"
		if s.GetKey() != nil {
			c.faultf("key", message)
		}
		if s.Lanes != nil {
			c.faultf("lanes", message)
		}
		s.Key, s.Lanes = nil, nil
		return
	}
	lanes := c.count("lanes", s.Lanes, max(lanesPerSlot*concurrency, minLanes), maxLanes)
	s.Lanes, out.Lanes = &lanes, int(lanes)
	if s.GetKey() == nil {
		s.Key = &pb.LaneKey{From: &pb.LaneKey_Broker{Broker: true}}
	}
	switch from := s.GetKey().GetFrom().(type) {
	case *pb.LaneKey_Header:
		if out.KeyHeader = from.Header; from.Header == "" {
			c.faultf("key.header", "is empty: name a header, or leave key out for the broker's own key")
		}
	case *pb.LaneKey_Broker:
		if !from.Broker {
			c.faultf("key.broker", "must be true, or name a header instead")
		}
	default:
		c.faultf("key", "is empty: write header: NAME or broker: true, or leave it out")
	}
}

func (c *checker) retry(out *Consumer) {
	in := out.Full.GetRetry()
	if in == nil {
		in = &pb.Retry{}
	}
	mode := in.GetMode()
	if mode == pb.RetryMode_RETRY_MODE_UNSPECIFIED {
		mode = pb.RetryMode_RETRY_MODE_IN_PLACE
	}
	attempts := c.count("retry.attempts", in.Attempts, defaultAttempts, math.MaxInt32)
	backoff := c.backoff("retry.backoff", in.GetBackoff())
	out.Attempts, out.Backoff = int(attempts), backoff
	out.Full.Retry = &pb.Retry{Mode: mode, Attempts: &attempts, Backoff: backoff.written()}
}

func (c *checker) restart(out *Consumer) {
	in := out.Full.GetRestart()
	if in == nil {
		in = &pb.Restart{}
	}
	attempts := c.count("restart.attempts", in.Attempts, defaultRestartAttempts, math.MaxInt32)
	backoff := c.backoff("restart.backoff", in.GetBackoff())
	out.RestartAttempts, out.RestartBackoff = int(attempts), backoff
	out.Full.Restart = &pb.Restart{Attempts: &attempts, Backoff: backoff.written()}
}

func (c *checker) backoff(path string, b *pb.Backoff) Backoff {
	low, high := backoffSpan().check(c, path, b.GetInitial(), b.GetMax())
	return Backoff{Initial: low, Max: high}
}

func (b Backoff) written() *pb.Backoff {
	return &pb.Backoff{Initial: durationpb.New(b.Initial), Max: durationpb.New(b.Max)}
}

func (c *checker) stop(out *Consumer) {
	s := out.Full
	out.Soft, out.Hard = stopSpan().check(c, "stop", s.GetStop().GetSoft(), s.GetStop().GetHard())
	s.Stop = &pb.Stop{Soft: durationpb.New(out.Soft), Hard: durationpb.New(out.Hard)}
}

// clip shortens what is repeated from a spec.
func clip(s string) string {
	if utf8.RuneCountInString(s) <= maxName {
		return s
	}
	return string([]rune(s)[:maxName]) + "..."
}
