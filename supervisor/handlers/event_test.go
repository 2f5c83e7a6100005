package handlers

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-111f5b8e/supervisord/supervisor"
	"golang.org/x/net/http/httpguts"
	"pgregory.net/rapid"
)

const source = "/supervisord/shop/orders"

// published is a broker's time in another zone than UTC.
func published() time.Time {
	return time.Date(2026, 1, 2, 3, 4, 5, 6000, time.FixedZone("", 3600))
}

func TestEventHeader(t *testing.T) {
	// Of each request, unless a case says otherwise.
	base := map[string]string{
		"Content-Type": "application/octet-stream", "Ce-Specversion": "1.0", "Ce-Id": "ORDERS:7",
		"Ce-Source": source, "Ce-Type": "message", "Ce-Subject": "orders.new",
		"Ce-Attempt": "1", "Ce-Redelivered": "0",
	}
	for _, c := range []struct {
		name    string
		change  func(*supervisor.Message)
		headers headers
		// want beside base; "" takes away.
		want map[string]string
	}{
		{"plain", nil, nil, nil},
		{"no headers at all", func(m *supervisor.Message) { m.Headers = nil }, nil, nil},
		{
			"time and key", func(m *supervisor.Message) { m.Published = published(); m.Key = []byte("key é") }, nil,
			map[string]string{"Ce-Time": "2026-01-02T02:04:05.000006Z", "Ce-Partitionkey": "key%20%C3%A9"},
		},
		{
			"binary key", func(m *supervisor.Message) { m.Key = []byte{0xff, 0} }, nil,
			map[string]string{"Ce-Droppedheaders": "1"},
		},
		{
			"kafka names", nil,
			headers{{"ce_id", "a b"}, {"ce_type", "t"}, {"ce_source", "/s"}, {"ce_specversion", "1.0"}, {"content-type", "text/plain"}},
			map[string]string{"Ce-Id": "a%20b", "Ce-Type": "t", "Ce-Source": "/s", "Content-Type": "text/plain"},
		},
		{
			"amqp names", nil,
			headers{{"cloudEvents:id", "1"}, {"cloudEvents_type", "t"}, {"CLOUDEVENTS_myext", "50%"}},
			map[string]string{"Ce-Id": "1", "Ce-Type": "t", "Ce-Myext": "50%25"},
		},
		{
			"nats names are encoded", nil,
			headers{{"ce-id", "a%20b"}, {"Ce-Myext", "Euro%20%E2%82%AC"}, {"ce-raw", "50%"}},
			map[string]string{"Ce-Id": "a%20b", "Ce-Myext": "Euro%20%E2%82%AC", "Ce-Raw": "50%25"},
		},
		{
			"an event decoded to control characters", nil,
			headers{{"ce-myext", "a%0D%0Ab"}},
			map[string]string{"Ce-Droppedheaders": "1"},
		},
		{
			"an attribute twice", nil,
			headers{{"ce-type", "a"}, {"ce_type", "b"}},
			map[string]string{"Ce-Type": "a", "Ce-Droppedheaders": "1"},
		},
		{"attributes of an earlier hop", nil, headers{{"ce-attempt", "9"}, {"ce_redelivered", "9"}, {"ce-droppedheaders", "9"}}, nil},
		{
			"bad attribute names", nil,
			headers{{"ce-my-ext", "1"}, {"ce_é", "1"}, {"ce-", "1"}},
			map[string]string{"Ce-Droppedheaders": "2", "Message-Header-Ce-": "1"},
		},
		{"empty attributes", nil, headers{{"ce-id", ""}, {"ce-source", ""}, {"Content-Type", ""}}, nil},
		{
			"structured mode", func(m *supervisor.Message) { m.Published = published() },
			headers{{"Content-Type", "application/cloudevents+json; charset=UTF-8"}},
			map[string]string{"Content-Type": "application/cloudevents+json; charset=UTF-8", "Ce-Specversion": "", "Ce-Id": "", "Ce-Source": "", "Ce-Type": "", "Ce-Subject": ""},
		},
		{
			"datacontenttype", nil,
			headers{{"ce_datacontenttype", "application/json"}},
			map[string]string{"Content-Type": "application/json"},
		},
		{
			"content type with a line break", nil,
			headers{{"Content-Type", "text/plain\r\nX: y"}},
			map[string]string{"Ce-Droppedheaders": "1"},
		},
		{
			"trace context", nil,
			headers{{"traceparent", "00-ab-cd-01"}, {"Tracestate", "a=b, c=d"}},
			map[string]string{"Traceparent": "00-ab-cd-01", "Tracestate": "a=b, c=d"},
		},
		{
			"a request's own names", nil,
			headers{{"Host", "evil"}, {"content-length", "0"}, {"Transfer-Encoding", "chunked"}, {"Cookie", "a=b"}},
			map[string]string{"Message-Header-Host": "evil", "Message-Header-Content-Length": "0", "Message-Header-Transfer-Encoding": "chunked", "Message-Header-Cookie": "a=b"},
		},
		{
			"hostile", nil,
			headers{{"a\x00b", "1"}, {"", "1"}, {"X: y\r\nZ", "1"}, {"N", "a\x00b"}, {"U", "\xff\xfe"}, {"L", "a\r\nb"}, {"Ok", `a "b"`}},
			map[string]string{"Ce-Droppedheaders": "6", "Message-Header-Ok": "a%20%22b%22"},
		},
		{
			"id with a NUL", func(m *supervisor.Message) { m.Name = "a\x00b" }, nil,
			map[string]string{"Ce-Id": "sha256-59b271ae1bbcb1d31d41929817f4b16fb439eb4f31520b5ad1d5ce98920a7138"},
		},
		{
			"huge subject", func(m *supervisor.Message) { m.Subject = strings.Repeat("s", maxHeaderBytes) }, nil,
			map[string]string{"Ce-Subject": "", "Ce-Droppedheaders": "1"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := message()
			m.Headers = c.headers
			if c.change != nil {
				c.change(m)
			}
			want := http.Header{}
			for _, set := range []map[string]string{base, c.want} {
				for k, v := range set {
					want.Set(k, v)
				}
			}
			for k := range want {
				if want.Get(k) == "" {
					want.Del(k)
				}
			}
			got, _ := eventHeader(m, source)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
		})
	}
}

