// Package memory is a broker inside the process: for simulation in virtual
// time, for benchmarks, and as the first driver that shows what the contract of
// package brokers means.
//
// A [Broker] holds queues; a [Driver] makes it a broker of the contract. Queues
// behave as [QueueOptions] say: single acks like RabbitMQ and JetStream, one
// position per partition like Kafka, or endless like nothing but a benchmark.
//
// Everything it does follows from calls and timers: it reads no clock but
// package time's, starts no goroutine but to ask for partitions back, and holds
// no lock while it waits. So it runs in a bubble of testing/synctest, and ten
// thousand idle subscriptions cost little more than their structs.
//
// Between a subscription and the broker lies a wire: what Settle, Hold and Close
// send arrives at once unless a fault delays, freezes or cuts the connection.
// The methods of Broker cause faults and read the truth that a test compares
// with what the consumers claim.
package memory

import (
	"hash/fnv"
	"iter"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// Options are a broker's own.
type Options struct {
	// Queue is how queues behave that a consumer or a publication creates.
	Queue QueueOptions
	// CreateTargets makes a queue that is published to and not there; otherwise
	// that is an error of class Missing.
	CreateTargets bool
	// Forget keeps no history, so that a broker can run for ever.
	Forget bool
}

// QueueOptions say how a queue behaves.
type QueueOptions struct {
	// Partitions above 0 keep one position per partition instead of single acks,
	// and share the partitions among the subscriptions. Their logs are kept whole.
	Partitions int
	// RevokeTimeout is how long Observer.Revoke may take; default 5 s.
	RevokeTimeout time.Duration
	// Endless, when not empty, are the messages that the queue delivers over and
	// over, each subscription its own: for benchmarks. It is never empty, counts
	// settlements only and delivers nothing twice. Once settled, a Delivery is
	// used again: its Origin, body, headers and size stay, its Position does not.
	Endless []Message

	// Prefetch above 0 lets the driver hold so many messages for later Receives;
	// not with Endless.
	Prefetch int

	// The rest is for queues with single acks.

	// SingleActive delivers to the oldest subscription only.
	SingleActive bool
	// LeaveOnHold ends the membership of a held subscription: with SingleActive
	// the next one takes over.
	LeaveOnHold bool
	// NoPause is told as the capability of that name.
	NoPause string
	// AckTimeout above 0 takes a message away that was not settled for so long
	// while the driver could not keep it alive.
	AckTimeout time.Duration
	// DeliveryLimit above 0 takes a message away that comes back after so many
	// deliveries.
	DeliveryLimit int
	// GiveBackCounts lets messages that were given back count as delivered.
	GiveBackCounts bool
	// DeadLetter is the queue for what DeliveryLimit takes away; else it is lost.
	DeadLetter string
}

// Message is one message as a producer sees it.
type Message struct {
	// ID may be empty.
	ID   string
	Key  []byte
	Body []byte
	// Headers are not copied.
	Headers []brokers.Header
}

func (m *Message) size() int64 {
	n := len(m.Key) + len(m.Body)
	for _, h := range m.Headers {
		n += len(h.Name) + len(h.Value)
	}
	return int64(n)
}

func (m *Message) headers() brokers.Headers {
	if len(m.Headers) == 0 {
		return brokers.NoHeaders{}
	}
	return headers(m.Headers)
}

// partition chooses by key among n; without one, in turn.
func (m *Message) partition(turn int64, n int) int {
	if len(m.Key) == 0 {
		return int(turn % int64(n))
	}
	h := fnv.New32a()
	h.Write(m.Key)
	return int(h.Sum32() % uint32(n))
}

type headers []brokers.Header

func (h headers) Get(name string) (string, bool) {
	for _, e := range h {
		if e.Name == name {
			return e.Value, true
		}
	}
	return "", false
}

func (h headers) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, e := range h {
			if !yield(e.Name, e.Value) {
				return
			}
		}
	}
}
