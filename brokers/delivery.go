package brokers

import (
	"iter"
	"strconv"
	"time"
)

// Origin is where deliveries come from in order: a partition, or the whole
// source where there are none. Deliveries of one origin share one *Origin, and
// a partition that is assigned again gets a new one.
type Origin struct {
	// Name is for people: "ORDERS", "orders/3".
	Name string
	// Index is dense from 0 among the origins of one subscription.
	Index int
}

// Delivery is one message taken from a broker and not yet settled. The driver
// fills it before Receive returns and does not touch it afterwards; the body
// and headers are the receiver's to read, also after settlement.
type Delivery struct {
	Origin *Origin
	// Position orders deliveries of one origin: offset, sequence, delivery tag.
	Position int64
	// Name is the message's own id where the broker has one (AMQP message-id).
	Name string
	// Subject is the topic, subject or routing key it was published to.
	Subject string
	Key     []byte
	Body    []byte
	Headers Headers
	// Published is when, as the broker says; zero when it does not.
	Published time.Time
	// Size in bytes counts towards the bounds: body, key and headers.
	Size int64
	// Redelivered counts earlier deliveries as the broker does, give-backs
	// included where GiveBackCounts or the broker's protocol makes them so.
	Redelivered int32
	// Attempt is set by the core: handler calls in this epoch, from 1.
	Attempt int32
	// Ref is the driver's own.
	Ref any
}

// ID names the message for people and receipts, the same at each redelivery
// where the broker has positions or message ids.
func (d *Delivery) ID() string {
	if d.Name != "" {
		return d.Name
	}
	return d.Origin.Name + ":" + strconv.FormatInt(d.Position, 10)
}

// Headers reads a message's headers in place, without a copy.
type Headers interface {
	// Get returns the first value of a header, and whether there is one.
	Get(name string) (string, bool)
	// All yields every name and value.
	All() iter.Seq2[string, string]
}

// NoHeaders is a message without any.
type NoHeaders struct{}

// Get finds nothing.
func (NoHeaders) Get(string) (string, bool) { return "", false }

// All yields nothing.
func (NoHeaders) All() iter.Seq2[string, string] { return func(func(string, string) bool) {} }
