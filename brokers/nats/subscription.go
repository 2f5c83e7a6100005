package nats

import (
	"context"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// subscription is one epoch of a consumer on its durable.
type subscription struct {
	c   *conn
	src *source
	op  string
	// nextSubject is where requests for messages go.
	nextSubject string
	origin      *brokers.Origin
	caps        brokers.Capabilities
	// ackWait is the one in force at the server.
	ackWait time.Duration
	// id and session are given by conn.add. A subscription belongs to one
	// session; closing may have to move to a later one.
	id      uint32
	session uint64
	// asked is the outbox writer's own.
	asked uint64
	// wake has room for one: Receive should look again.
	wake chan struct{}
	// broken is closed when the epoch is over but for Close.
	broken chan struct{}

	mu     sync.Mutex
	err    error // why it is over
	closed bool
	in     *inbox // nil while held
	// inbox is the subject of the latest one.
	inbox  string
	ledger ledger
	pulls  pulls
	// quiet is closed when nothing up to last waits for proof; nil while nobody
	// waits for that.
	quiet chan struct{}
	last  uint64
	// job is closed when the background part of the last Hold or Close is done.
	job chan struct{}
	// heard is when the server last spoke; notBefore is when to pull again.
	heard, notBefore int64
	checking         bool
	timer            *time.Timer
}

var (
	_ brokers.Subscription = (*subscription)(nil)
	_ brokers.Finisher     = (*subscription)(nil)
)

// now is a monotonic time, in nanoseconds since the connection was made.
func (c *conn) now() int64 { return int64(time.Since(c.base)) }

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
	s.err = err
	if s.in != nil {
		s.in.fate = refuse
	}
	if s.timer != nil { // nil while Subscribe is under way
		s.timer.Stop()
	}
	close(s.broken)
	s.poke()
}

// Receive returns what has arrived and asks for more within the credit.
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
	if s.err != nil {
		return nil, s.err
	}
	if s.in == nil {
		return nil, nil
	}
	var (
		batch []brokers.Delivery
		bytes int64
	)
	if n := min(s.ledger.held.n, credit.Messages); n > 0 {
		batch = make([]brokers.Delivery, 0, n)
	}
	for len(batch) < credit.Messages && s.ledger.held.n > 0 {
		e := s.ledger.held.head
		size := e.size(s.src.subjectKey)
		if len(batch) > 0 && bytes+size > credit.Bytes {
			break
		}
		bytes += size
		s.ledger.handOut(e)
		batch = append(batch, s.delivery(e, size))
	}
	s.request(credit.Messages-len(batch), credit.Bytes-bytes, len(batch) == 0)
	return batch, nil
}

// delivery makes what Receive returns of e, once.
func (s *subscription) delivery(e *entry, size int64) brokers.Delivery {
	m := e.msg
	e.msg = nil
	d := brokers.Delivery{
		Origin:      s.origin,
		Position:    int64(e.seq),
		Subject:     m.Subject,
		Body:        m.Data,
		Headers:     brokers.NoHeaders{},
		Published:   time.Unix(0, e.published),
		Size:        size,
		Redelivered: e.redelivered,
		Ref:         e,
	}
	if len(m.Header) > 0 {
		d.Headers = headers(m.Header)
	}
	if s.src.subjectKey {
		d.Key = s.ledger.key(m.Subject)
	}
	return d
}

// request pulls what the credit allows; mu is held.
func (s *subscription) request(messages int, bytes int64, idle bool) {
	now := s.c.now()
	if now < s.notBefore {
		return
	}
	messages = min(messages, s.src.mostUnderWay()) - s.ledger.held.n
	bytes -= s.ledger.heldBytes
	n, most, ok := s.pulls.want(s.src, messages, bytes, idle && s.ledger.held.n == 0)
	if !ok {
		return
	}
	if len(s.pulls.open) == 0 {
		s.heard = now
	}
	pl := s.pulls.start(n, most, now)
	it := item{
		subject: s.nextSubject,
		reply:   s.in.subject + strconv.FormatUint(pl.number, 36),
		body:    pl.request(s.src),
		session: s.session,
	}
	s.c.out.add(func(items []item) []item { return append(items, it) })
}

