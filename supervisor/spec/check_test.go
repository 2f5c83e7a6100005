package spec_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
)

func equal(a, b any) bool { return reflect.DeepEqual(a, b) }

// Each case adds to, or replaces lines of, the least spec; these are all faults.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name, yaml string
		want       []string
	}{
		{"nothing", "{}", []string{
			"name: is missing: a-z, 0-9 and -, at most 63 characters",
			"source: is missing: name a connection and one of memory, nats",
			"handler: is missing: add one of http, log",
		}},
		{"empty parts", "name: a\nsource: {}\nhandler: {}", []string{
			"source.connection: is missing: name one of the daemon's connections: closed, local, main",
			"source: has no broker: add one of memory, nats",
			"handler: is missing: add one of http, log",
		}},
		{"unknown connection", "source: {connection: \"x\\ny\", nats: {stream: A}}", []string{
			`source.connection: there is no connection "x\ny"; the daemon has closed, local, main`,
		}},
		{"connection of others", "source: {connection: closed, nats: {stream: A}}", []string{
			`source.connection: namespace "default" may not use connection "closed": its namespaces in the daemon's configuration do not name it`,
		}},
		{"other broker", "source: {connection: local, nats: {stream: A}}", []string{
			"source.nats: connection \"local\" is of broker memory: write source.memory, or name another connection",
		}},
		{"unknown handler", "handler: {go: {name: f}}", []string{"handler.go: this program has no such handler; it has http, log"}},
		{"handler's own", "handler: {log: {level: LOUD}}", []string{"handler.log.level: is no level"}},
		{"handler.timeout too short", "handler: {timeout: 9ms, log: {}}", []string{"handler.timeout: 9ms is too short: at least 10ms"}},
		{"handler.timeout too long", "handler: {timeout: 24h0m1s, log: {}}", []string{"handler.timeout: 24h0m1s is too long: at most 24h"}},
		{"handler.timeout zero", "handler: {timeout: 0s, log: {}}", []string{"handler.timeout: must be more than 0: leave it out for the default of 30s"}},
		{"concurrency 0", "concurrency: 0", []string{"concurrency: 0 is too small: at least 1"}},
		{"concurrency -1", "concurrency: -1", []string{"concurrency: -1 is too small: at least 1"}},
		{"concurrency too large", "concurrency: 10001", []string{"concurrency: 10001 is too large: at most 10000"}},
		{"nothing in flight", "max_in_flight: {messages: 0, bytes: 0}", []string{
			"max_in_flight.messages: 0 is too small: at least 1",
			"max_in_flight.bytes: must be more than 0: leave it out for the default of 64MiB",
		}},
		{"fewer than slots", "concurrency: 16\nmax_in_flight: {messages: 15}", []string{
			"max_in_flight.messages: 15 is less than concurrency, which is 16: slots would stay idle",
		}},
		{"too many", "max_in_flight: {messages: 1000001}", []string{"max_in_flight.messages: 1000001 is too large: at most 1000000"}},
		{"soft > hard", "stop: {soft: 26s, hard: 25s}", []string{"stop.soft: 26s is longer than hard, which is 25s"}},
		{"soft > default", "stop: {soft: 26s}", []string{"stop.soft: 26s is longer than hard, which is 25s by default: set that as well"}},
		{"hard < default", "stop: {hard: 5s}", []string{"stop.hard: 5s is shorter than soft, which is 15s by default: set that as well"}},
		{"stop zero", "stop: {soft: 0s, hard: -5s}", []string{
			"stop.soft: must be more than 0: leave it out for the default of 15s",
			"stop.hard: must be more than 0: leave it out for the default of 25s",
		}},
		{"hard too long", "stop: {hard: 25h}", []string{"stop.hard: 25h is too long: at most 24h"}},
		{"backoff", "retry: {attempts: 0, backoff: {initial: 2s, max: 1s}}\nrestart: {attempts: -1, backoff: {initial: 31s}}", []string{
			"retry.attempts: 0 is too small: at least 1",
			"retry.backoff.initial: 2s is longer than max, which is 1s",
			"restart.attempts: -1 is too small: at least 1",
			"restart.backoff.initial: 31s is longer than max, which is 30s by default: set that as well",
		}},
		{"key and lanes without KEY", "key: {header: a}\nlanes: 4", []string{
			"key: has no meaning without ordering KEY: write ordering: KEY, or leave it out",
			"lanes: has no meaning without ordering KEY: write ordering: KEY, or leave it out",
		}},
		{"empty key", "ordering: KEY\nkey: {}\nlanes: 0", []string{
			"lanes: 0 is too small: at least 1",
			"key: is empty: write header: NAME or broker: true, or leave it out",
		}},
		{"empty header", "ordering: KEY\nkey: {header: \"\"}", []string{"key.header: is empty: name a header, or leave key out for the broker's own key"}},
		{"broker: false", "ordering: KEY\nkey: {broker: false}\nlanes: 65537", []string{
			"lanes: 65537 is too large: at most 65536",
			"key.broker: must be true, or name a header instead",
		}},
		{"dead_letter", "dead_letter: {}", []string{"dead_letter: names no target: add a subject or a topic, or leave it out"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := read(t, over(least, c.yaml))
			_, faults := spec.Check(s, env())
			wantFaults(t, faults, c.want)
		})
	}
}

