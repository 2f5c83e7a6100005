package rabbitmq

import (
	"context"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// intake says what becomes of what arrives.
type intake uint8

const (
	open     intake = iota // kept for Receive
	rest                   // kept for Shut
	giveBack               // given back
	ignore                 // left to the end of the channel, which gives it back
)

// consumption is what the broker sends to one consumer tag.
type consumption struct {
	deliveries <-chan amqp.Delivery
	// drained is closed when nothing more comes and all has been booked.
	drained chan struct{}
}

// subscription is one epoch of a consumer on its queue: a channel, on which it
// consumes under one tag after another. Tags of deliveries count per channel, so
// that what an epoch says can never be about another's.
type subscription struct {
	c      *conn
	l      *link
	src    *source
	op     string
	origin *brokers.Origin
	caps   brokers.Capabilities
	quorum bool
	// nackFirst: closing gives back by basic.nack, for the end of the channel
	// would count against the messages.
	nackFirst bool

	ch      *amqp.Channel
	closes  <-chan *amqp.Error
	cancels <-chan string
	// next hands a consumption to pump; room for one.
	next chan consumption
	// ended is closed when the channel is over and pump has booked why.
	ended chan struct{}
	// wake has room for one: Receive should look again.
	wake chan struct{}

	// latest is pump's own.
	latest amqp.Delivery

	// tag and drained are those of the consumption under way; "" without one. Jobs
	// use them, one at a time.
	tag     string
	drained chan struct{}

	// writing keeps acknowledgements in their order on the wire; ops is its scratch.
	writing sync.Mutex
	ops     []op

	mu     sync.Mutex
	err    error // why the epoch is over
	closed bool
	intake intake
	// cut: the channel ended by itself.
	cut bool
	// turns counts Hold and Close, so that a Flow that comes too late opens nothing.
	turns     int
	held      []brokers.Delivery
	heldBytes int64
	ledger    ledger
	// queued: the outbox knows of it. late: what is settled above a gap has waited
	// for long enough.
	queued, late bool
	linger       *time.Timer
	lingering    bool
	// settled counts what Settle took. Of it the first proven have arrived; the
	// first reported stood in a report.
	settled, proven, reported int
	// returned counts what was given back since the last report.
	returned int
	// job is closed when the background part of the last Hold, Flow or Close is done.
	job chan struct{}
	// keys and props are where the next ones come from.
	keys  []byte
	props []properties
}

var (
	_ brokers.Subscription = (*subscription)(nil)
	_ brokers.Finisher     = (*subscription)(nil)
)

// poke makes Receive look again.
func (s *subscription) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// fail ends the epoch; the first reason stands.
func (s *subscription) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.err, s.intake = err, ignore
	s.held, s.heldBytes = nil, 0
	if brokers.ClassOf(err) == brokers.Missing {
		s.src.facts.Store(nil) // it may come back as another
	}
	s.poke()
}

// pump books what the broker sends, until the channel ends. The library notes why
// something ends before it closes what it delivers to.
func (s *subscription) pump(now consumption) {
	defer close(s.ended)
	for {
		s.drain(now.deliveries)
		select {
		case _, byBroker := <-s.cancels:
			if byBroker {
				s.c.background(s.cancelled)
			}
		default:
		}
		close(now.drained)
		select {
		case err := <-s.closes:
			s.over(err)
			return
		case now = <-s.next:
		}
	}
}

// drain books what comes, until nothing more does. The delivery is in the
// subscription because several on the stack would double it, for each idle consumer.
func (s *subscription) drain(deliveries <-chan amqp.Delivery) {
	for {
		var more bool
		if s.latest, more = <-deliveries; !more {
			return
		}
		s.arrive(&s.latest)
		s.latest = amqp.Delivery{}
	}
}

// over books the end of the channel; err is nil when we closed it.
func (s *subscription) over(err *amqp.Error) {
	s.mu.Lock()
	s.cut = err != nil || s.l.amqp.IsClosed()
	s.mu.Unlock()
	switch {
	case s.l.amqp.IsClosed():
		s.fail(s.l.lost(err))
	case err != nil:
		s.fail(s.src.classify(s.op, err))
	default: // by Close, whose reason stands; else it is not for good
		s.fail(&brokers.Error{Class: brokers.Transient, Op: s.op, Err: errClosed})
	}
}

// arrive books one delivery.
func (s *subscription) arrive(d *amqp.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.intake {
	case ignore:
	case giveBack:
		s.ledger.settle(s.ledger.add(s, d.DeliveryTag), brokers.Release)
		s.returned++
	case open, rest:
		if cap(s.held) == 0 {
			s.held = make([]brokers.Delivery, 0, min(s.src.prefetch, chunk))
		}
		s.held = append(s.held, s.delivery(d))
		s.heldBytes += s.held[len(s.held)-1].Size
		if len(s.held) == 1 {
			s.poke()
		}
	}
}

// chunk is how many deliveries are allocated as one.
const chunk = 32

// delivery makes what Receive returns; mu is held.
func (s *subscription) delivery(d *amqp.Delivery) brokers.Delivery {
	out := brokers.Delivery{
		Origin:      s.origin,
		Position:    int64(d.DeliveryTag),
		Name:        d.MessageId,
		Subject:     d.RoutingKey,
		Body:        d.Body,
		Headers:     brokers.NoHeaders{},
		Published:   d.Timestamp,
		Size:        int64(len(d.Body)),
		Redelivered: earlier(d),
		Ref:         s.ledger.add(s, d.DeliveryTag),
	}
	if s.src.withKey {
		out.Key = s.key(d.RoutingKey)
		out.Size += int64(len(out.Key))
	}
	if len(d.Headers) > 0 {
		out.Headers = headers(d.Headers)
		out.Size += sizeOf(d.Headers)
	}
	if named := len(d.ContentType) + len(d.ContentEncoding) + len(d.CorrelationId) + len(d.ReplyTo) + len(d.AppId) + len(d.Type); named > 0 {
		if len(s.props) == 0 {
			s.props = make([]properties, chunk)
		}
		p := &s.props[0]
		s.props = s.props[1:]
		*p = properties{
			table: headers(d.Headers), contentType: d.ContentType, contentEncoding: d.ContentEncoding,
			correlationID: d.CorrelationId, replyTo: d.ReplyTo, appID: d.AppId, typeTag: d.Type,
		}
		out.Headers = p
		out.Size += int64(named)
	}
	return out
}