// arrive books one message of an inbox; mu is held.
func (s *subscription) arrive(in *inbox, m *nats.Msg, now int64) {
	s.heard = now
	if m.Reply == "" {
		s.status(in, m)
		return
	}
	info, ok := parseAck(m.Reply)
	if !ok {
		s.c.log.Warn("not a JetStream delivery", "stream", s.src.stream, "subject", m.Subject)
		return
	}
	e := s.ledger.entry()
	*e = entry{s: s, reply: m.Reply, msg: m, seq: info.seq, told: now, weight: int64(m.Size()),
		published: info.published, redelivered: int32(min(max(1, info.deliveries)-1, math.MaxInt32))}
	if e.redelivered > 0 {
		s.ledger.supersede(e)
	}
	if in == s.in {
		s.pulls.arrived(e.weight)
	}
	s.ledger.hold(e)
	if in.fate == refuse {
		// A pull that outlived the cut of its connection: it came in a later session.
		s.ledger.strays++
		s.giveBack([]*entry{e}, s.c.link().session)
		return
	}
	if s.ledger.held.n == 1 {
		s.poke()
	}
}

// status reads what the server says about a pull; mu is held.
func (s *subscription) status(in *inbox, m *nats.Msg) {
	v, text := judge(m)
	if v == alive || in != s.in || s.err != nil {
		return
	}
	number, _ := strconv.ParseUint(m.Subject[len(in.subject):], 36, 64)
	messages, bytes := unused(m)
	untouched := s.pulls.drop(number, messages, bytes)
	switch v {
	case tooBig:
		s.pulls.alone = untouched
	case pause:
		s.rest()
	case unsure:
		s.rest()
		s.suspect()
	case deleted, refused:
		s.c.background(func() { s.fail(s.statusError(v, text)) })
	}
	s.poke()
}

// rest puts off the next pull; mu is held.
func (s *subscription) rest() {
	s.notBefore = s.c.now() + int64(restTime)
	time.AfterFunc(restTime, s.poke)
}

// restTime keeps a server that turns pulls down at once from being asked in a
// tight loop.
const restTime = 250 * time.Millisecond

// Settle sends outcomes on their way; see the package's comment.
func (s *subscription) Settle(_ context.Context, list []brokers.Settlement) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return fenced(s.err)
	}
	foreign := false
	s.c.out.add(func(items []item) []item {
		for i := range list {
			e, ok := list[i].Delivery.Ref.(*entry)
			if !ok || e.s != s {
				foreign = true
				continue
			}
			switch e.state {
			case out:
				items = append(items, s.settle(e, list[i]))
			case taken:
				e.state = settled
				s.ledger.lost++
			}
		}
		return items
	})
	if foreign {
		return fenced(errForeign)
	}
	return nil
}

func (s *subscription) settle(e *entry, st brokers.Settlement) item {
	s.ledger.send(e, st.Outcome)
	it := item{subject: e.reply, word: ack, s: s, number: e.number, session: s.session}
	if st.Outcome != brokers.Ack {
		it.word = nak
		if st.Outcome == brokers.Retry && st.AfterMillis > 0 {
			it.body = nakAfter(st.AfterMillis)
		}
	}
	return it
}

func nakAfter(millis int64) []byte {
	b := append([]byte(nil), `-NAK {"delay":`...)
	b = strconv.AppendInt(b, millis*int64(time.Millisecond), 10)
	return append(b, '}')
}

// proved takes the server's word that all up to number n has been handled.
func (s *subscription) proved(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger.prove(n)
	if !s.ledger.waits(s.last) {
		s.hush()
	}
}

// hush ends the wait for proofs; mu is held.
func (s *subscription) hush() {
	if s.quiet != nil {
		close(s.quiet)
		s.quiet = nil
	}
}

// Capabilities tells what the durable was found to be.
func (s *subscription) Capabilities() brokers.Capabilities { return s.caps }
