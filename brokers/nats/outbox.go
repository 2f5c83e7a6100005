package nats

import (
	"errors"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"
)

// word is what an item says.
type word uint8

const (
	ask      word = iota // with a body of its own
	ack                  // handled
	nak                  // deliver again
	progress             // still at work
	words
)

// item is one message to the server.
type item struct {
	subject, reply string
	word           word
	// body with ask, and with a nak that waits.
	body []byte
	// s is whose acknowledgement this is, and number its place in the ledger of
	// s; nil for what needs no proof.
	s      *subscription
	number uint64
	// each: this one asks for an answer of its own, not only the batch.
	each bool
	// session is the only one in which to send it.
	session uint64
}

// outbox writes for all subscriptions of a connection from one goroutine: only
// that one waits when the server does not read. It is bounded by what it
// carries: each delivery is acknowledged once, and a pull stands for credit.
type outbox struct {
	conn *conn
	mu   sync.Mutex
	// items is what to write next, in order.
	items []item
	// wake has room for one: there are items.
	wake       chan struct{}
	quit, done chan struct{}
	// round counts batches, bodies are the words'; both the writer's own.
	round  uint64
	bodies [words][]byte
}

func (o *outbox) start(c *conn) {
	o.conn = c
	o.wake = make(chan struct{}, 1)
	o.quit, o.done = make(chan struct{}), make(chan struct{})
	o.bodies = [words][]byte{ack: []byte("+ACK"), nak: []byte("-NAK"), progress: []byte("+WPI")}
	go o.run()
}

// stop ends the writer, which must have been started. What is still there is
// not sent.
func (o *outbox) stop() {
	close(o.quit)
	<-o.done
}

// add appends what fill puts in. It does not block.
func (o *outbox) add(fill func(items []item) []item) {
	o.mu.Lock()
	o.items = fill(o.items)
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *outbox) run() {
	defer close(o.done)
	var batch []item
	for {
		select {
		case <-o.wake:
		case <-o.quit:
			return
		}
		o.mu.Lock()
		batch, o.items = o.items, batch[:0]
		o.mu.Unlock()
		o.askForProof(batch)
		o.write(batch)
		clear(batch)
	}
}

// askForProof puts a reply subject on the last acknowledgement of each
// subscription: its answer proves the ones before.
func (o *outbox) askForProof(batch []item) {
	o.round++
	for i := len(batch) - 1; i >= 0; i-- {
		it := &batch[i]
		if it.s == nil || it.s.asked == o.round && !it.each {
			continue
		}
		it.s.asked = o.round
		b := make([]byte, 0, 64)
		b = append(b, o.conn.proofs...)
		b = strconv.AppendUint(b, uint64(it.s.id), 36)
		b = append(b, '.')
		b = strconv.AppendUint(b, it.number, 36)
		it.reply = string(b)
	}
}

func (o *outbox) write(batch []item) {
	link := o.conn.link()
	if link.err != nil {
		return
	}
	for i := range batch {
		it := &batch[i]
		if it.session != link.session {
			continue
		}
		body := it.body
		if body == nil {
			body = o.bodies[it.word]
		}
		err := o.conn.nc.PublishRequest(it.subject, it.reply, body)
		switch {
		case err == nil:
		case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrReconnectBufExceeded):
			return // this session is over; its subscriptions hear of it
		default:
			// The write failed and took what nats.go had buffered with it. Only a
			// new session tells all who wait that it will not arrive.
			o.conn.log.Warn("write failed, the connection is renewed", "error", err)
			_ = o.conn.nc.ForceReconnect()
			return
		}
	}
}
