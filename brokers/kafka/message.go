package kafka

import (
	"iter"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// fill makes d of a record, in place and without a copy.
func fill(d *brokers.Delivery, t *tracker, r *kgo.Record) {
	size := len(r.Value) + len(r.Key)
	d.Headers = brokers.NoHeaders{}
	if len(r.Headers) > 0 {
		for i := range r.Headers {
			size += len(r.Headers[i].Key) + len(r.Headers[i].Value)
		}
		d.Headers = (*headers)(r)
	}
	d.Origin, d.Position, d.Subject = t.origin, r.Offset, r.Topic
	d.Key, d.Body, d.Published = r.Key, r.Value, r.Timestamp
	d.Size = int64(size)
	d.Ref = t
}

// trackerOf is the tracker of a delivery that fill made.
func trackerOf(d *brokers.Delivery) *tracker {
	t, _ := d.Ref.(*tracker)
	return t
}

// headers reads a record's headers in place.
type headers kgo.Record

// Get finds the first value by its exact name.
func (h *headers) Get(name string) (string, bool) {
	for i := range h.Headers {
		if h.Headers[i].Key == name {
			return string(h.Headers[i].Value), true
		}
	}
	return "", false
}

// All yields every name and value in the record's order.
func (h *headers) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for i := range h.Headers {
			if !yield(h.Headers[i].Key, string(h.Headers[i].Value)) {
				return
			}
		}
	}
}
