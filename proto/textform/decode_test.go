package textform_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
)

func newSpec() proto.Message   { return new(supervisorv1.ConsumerSpec) }
func newConfig() proto.Message { return new(supervisorv1.DaemonConfig) }

const orders = `
namespace: shop
name: orders
labels: {team: payments, "a.b/c": x}
source:
  connection: main
  nats: {stream: ORDERS, filter_subjects: [orders.>, more.*], pull_max_bytes: 4MiB, manage: VERIFY}
handler:
  timeout: 1m30s
  http: {url: "http://billing.internal/orders"}
concurrency: 16
ordering: KEY
max_in_flight: {messages: 1000, bytes: 64MiB}
start: RUNNING
`

func TestDecode(t *testing.T) {
	docs, err := textform.Decode("orders.yaml", []byte(orders+"---\nname: second\n"), newSpec)
	if err != nil {
		t.Fatal(err)
	}
	want := &supervisorv1.ConsumerSpec{
		Namespace: "shop", Name: "orders",
		Labels: map[string]string{"team": "payments", "a.b/c": "x"},
		Source: &supervisorv1.Source{Connection: "main", Broker: &supervisorv1.Source_Nats{Nats: &supervisorv1.NatsSource{
			Stream: "ORDERS", FilterSubjects: []string{"orders.>", "more.*"}, PullMaxBytes: proto.Int64(4 << 20),
			Manage: supervisorv1.NatsManage_NATS_MANAGE_VERIFY,
		}}},
		Handler: &supervisorv1.Handler{
			Timeout: durationpb.New(90 * time.Second),
			Kind:    &supervisorv1.Handler_Http{Http: &supervisorv1.HttpHandler{Url: "http://billing.internal/orders"}},
		},
		Concurrency: proto.Int32(16), Ordering: supervisorv1.Ordering_ORDERING_KEY,
		MaxInFlight: &supervisorv1.MaxInFlight{Messages: proto.Int32(1000), Bytes: proto.Int64(64 << 20)},
		Start:       supervisorv1.DesiredState_DESIRED_STATE_RUNNING,
	}
	if !proto.Equal(docs[0].Message, want) {
		t.Errorf("read %s\nwant %s", prototext.Format(docs[0].Message), prototext.Format(want))
	}
	if len(docs) != 2 || !proto.Equal(docs[1].Message, &supervisorv1.ConsumerSpec{Name: "second"}) {
		t.Errorf("read %d documents, the last is %v", len(docs), docs[len(docs)-1].Message)
	}
}

