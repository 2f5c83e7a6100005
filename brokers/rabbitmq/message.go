package rabbitmq

import (
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// headers reads the table of a message in place.
type headers amqp.Table

// Get finds a header by its exact name.
func (h headers) Get(name string) (string, bool) {
	v, ok := h[name]
	if !ok {
		return "", false
	}
	return text(v), true
}

// All yields every name and value, in no order of names.
func (h headers) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for name, v := range h {
			if !yield(name, text(v)) {
				return
			}
		}
	}
}

// properties are those of a message that AMQP keeps apart from its headers and
// others know as such. They are found under their names in lower case.
type properties struct {
	table                                  headers
	contentType, contentEncoding           string
	correlationID, replyTo, appID, typeTag string
}

// Get finds a property, or a header by its exact name.
func (p *properties) Get(name string) (string, bool) {
	if v := p.property(name); v != nil && *v != "" {
		return *v, true
	}
	return p.table.Get(name)
}

func (p *properties) property(name string) *string {
	switch name {
	case "content-type":
		return &p.contentType
	case "content-encoding":
		return &p.contentEncoding
	case "correlation-id":
		return &p.correlationID
	case "reply-to":
		return &p.replyTo
	case "app-id":
		return &p.appID
	case "type":
		return &p.typeTag
	}
	return nil
}

// All yields the properties that are there, and then the headers.
func (p *properties) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, name := range [...]string{"content-type", "content-encoding", "correlation-id", "reply-to", "app-id", "type"} {
			if v := *p.property(name); v != "" && !yield(name, v) {
				return
			}
		}
		for name, v := range p.table {
			if hidden := p.property(name); (hidden == nil || *hidden == "") && !yield(name, text(v)) {
				return
			}
		}
	}
}

// text writes a value of a table: scalars as Go does, times as RFC 3339, and lists
// and tables as JSON.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case nil:
		return ""
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case int32:
		return strconv.FormatInt(int64(v), 10)
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	case amqp.Table, []any:
		b, err := json.Marshal(v)
		if err != nil {
			return ""
		}
		return string(b)
	default:
		return fmt.Sprint(v)
	}
}

// sizeOf counts names and values, scalars as eight bytes.
func sizeOf(t amqp.Table) int64 {
	var n int64
	for name, v := range t {
		n += int64(len(name)) + valueSize(v)
	}
	return n
}

func valueSize(v any) int64 {
	switch v := v.(type) {
	case string:
		return int64(len(v))
	case []byte:
		return int64(len(v))
	case amqp.Table:
		return sizeOf(v)
	case []any:
		var n int64
		for _, e := range v {
			n += valueSize(e)
		}
		return n
	}
	return 8
}

// deliveryCount is how a quorum queue counts earlier deliveries.
const deliveryCount = "x-delivery-count"

// earlier counts earlier deliveries: exactly on quorum queues, else by a flag.
func earlier(d *amqp.Delivery) int32 {
	if !d.Redelivered {
		return 0
	}
	if v, ok := d.Headers[deliveryCount]; ok {
		switch n := v.(type) {
		case int64:
			return int32(min(max(n, 0), 1<<31-1))
		case int32:
			return n
		}
	}
	return 1
}

// publishing makes what goes over the wire. Headers that are properties become
// such again. Those by which the broker keeps book or finds more recipients stay
// out: they were meant for the message that this is a copy of.
func publishing(p *brokers.Publication) amqp.Publishing {
	var props properties
	table := make(amqp.Table, len(p.Headers))
	for _, h := range p.Headers {
		if brokerOwned(h.Name) {
			continue
		}
		if v := props.property(h.Name); v != nil && len(h.Value) <= mostName {
			*v = h.Value
			continue
		}
		if _, ok := table[h.Name]; !ok && len(h.Name) <= mostName {
			table[h.Name] = h.Value // of names that repeat the first counts
		}
	}
	out := amqp.Publishing{
		Headers: table, ContentType: props.contentType, ContentEncoding: props.contentEncoding,
		CorrelationId: props.correlationID, ReplyTo: props.replyTo, AppId: props.appID, Type: props.typeTag,
		DeliveryMode: amqp.Persistent, Timestamp: time.Now(), Body: p.Body,
	}
	if len(p.ID) <= mostName {
		out.MessageId = p.ID
	}
	return out
}

func brokerOwned(name string) bool {
	switch strings.ToLower(name) {
	case "cc", "bcc", deliveryCount, "x-acquired-count", "x-death", "x-opt-deaths", "x-delivery-limit", "x-stream-offset":
		return true
	}
	return strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-")
}