// over replaces the lines of base whose fields more has; "{}" and a name
// replace all.
func over(base, more string) string {
	if more == "{}" || strings.HasPrefix(more, "name:") {
		return more
	}
	for line := range strings.SplitSeq(more, "\n") {
		field, _, _ := strings.Cut(line, ":")
		var kept []string
		for old := range strings.SplitSeq(base, "\n") {
			if !strings.HasPrefix(old, field+":") {
				kept = append(kept, old)
			}
		}
		base = strings.Join(kept, "\n")
	}
	return base + more
}

// The driver's faults pass through, in the words of the driver.
func TestDriverFaults(t *testing.T) {
	for yaml, path := range map[string]string{
		"ordering: PARTITION": "ordering",
		"source: {connection: main, nats: {stream: \"a b\"}}":                "source.nats.stream",
		"source: {connection: main, nats: {stream: A, ack_wait: 1ms}}":       "source.nats.ack_wait",
		"source: {connection: main, nats: {stream: A, max_ack_pending: 99}}": "source.nats.max_ack_pending",
		"dead_letter: {topic: t}":                                            "dead_letter",
	} {
		_, faults := spec.Check(read(t, over(least, yaml)), env())
		if len(faults) != 1 || faults[0].Path != path {
			t.Errorf("%s: %v, want one fault at %s", yaml, faults, path)
		}
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, name := range []string{"a", "0", "a-b", "9-9", long} {
		if !spec.IsName(name) {
			t.Errorf("%q is refused", name)
		}
		check(t, over(least, "namespace: \""+name+"\""))
	}
	for _, name := range []string{"-a", "a-", "A", "a_b", "a.b", "../etc", "a/b", "a\x00", "a b", "é", "ａ", "а", "*", long + "a", "a\n"} {
		if spec.IsName(name) {
			t.Errorf("%q is accepted", name)
		}
		s := read(t, least)
		s.Name, s.Namespace = name, name
		_, faults := spec.Check(s, env())
		got := make([]string, 0, len(faults))
		for _, f := range faults {
			got = append(got, f.Path)
			if strings.Contains(f.Message, "\x00") || strings.Contains(f.Message, "\n") {
				t.Errorf("%q is repeated as it is", name)
			}
		}
		wantSame(t, got, []string{"namespace", "name"})
	}
}

func TestLabels(t *testing.T) {
	s := read(t, least)
	s.Labels = map[string]string{"a": "", "a.b/c-d_e": "X.y_z-1", strings.Repeat("k", 63): strings.Repeat("v", 63)}
	if _, faults := spec.Check(s, env()); len(faults) > 0 {
		t.Errorf("refused: %v", faults)
	}
	for key, value := range map[string]string{
		"": "v", "a b": "v", "a=b": "v", "!a": "v", "a,b": "v", "-a": "v", "a\x00": "v", strings.Repeat("k", 64): "v", "é": "v",
		"k": "a b", "k2": "a,b", "k3": "-v", "k4": strings.Repeat("v", 64), "k5": "a/b", "k6": "a\n",
	} {
		s.Labels = map[string]string{key: value}
		if _, faults := spec.Check(s, env()); len(faults) != 1 || !strings.HasPrefix(faults[0].Path, "labels[") {
			t.Errorf("%q: %q: %v", key, value, faults)
		}
	}
	s.Labels = map[string]string{}
	for i := range 65 {
		s.Labels[fmt.Sprint("k", i)] = "v"
	}
	_, faults := spec.Check(s, env())
	wantFaults(t, faults, []string{"labels: has 65 entries: at most 64"})
}