// Each case is a file and every fault of it.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name, file string
		want       []string
	}{
		{"unknown field", "nam: x\nconcurency: 1\nzebra: 1\n", []string{
			`1:1: nam: unknown field; did you mean name?`,
			`2:1: concurency: unknown field; did you mean concurrency?`,
			`3:1: zebra: unknown field; here may stand namespace, name, labels, source, handler, concurrency, ordering, key, lanes, max_in_flight, retry, dead_letter, stop, start and restart`,
		}},
		{"other spelling", "maxInFlight: {}\nsource: {nats: {Stream: A, ack-wait: 1s}}", []string{
			`1:1: maxInFlight: unknown field; did you mean max_in_flight?`,
			`2:17: source.nats.Stream: unknown field; did you mean stream?`,
			`2:28: source.nats.ack-wait: unknown field; did you mean ack_wait?`,
		}},
		{"no fields there", "source: {memory: {}}\nhandler: {log: {level: INFO}, timeout: 1s, x: 1}", []string{
			`2:44: handler.x: unknown field; here may stand timeout, http, log and go`,
		}},
		{"wrong types", "name: 12\nlabels: [a]\nsource: text\nconcurrency: \"4\"\nlanes: 1.5\nstop: {soft: [1s]}\nkey: {broker: yes}", []string{
			`1:7: name: is a number; a string is expected: put it in quotes`,
			`2:9: labels: is a list; a mapping is expected: lines of "key: value"`,
			`3:9: source: is a string; a mapping is expected: lines of "key: value"`,
			`4:14: concurrency: is a string; a number is expected, without quotes`,
			`5:8: lanes: "1.5" is no plain whole number`,
			`6:14: stop.soft: is a list; a duration like "30s" is expected`,
			`7:15: key.broker: "yes" is neither true nor false`,
		}},
		{"label values", "labels:\n  a: 1.10\n  b: true\n  c:\n  d: 2024-01-01\n", []string{
			`2:6: labels["a"]: is a number; a string is expected: put it in quotes`,
			`3:6: labels["b"]: is true or false; a string is expected: put it in quotes`,
			`4:5: labels["c"]: is empty: give it a value, {} for all defaults, or remove the line`,
			`5:6: labels["d"]: is a date or time; a string is expected: put it in quotes`,
		}},
		{"numbers", "concurrency: 0x10\nlanes: 017\nmax_in_flight: {messages: 3000000000}", []string{
			`1:14: concurrency: "0x10" is no plain whole number`,
			`2:8: lanes: "017" is no plain whole number`,
			`3:27: max_in_flight.messages: 3000000000 is outside -2147483648 to 2147483647`,
		}},
		{"durations", "stop: {soft: 15, hard: 1d}\nhandler: {timeout: fast}", []string{
			`1:14: stop.soft: "15" is no duration: write a number and its unit, like "200ms", "30s" or "1m30s"`,
			`1:24: stop.hard: "1d" is no duration: write a number and its unit, like "200ms", "30s" or "1m30s"`,
			`2:20: handler.timeout: "fast" is no duration: write a number and its unit, like "200ms", "30s" or "1m30s"`,
		}},
		{"sizes", "max_in_flight: {bytes: -1MiB}\n---\nmax_in_flight: {bytes: 64mb}\n---\nmax_in_flight: {bytes: 64Mi}\n---\nmax_in_flight: {bytes: 9000000TiB}\n---\nmax_in_flight: {bytes: 1.5GiB}\n---\nmax_in_flight: {bytes: 64 MiB}\n", []string{
			`1:24: max_in_flight.bytes: "-1MiB" is negative: a size is 0 or more`,
			`3:24: max_in_flight.bytes: "64mb" is no size: did you mean 64MB?`,
			`5:24: max_in_flight.bytes: "64Mi" is no size: did you mean 64MiB?`,
			`7:24: max_in_flight.bytes: "9000000TiB" is too large: at most 9223372036854775807`,
			`9:24: max_in_flight.bytes: "1.5GiB" is no size: write a whole number of bytes, or one with its unit, like "64MiB"`,
			`11:24: max_in_flight.bytes: "64 MiB" is no size: write a whole number of bytes, or one with its unit, like "64MiB"`,
		}},
		{"enums", "ordering: key\nstart: ORDERING\nretry: {mode: RETRY_MODE_IN_PLAC}\nsource: {nats: {missing: 1, manage: UNSPECIFIED}}", []string{
			`1:11: ordering: "key" is unknown; did you mean KEY?`,
			`2:8: start: "ORDERING" is unknown; write RUNNING or STOPPED`,
			`3:15: retry.mode: "RETRY_MODE_IN_PLAC" is unknown; did you mean IN_PLACE?`,
			`4:26: source.nats.missing: "1" is unknown; write WAIT, FAIL or CREATE`,
			`4:37: source.nats.manage: "UNSPECIFIED" is unknown; write CREATE_IF_MISSING, VERIFY or NONE`,
		}},
		{"given twice", "name: a\nlabels: {x: a, x: b}\nname: b\n", []string{
			`2:16: labels["x"]: is given twice; first in line 2`,
			`3:1: name: is given twice; first in line 1`,
		}},
		{"two sources", "source:\n  connection: c\n  nats: {stream: A}\n  memory: {queue: q}\n", []string{
			`4:3: source.memory: nats in line 3 excludes it: only one of memory, nats, rabbitmq and kafka may be given`,
		}},
		{"empty", "", []string{`1:1: is empty: a document is expected`}},
		{"comment", "# nothing\n", []string{`1:1: is empty: a document is expected`}},
		{"empty document", "name: a\n---\n---\nname: b\n", []string{`2:1: an empty document: write one, or remove the ---`}},
		{"no mapping", "- name: a\n", []string{`1:1: is a list; a mapping is expected: lines of "key: value"`}},
		{"custom tags", "name: !x a\nsource: !y {}\n", []string{
			`1:7: name: is of a type that is not supported here (a tag that begins with !); a string is expected: put it in quotes`,
			`2:9: source: is of a type that is not supported here (a tag that begins with !); a mapping is expected: lines of "key: value"`,
		}},
		{"complex key", "? [a]\n: b\n", []string{`1:3: a key must be a plain word`}},
		{"merge of a word", "<<: a\n", []string{`1:5: the merge key << takes a mapping or a list of mappings`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantFaults(t, c.file, newSpec, c.want)
		})
	}
}

