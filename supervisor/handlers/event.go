package handlers

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-111f5b8e/supervisord/supervisor"
	"golang.org/x/net/http/httpguts"
)

const (
	// What comes from a message may take so much of a request's header; common
	// servers refuse above 8 KiB or 100 fields in all.
	maxHeaderBytes  = 6 << 10
	maxHeaderFields = 64
	// maxID is the longest ce-id of ours, encoded.
	maxID = 512
	// otherPrefix stands before every header of a message that is no
	// CloudEvents attribute: none can pose as one of the request's own.
	otherPrefix = "Message-Header-"
)

// eventHeader maps a message to the headers of a CloudEvents 1.0 request in
// binary content mode, and counts the message's headers that it left out.
//
//   - Attributes that the message carries itself, as ce-, ce_, cloudEvents_ or
//     cloudEvents: headers (the names that the NATS, Kafka and AMQP bindings
//     use), are passed on.
//   - Those it lacks are filled in: specversion 1.0, id (the message's id),
//     source (as given), type "message", subject, time, and partitionkey from
//     the key. An event in structured mode (content type
//     application/cloudevents...) speaks for itself: nothing is filled in.
//   - ce-attempt (handler calls, from 1) and ce-redelivered (earlier
//     deliveries, as the broker counts) are always ours; ce-droppedheaders
//     counts what was left out, if anything.
//   - Content-Type is the message's, else application/octet-stream;
//     traceparent and tracestate keep their names.
//   - Every other header NAME is sent as Message-Header-NAME.
//
// Values are percent-encoded as the CloudEvents HTTP binding says. A header
// that has no valid name or text, repeats an attribute, or does not fit into
// maxHeaderBytes and maxHeaderFields is left out; attributes are served first.
// An id that is no text or too long is sent as "sha256-" and its hash in hex. So
// every message can be sent.
func eventHeader(m *supervisor.Message, source string) (http.Header, int) {
	f := fields{header: make(http.Header, 16), left: maxHeaderBytes}
	if m.Headers != nil {
		for name, value := range m.Headers.All() {
			f.special(name, value)
		}
	}
	if f.header.Get("Content-Type") == "" {
		f.header.Set("Content-Type", "application/octet-stream")
	}
	if !strings.HasPrefix(f.header.Get("Content-Type"), "application/cloudevents") {
		f.fill(m, source)
	}
	if m.Headers != nil {
		for name, value := range m.Headers.All() {
			if !isSpecial(name) {
				f.other(name, value)
			}
		}
	}
	f.header.Set("Ce-Attempt", strconv.Itoa(int(m.Attempt)))
	f.header.Set("Ce-Redelivered", strconv.Itoa(int(m.Redelivered)))
	if f.dropped > 0 {
		f.header.Set("Ce-Droppedheaders", strconv.Itoa(f.dropped))
	}
	return f.header, f.dropped
}

// fields collects headers within the bounds.
type fields struct {
	header  http.Header
	left    int
	count   int
	dropped int
}

// add takes a header whose value is fit to be sent.
func (f *fields) add(name, value string) {
	const separators = len(": \r\n")
	size := len(name) + len(value) + separators
	if size > f.left || f.count == maxHeaderFields {
		f.dropped++
		return
	}
	f.left -= size
	f.count++
	f.header.Add(name, value)
}

// once takes a header that stands once.
func (f *fields) once(name, value string) {
	if f.header.Get(name) != "" {
		f.dropped++
		return
	}
	f.add(name, value)
}

// special takes a header of the message that has a meaning of its own.
func (f *fields) special(name, value string) {
	if !isSpecial(name) {
		return
	}
	attribute, encoded := attributeOf(name)
	switch {
	case attribute == "attempt", attribute == "redelivered", attribute == "droppedheaders":
		// Of an earlier hop; ours replace them.
	case attribute == "" || attribute == "datacontenttype":
		f.verbatim(name, attribute, value)
	case !isAttributeName(attribute):
		f.dropped++
	default:
		if encoded {
			value = decodeValue(value)
		}
		f.attribute(attribute, value)
	}
}