// key copies a routing key, many into one allocation.
func (s *subscription) key(k string) []byte {
	const slab = 1024
	if cap(s.keys)-len(s.keys) < len(k) {
		s.keys = make([]byte, 0, max(slab, len(k)))
	}
	at := len(s.keys)
	s.keys = append(s.keys, k...)
	return s.keys[at:len(s.keys):len(s.keys)]
}

// Receive returns what has arrived, within the credit.
func (s *subscription) Receive(ctx context.Context, credit brokers.Credit) ([]brokers.Delivery, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		batch, err := s.take(credit)
		if err != nil || len(batch) > 0 {
			return batch, err
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
		}
	}
}

// take moves held deliveries to the caller. None is not an error.
func (s *subscription) take(credit brokers.Credit) ([]brokers.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.intake == rest {
		return nil, s.err
	}
	n, bytes := len(s.held), s.heldBytes
	if n > credit.Messages || bytes > credit.Bytes {
		n, bytes = 0, 0
		for n < min(len(s.held), credit.Messages) && (n == 0 || bytes+s.held[n].Size <= credit.Bytes) {
			bytes += s.held[n].Size
			n++
		}
	}
	batch := s.held[:n:n]
	s.held, s.heldBytes = s.held[n:], s.heldBytes-bytes // the room behind them is used on
	return batch, nil
}

// Settle sends outcomes on their way: those that have nothing unsettled below them
// as one, once there are enough of them or nothing else is to be waited for.
func (s *subscription) Settle(_ context.Context, list []brokers.Settlement) error {
	s.mu.Lock()
	if s.err != nil {
		defer s.mu.Unlock()
		return fenced(s.err)
	}
	foreign := false
	for i := range list {
		e, ok := list[i].Delivery.Ref.(*entry)
		if !ok || e.s != s {
			foreign = true
			continue
		}
		if s.ledger.settle(e, list[i].Outcome) {
			s.settled++
		}
	}
	s.ledger.advance()
	send := !s.queued && s.due()
	s.queued = s.queued || send
	if !s.queued && !s.lingering && s.ledger.pending > 0 {
		s.wait()
	}
	s.mu.Unlock()
	if send {
		s.l.out.add(s)
	}
	if foreign {
		return fenced(errForeign)
	}
	return nil
}

// due tells whether acknowledgements are to be written now; mu is held.
func (s *subscription) due() bool {
	return s.ledger.pending > 0 && (s.ledger.ready >= s.src.ackMax || s.late || s.starving())
}

// starving: the broker sends no more, or soon will not, before it gets some
// acknowledgement; mu is held.
func (s *subscription) starving() bool {
	return s.ledger.unsettled == 0 || s.ledger.pending >= (s.src.prefetch+1)/2
}

// wait has what is settled written after the linger time; mu is held.
func (s *subscription) wait() {
	s.lingering = true
	if s.linger == nil {
		s.linger = time.AfterFunc(s.src.linger, s.lingered)
		return
	}
	s.linger.Reset(s.src.linger)
}

func (s *subscription) lingered() {
	s.mu.Lock()
	s.lingering = false
	s.late = s.ledger.pending > 0 && s.err == nil
	send := s.late && !s.queued
	s.queued = s.queued || send
	s.mu.Unlock()
	if send {
		s.l.out.add(s)
	}
}

// write sends acknowledgements: those that are ready, and all with all, when they
// have waited for long enough, or when the broker waits for them. It returns how
// many settlements have been written when all were. It blocks while the broker
// does not read.
func (s *subscription) write(all bool) (settled int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	s.queued = false
	all = all || s.late || s.starving()
	s.late = false
	s.ops = s.ledger.collect(s.ops[:0], all)
	settled = s.settled
	s.mu.Unlock()
	for _, o := range s.ops {
		switch o.outcome {
		case brokers.Ack:
			err = s.ch.Ack(o.tag, o.multiple)
		case brokers.Release:
			err = s.ch.Nack(o.tag, o.multiple, true)
		case brokers.Retry:
			err = s.ch.Reject(o.tag, true)
		}
		if err != nil {
			return settled, err // the channel is over; pump hears why
		}
	}
	return settled, nil
}

// Capabilities tells what the broker does for this queue.
func (s *subscription) Capabilities() brokers.Capabilities { return s.caps }

// Lag asks how many messages are ready; what consumers hold is not among them. A
// quorum queue counts every few seconds.
func (s *subscription) Lag(ctx context.Context) (brokers.Lag, error) {
	q, err := ask(ctx, s.l, func(ch *amqp.Channel) (amqp.Queue, error) { return inspect(ch, s.src.queue) })
	if err != nil {
		return brokers.Lag{}, s.src.classify("count "+s.src.String(), err)
	}
	return brokers.Lag{Messages: int64(q.Messages), Approximate: s.quorum}, nil
}

// inspect asks for a queue without declaring it.
func inspect(ch *amqp.Channel, queue string) (amqp.Queue, error) {
	return ch.QueueDeclarePassive(queue, true, false, false, false, nil)
}