func TestSyntaxFaults(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"tab", "stop:\n\tsoft: 1s\n", `2:1: a tab: YAML is indented with spaces only`},
		{"tab after spaces", "stop:\n  \tsoft: 1s\n", `2:3: a tab: YAML is indented with spaces only`},
		{"not UTF-8", "name: a\nlabels: {x: \"\xff\"}\n", `2:14: byte 0xff is not UTF-8: save the file as UTF-8`},
		{"UTF-16", "\xff\xfen\x00", `1:1: byte 0xff is not UTF-8: save the file as UTF-8`},
		{"NUL", "name: a\x00b\n", `1:8: control character U+0000: remove it, or write it as an escape in double quotes`},
		{"two colons", "name: a\nstop: soft: 1s\n", `2:1: not YAML: a second ": " in one line, or a line indented too deep: put the value in quotes, or align the line`},
		{"indented too deep", "name: a\n  labels: {}\n", `2:3: not YAML: a second ": " in one line, or a line indented too deep: put the value in quotes, or align the line`},
		{"indented too little", "name: a\nstop:\n    soft: 1s\n  hard: 2s\nstart: RUNNING\n", `4:3: not YAML: this line is neither "key: value" nor indented like the lines around it`},
		{"indented too little at the end", "stop:\n  soft: 1s\n hard: 2s", `3:2: not YAML: this line is neither "key: value" nor indented like the lines around it`},
		{"brace too many", "name: a\n}\nstart: RUNNING\n", `2:1: not YAML: this line is neither "key: value" nor indented like the lines around it`},
		{"bracket never closed", "name: a\nlabels: {x: y\nstart: RUNNING\n", `3:14: not YAML: the mapping in { } needs a , or its } here`},
		{"quote never closed", "name: a\nstart: 'RUN\n", `2:1: not YAML: this quoted text is never closed`},
		{"key without colon", "name: a\nstart\nlanes: 2\n", `2:1: not YAML: a key needs ": " and its value`},
		{"reserved character", "name: @a\n", `1:1: not YAML: a value cannot begin with this character: put it in quotes`},
		{"unknown anchor", "name: a\nstart: *hunter2\n", `2:8: this alias has no anchor above it; a value that begins with * must be in quotes`},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantFaults(t, c.file, newSpec, []string{c.want})
		})
	}
}

// A syntax fault ends the file, but does not hide what is wrong above it.
func TestSyntaxFaultAfterOthers(t *testing.T) {
	wantFaults(t, "nam: a\n---\nname: [a\n", newSpec, []string{
		`1:1: nam: unknown field; did you mean name?`,
		`3:8: not YAML: the list in [ ] needs a , or its ] here`,
	})
}