// verbatim takes a header whose value HTTP and the message write alike.
func (f *fields) verbatim(name, attribute, value string) {
	if attribute == "datacontenttype" {
		name = "Content-Type"
	}
	if value == "" {
		return
	}
	if !isPrintable(value) {
		f.dropped++
		return
	}
	f.once(name, strings.TrimSpace(value))
}

// attribute takes a CloudEvents attribute; an empty one is none.
func (f *fields) attribute(name, value string) {
	switch {
	case value == "":
	case !isText(value):
		f.dropped++
	default:
		f.once("Ce-"+name, encodeValue(value))
	}
}

// other takes a header that means nothing to HTTP.
func (f *fields) other(name, value string) {
	if !httpguts.ValidHeaderFieldName(name) || !isText(value) {
		f.dropped++
		return
	}
	f.add(otherPrefix+name, encodeValue(value))
}

// fill sets the attributes that the message does not carry. The required ones
// are short and always fit.
func (f *fields) fill(m *supervisor.Message, source string) {
	f.require("Ce-Specversion", "1.0")
	f.require("Ce-Source", source)
	f.require("Ce-Type", "message")
	if f.header.Get("Ce-Id") == "" {
		f.header.Set("Ce-Id", eventID(m.ID()))
	}
	if f.header.Get("Ce-Subject") == "" {
		f.attribute("Subject", m.Subject)
	}
	if f.header.Get("Ce-Partitionkey") == "" {
		f.attribute("Partitionkey", string(m.Key))
	}
	if f.header.Get("Ce-Time") == "" && !m.Published.IsZero() {
		f.header.Set("Ce-Time", m.Published.UTC().Format(time.RFC3339Nano))
	}
}

func (f *fields) require(name, value string) {
	if f.header.Get(name) == "" {
		f.header.Set(name, value)
	}
}

func eventID(id string) string {
	if isText(id) && id != "" {
		if encoded := encodeValue(id); len(encoded) <= maxID {
			return encoded
		}
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256-" + hex.EncodeToString(sum[:])
}

// isSpecial tells whether a header of a message has a meaning of its own.
func isSpecial(name string) bool {
	if attribute, _ := attributeOf(name); attribute != "" {
		return true
	}
	return strings.EqualFold(name, "Content-Type") ||
		strings.EqualFold(name, "Traceparent") || strings.EqualFold(name, "Tracestate")
}

// attributeOf finds the CloudEvents attribute, in lower case, that a header
// carries, or "". encoded: its value is percent-encoded.
func attributeOf(name string) (attribute string, encoded bool) {
	for _, p := range []string{"ce-", "ce_", "cloudEvents:", "cloudEvents_"} {
		if len(name) > len(p) && strings.EqualFold(name[:len(p)], p) {
			return strings.ToLower(name[len(p):]), p == "ce-"
		}
	}
	return "", false
}

func isAttributeName(s string) bool {
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// isText tells whether s is a CloudEvents String: UTF-8 without control
// characters and noncharacters.
func isText(s string) bool {
	for _, r := range s {
		if r < 0x20 || r >= 0x7f && r <= 0x9f || r >= 0xfdd0 && r <= 0xfdef || r&0xfffe == 0xfffe {
			return false
		}
	}
	return utf8.ValidString(s)
}

// isPrintable tells whether s is printable ASCII.
func isPrintable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// encodeValue writes a text as the CloudEvents HTTP binding wants it.
func encodeValue(s string) string {
	const hexDigits = "0123456789ABCDEF"
	plain := func(c byte) bool { return c > 0x20 && c < 0x7f && c != '"' && c != '%' }
	escapes := 0
	for i := range len(s) {
		if !plain(s[i]) {
			escapes++
		}
	}
	if escapes == 0 {
		return s
	}
	b := make([]byte, 0, len(s)+2*escapes)
	for i := range len(s) {
		if c := s[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return string(b)
}

// decodeValue reads a value that should be percent-encoded, and takes it as it
// is when it is not.
func decodeValue(s string) string {
	if d, err := url.PathUnescape(s); err == nil {
		return d
	}
	return s
}