func TestEventHeaderOf10000Keys(t *testing.T) {
	var many headers
	for i := range 10000 {
		many = append(many, [2]string{fmt.Sprintf("k%d", i), strings.Repeat("v", i%100)})
	}
	// Attributes are served first, wherever they stand.
	many = append(many, [2]string{"ce-type", "last"})
	m := message()
	m.Headers = many
	h, dropped := eventHeader(m, source)
	checkSendable(t, m, h)
	if h.Get("Ce-Type") != "last" {
		t.Errorf("ce-type %q", h.Get("Ce-Type"))
	}
	if kept := len(h) - 9; kept+dropped != 10000 || h.Get("Ce-Droppedheaders") != strconv.Itoa(dropped) {
		t.Errorf("kept %d, dropped %d: ce-droppedheaders %s", kept, dropped, h.Get("Ce-Droppedheaders"))
	}
}

func TestEventHeaderProperties(t *testing.T) {
	anything := rapid.OneOf(
		rapid.String(),
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
		rapid.StringMatching(`[ -~]{0,40}`),
		rapid.Just("a\r\nb"),
	)
	name := rapid.OneOf(anything,
		rapid.StringMatching(`(ce-|ce_|cloudEvents:|cloudEvents_|CE-)[a-z0-9]{0,9}`),
		rapid.SampledFrom([]string{
			"ce-id", "ce_id", "ce_source", "ce-specversion", "content-type", "Host",
			"Content-Length", "Transfer-Encoding", "Connection", "traceparent", "tracestate", "Ce-Attempt",
		}),
	)
	rapid.Check(t, func(t *rapid.T) {
		m := message()
		m.Name, m.Subject, m.Key = anything.Draw(t, "id"), anything.Draw(t, "subject"), []byte(anything.Draw(t, "key"))
		var h headers
		for range rapid.IntRange(0, 100).Draw(t, "headers") {
			h = append(h, [2]string{name.Draw(t, "name"), anything.Draw(t, "value")})
		}
		m.Headers = h
		got, _ := eventHeader(m, source)
		checkSendable(t, m, got)
	})
}

func FuzzEventHeader(f *testing.F) {
	f.Add("ce-id", "a%0d", "X\x00", "\xff", "id\r\n", "subject")
	f.Add("Content-Type", "application/cloudevents+json", "transfer-encoding", "chunked", "", "")
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2, id, subject string) {
		m := message()
		m.Name, m.Subject = id, subject
		m.Headers = headers{{name1, value1}, {name2, value2}}
		h, _ := eventHeader(m, source)
		checkSendable(t, m, h)
	})
}

// tester is what tests, fuzz tests and properties have in common.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkSendable checks a request's header by itself and on the wire.
func checkSendable(t tester, m *supervisor.Message, h http.Header) {
	t.Helper()
	size, count := 0, 0
	for name, values := range h {
		for _, v := range values {
			count++
			size += len(name) + len(v) + 4
			checkField(t, name, v)
		}
		if strings.HasPrefix(name, "Ce-") && len(values) != 1 {
			t.Fatalf("%s stands %d times", name, len(values))
		}
	}
	// Beside what is bounded stand the nine that are ours.
	if size > maxHeaderBytes+maxID+512 || count > maxHeaderFields+9 {
		t.Fatalf("%d fields of %d bytes", count, size)
	}
	if !strings.HasPrefix(h.Get("Content-Type"), "application/cloudevents") {
		for _, name := range []string{"Ce-Specversion", "Ce-Id", "Ce-Source", "Ce-Type"} {
			if h.Get(name) == "" {
				t.Fatalf("%s is missing", name)
			}
		}
	}
	checkWire(t, m, h)
}

func checkField(t tester, name, value string) {
	t.Helper()
	if !httpguts.ValidHeaderFieldName(name) || !isPrintable(value) || strings.TrimSpace(value) != value {
		t.Fatalf("cannot be sent: %q: %q", name, value)
	}
	switch {
	case strings.HasPrefix(name, "Ce-"), strings.HasPrefix(name, otherPrefix):
		if _, err := url.PathUnescape(value); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	case name != "Content-Type" && name != "Traceparent" && name != "Tracestate":
		t.Fatalf("%s came through", name)
	}
}

// checkWire writes a request and reads it back: the other side sees this
// header, this body and nothing else.
func checkWire(t tester, m *supervisor.Message, h http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://x/", bytes.NewReader(m.Body))
	if err != nil {
		t.Fatalf("%v", err)
	}
	req.Header = h
	var wire bytes.Buffer
	if err := req.Write(&wire); err != nil {
		t.Fatalf("%v", err)
	}
	got, err := http.ReadRequest(bufio.NewReader(&wire))
	if err != nil {
		t.Fatalf("%v", err)
	}
	got.Header.Del("User-Agent")
	got.Header.Del("Content-Length")
	if !reflect.DeepEqual(got.Header, h) || got.ContentLength != int64(len(m.Body)) || got.Host != "x" {
		t.Fatalf("sent %v\nseen %v, host %q, length %d", h, got.Header, got.Host, got.ContentLength)
	}
}