func TestSecretsAreNeverRepeated(t *testing.T) {
	const canary = "hunter2"
	for _, auth := range []string{
		"{password: hunter2}", "{password:hunter2}", `{password: "hunter2"}`, "{password: [hunter2]}", "{password: {hunter2: x}}",
		"{password: !hunter2 hunter2}", "{password: *hunter2}", "{password: env:hunter2-x}", "{token: &x hunter2, password: *x}",
		"{password: 'hunter2}", "{password: @hunter2}", "hunter2", "{<<: hunter2}", "{pasword: hunter2}", "{password: hunter2, password: hunter2}",
		"{password: |\n  hunter2\n  }", "{\"password\": \"hunter2\\q\"}", "{password: 'env:A\n\nhunter2'}",
	} {
		file := "connections:\n- name: a\n  nats:\n    auth: " + auth + "\n"
		_, err := textform.Decode("f.yaml", []byte(file), newConfig)
		if err == nil {
			t.Errorf("%s is accepted", auth)
		} else if strings.Contains(err.Error(), canary) {
			t.Errorf("%s: the fault repeats the secret:\n%s", auth, err)
		}
	}
	wantFaults(t, "connections: [{nats: {auth: {password: hunter2}}}]", newConfig, []string{
		"1:40: connections[0].nats.auth.password: holds a secret: write env:NAME or file:PATH, never the secret itself",
	})
	if _, err := textform.Decode("f", []byte("connections: [{nats: {auth: {password: 'env:NATS_PW', token: file:/run/t}}}]"), newConfig); err != nil {
		t.Error(err)
	}
}

func TestAliasesAndMergeKeys(t *testing.T) {
	docs, err := textform.Decode("f", []byte(`
retry: &r
  backoff: &b {initial: 1s, max: 9s}
restart:
  <<: *r
  backoff: {<<: [*b, {max: 7s}], initial: 2s}
name: &n orders
labels: {*n : *n}
`), newSpec)
	if err != nil {
		t.Fatal(err)
	}
	want := &supervisorv1.ConsumerSpec{
		Name: "orders", Labels: map[string]string{"orders": "orders"},
		Retry:   &supervisorv1.Retry{Backoff: &supervisorv1.Backoff{Initial: durationpb.New(time.Second), Max: durationpb.New(9 * time.Second)}},
		Restart: &supervisorv1.Restart{Backoff: &supervisorv1.Backoff{Initial: durationpb.New(2 * time.Second), Max: durationpb.New(9 * time.Second)}},
	}
	if !proto.Equal(docs[0].Message, want) {
		t.Errorf("read %s\nwant %s", prototext.Format(docs[0].Message), prototext.Format(want))
	}
}

// Files that expand without end are refused, and quickly.
func TestBombs(t *testing.T) {
	wide := "[" + strings.Repeat("*a,", 200) + "]"
	const tooMany = "the aliases of this document expand to more than 10000 values: write them out"
	for name, c := range map[string]struct{ file, want string }{
		"lists": {"connections:\n- name: &x x\n  namespaces: &a [" + strings.Repeat("*x,", 500) + "]\n" +
			strings.Repeat("- {namespaces: *a}\n", 100), tooMany},
		"messages": {"connections:\n- &a {name: x, namespaces: [" + strings.Repeat("x,", 200) + "]}\n- *a\n" + strings.Repeat("- *a\n", 100), tooMany},
		"merges": {"connections:\n- &a {name: x, nats: {}}\n- &b {<<: " + wide + "}\n- &c {<<: " + strings.ReplaceAll(wide, "*a", "*b") +
			"}\n- {<<: " + strings.ReplaceAll(wide, "*a", "*c") + "}\n" + strings.Repeat("- *c\n", 100), tooMany},
		"unknown fields": {"connections:\n- &a {" + fields(200) + "}\n" + strings.Repeat("- *a\n", 200), tooMany},
		"itself":         {"connections: &a [*a]\n", "is a list; a mapping is expected"},
		"merged itself":  {"connections:\n- &a {<<: *a, name: x, nats: *a}\n", "connections[0].nats.nats: unknown field"},
	} {
		t.Run(name, func(t *testing.T) {
			docs, err := textform.Decode("f", []byte(c.file), newConfig)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("want %q, got %.2000v", c.want, err)
			}
			for _, d := range docs {
				d.Locate("connections[3].name.x.y")
			}
		})
	}
}

