package nats

import (
	"iter"
	"strings"

	"github.com/nats-io/nats.go"
)

// ackInfo is what the server writes into the subject that acknowledges a
// delivery.
type ackInfo struct {
	// deliveries counts this one too.
	deliveries uint64
	// seq is the message's sequence in the stream.
	seq uint64
	// published in nanoseconds since 1970.
	published int64
}

// parseAck reads
//
//	$JS.ACK.STREAM.CONSUMER.deliveries.seq.consumerSeq.nanoseconds.pending
//	$JS.ACK.DOMAIN.ACCOUNT.STREAM.CONSUMER.deliveries.seq.consumerSeq.nanoseconds.pending[.more]
//
// without allocating.
func parseAck(subject string) (ackInfo, bool) {
	if !strings.HasPrefix(subject, "$JS.ACK.") {
		return ackInfo{}, false
	}
	skip := 4
	switch dots := strings.Count(subject, "."); {
	case dots >= 10:
		skip = 6
	case dots != 8:
		return ackInfo{}, false
	}
	rest := subject
	for range skip {
		_, rest, _ = strings.Cut(rest, ".")
	}
	var n [4]uint64
	for i := range n {
		var token string
		token, rest, _ = strings.Cut(rest, ".")
		v, ok := parseUint(token)
		if !ok {
			return ackInfo{}, false
		}
		n[i] = v
	}
	return ackInfo{deliveries: n[0], seq: n[1], published: int64(n[3])}, true
}

func parseUint(s string) (uint64, bool) {
	if s == "" || len(s) > 19 {
		return 0, false
	}
	var v uint64
	for i := range len(s) {
		d := s[i] - '0'
		if d > 9 {
			return 0, false
		}
		v = v*10 + uint64(d)
	}
	return v, true
}

// headers reads nats.Header in place.
type headers nats.Header

// Get finds the first value by its exact name: NATS headers are case-sensitive.
func (h headers) Get(name string) (string, bool) {
	if v := h[name]; len(v) > 0 {
		return v[0], true
	}
	return "", false
}

// All yields every name and value, in no order of names.
func (h headers) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for name, values := range h {
			for _, v := range values {
				if !yield(name, v) {
					return
				}
			}
		}
	}
}
