package spec_test

import (
	"fmt"
	"testing"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
)

func TestDiff(t *testing.T) {
	before := `
name: orders
labels: {team: payments, tier: gold}
source: {connection: main, nats: {stream: ORDERS, filter_subjects: [a, b]}}
handler: {timeout: 10s, http: {url: "http://a", headers: {x: "1", y: ""}}}
concurrency: 16
ordering: KEY
retry: {attempts: 5, backoff: {max: 30s}}
start: RUNNING
`
	for _, c := range []struct {
		name, after string
		want        []string
	}{
		{"same", before, nil},
		{"all", `
name: orders
namespace: shop
labels: {tier: silver, "a/b": ""}
source: {connection: main, memory: {}}
handler: {timeout: 1m30s, http: {url: "http://a", headers: {y: z}}}
concurrency: 0
max_in_flight: {bytes: 64MiB}
retry: {backoff: {initial: 1s, max: 31s}}
dead_letter: {}
start: STOPPED
`, []string{
			`namespace restart "" -> "shop"`,
			`labels["a/b"] hot "" -> "\"\""`,
			`labels["team"] hot "payments" -> ""`,
			`labels["tier"] hot "gold" -> "silver"`,
			`source.memory restart "" -> "{}"`,
			`source.nats.stream restart "ORDERS" -> ""`,
			`source.nats.filter_subjects restart "[a, b]" -> ""`,
			`handler.timeout hot "10s" -> "1m30s"`,
			`handler.http.headers["x"] restart "1" -> ""`,
			`handler.http.headers["y"] restart "\"\"" -> "z"`,
			`concurrency hot "16" -> "0"`,
			`ordering restart "KEY" -> ""`,
			`max_in_flight.bytes restart "" -> "64MiB"`,
			`retry.attempts hot "5" -> ""`,
			`retry.backoff.initial hot "" -> "1s"`,
			`retry.backoff.max hot "30s" -> "31s"`,
			`dead_letter restart "" -> "{}"`,
			`start hot "RUNNING" -> "STOPPED"`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantSame(t, lines(spec.Diff(read(t, before), read(t, c.after))), c.want)
		})
	}
	wantSame(t, lines(spec.Diff(nil, read(t, "name: a"))), []string{`name restart "" -> "a"`})
	wantSame(t, lines(spec.Diff(read(t, "name: a"), nil)), []string{`name restart "a" -> ""`})
}

// Writing a default down is no change.
func TestDiffOfDefaults(t *testing.T) {
	full := check(t, least).Full
	again, faults := spec.Check(full, env())
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	wantSame(t, lines(spec.Diff(full, again.Full)), nil)
}

func lines(changes []*pb.FieldChange) []string {
	out := make([]string, 0, len(changes))
	for _, c := range changes {
		applies := "restart"
		if c.GetHot() {
			applies = "hot"
		}
		out = append(out, fmt.Sprintf("%s %s %q -> %q", c.GetPath(), applies, c.GetBefore(), c.GetAfter()))
	}
	return out
}