func fields(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat("z", 1+i%7) + strings.Repeat("q", i/7) + ": 1, ")
	}
	return b.String()
}

func TestLocate(t *testing.T) {
	doc, err := textform.DecodeOne("f", []byte(`name: orders
labels:
  team: payments
  "a.b/c": x
source:
  nats:
    stream: ORDERS
    filter_subjects:
    - a
    - b
stop: &s
  soft: 5s
handler: {log: {}, timeout: 1s}
restart:
  backoff: {<<: {initial: 3s},
    max: 4s}
`), new(supervisorv1.ConsumerSpec))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][2]int{
		"":                                {1, 1},
		"name":                            {1, 7},
		"labels":                          {2, 1},
		`labels["team"]`:                  {3, 9},
		`labels["a.b/c"]`:                 {4, 12},
		`labels["missing"]`:               {2, 1},
		"labels.team":                     {3, 9},
		"source.connection":               {5, 1},
		"source.nats.filter_subjects":     {8, 5},
		"source.nats.filter_subjects[1]":  {10, 7},
		"source.nats.filter_subjects[7]":  {8, 5},
		"source.nats.filter_subjects[1":   {10, 7},
		"source.nats.missing.deeper[3].x": {6, 3},
		"stop.soft":                       {12, 9},
		"handler.log.level":               {13, 11},
		"restart.backoff.initial":         {15, 27},
		"restart.backoff.max":             {16, 10},
		"nowhere":                         {1, 1},
		"[":                               {1, 1},
		`labels["team`:                    {2, 1},
	} {
		if line, column := doc.Locate(path); [2]int{line, column} != want {
			t.Errorf("%q is at %d:%d, want %d:%d", path, line, column, want[0], want[1])
		}
	}
}

// Faults found later are placed too, but for those that only follow from one
// that decoding found.
func TestDocumentFault(t *testing.T) {
	docs, err := textform.Decode("f", []byte("handlr: {}\nstop: {soft: x, hard: 5s}\nlabels: {a: 1}\n"), newSpec)
	if err == nil {
		t.Fatal("accepted")
	}
	for path, want := range map[string]bool{
		"handler": false, "stop.soft": false, "stop": false, "stop.hard": true, "labels": false,
		`labels["b"]`: true, "name": true, "handler.timeout": false, "handle": true,
	} {
		if f, ok := docs[0].Fault(path, "m"); ok != want {
			t.Errorf("fault at %s: %v, %t, want %t", path, f, ok, want)
		}
	}
	if f, _ := docs[0].Fault("stop.hard", "is too short"); f.Error() != "f:2:23: stop.hard: is too short" {
		t.Errorf("got %v", f)
	}
}

func TestDecodeOne(t *testing.T) {
	_, err := textform.DecodeOne("f", []byte("connections: []\n---\nlog: {}\n"), new(supervisorv1.DaemonConfig))
	if err == nil || err.Error() != "f:3:1: a second document: this file holds exactly one" {
		t.Errorf("got %v", err)
	}
}

func wantFaults(t *testing.T, file string, newMessage func() proto.Message, want []string) {
	t.Helper()
	_, err := textform.Decode("f.yaml", []byte(file), newMessage)
	var faults textform.Faults
	if !errors.As(err, &faults) {
		t.Fatalf("got %v, want faults", err)
	}
	got := strings.Split(faults.Error(), "\n")
	for i := range got {
		got[i] = strings.TrimPrefix(got[i], "f.yaml:")
	}
	for i := range max(len(got), len(want)) {
		g, w := "", ""
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("fault %d\n got %s\nwant %s", i, g, w)
		}
	}
}
