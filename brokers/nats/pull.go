package nats

import (
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"
)

// pull is one open MSG.NEXT request.
type pull struct {
	// number is the last token of the subject its statuses come to.
	number uint64
	// What was asked for.
	messages int
	bytes    int64
	// asked is when, on the clock of conn.now.
	asked int64
}

// pulls accounts for what the server may still send. Requests are served in
// turns, and a delivery does not tell which one it is for; but the server ends
// each request with a status that tells what it did not use: 408 at its expiry,
// 409 "Batch Completed" when the messages were used up before the bytes. So the
// sums are exact; only a request whose bytes were used up to the last one ends
// silently, which the sum of the bytes shows.
type pulls struct {
	open []pull
	// What all open ones may still bring.
	messages int
	bytes    int64
	// last is the highest number given.
	last uint64
	// alone: the next message is larger than what a pull may bring. It is asked
	// for by itself, without a bound, once nothing else is held or under way.
	alone bool
}

// want decides on a new request. messages and bytes are the credit that is not
// in use. It refills by halves, so that a request costs little per message, and
// asks at any credit when nothing is held or under way.
func (p *pulls) want(src *source, messages int, bytes int64, idle bool) (n int, max int64, ok bool) {
	n, max = min(messages-p.messages, src.pullMessages), min(bytes-p.bytes, src.pullBytes)
	switch {
	case idle && p.messages == 0:
		if p.alone {
			return 1, 0, true
		}
		return n, max, n > 0 && max > 0
	case p.alone:
		return 0, 0, false
	}
	half := min(src.messages, src.pullMessages) - min(src.messages, src.pullMessages)/2
	halfBytes := src.pullBytes / 2
	return n, max, n >= half && max >= halfBytes && max > 0
}

// start books a request.
func (p *pulls) start(messages int, bytes, now int64) pull {
	p.last++
	pl := pull{number: p.last, messages: messages, bytes: bytes, asked: now}
	p.open = append(p.open, pl)
	p.messages += messages
	p.bytes += bytes
	return pl
}

// arrived books a delivery.
func (p *pulls) arrived(weight int64) {
	p.alone = false
	p.messages = max(0, p.messages-1)
	p.bytes = max(0, p.bytes-weight)
	p.settle()
}

// drop ends a request of which so much was not used, and tells whether that is
// all of its bytes.
func (p *pulls) drop(number uint64, messages int, bytes int64) (untouched bool) {
	i := slices.IndexFunc(p.open, func(pl pull) bool { return pl.number == number })
	if i < 0 {
		return false
	}
	untouched = bytes >= p.open[i].bytes
	p.open = slices.Delete(p.open, i, i+1)
	p.messages = max(0, p.messages-messages)
	p.bytes = max(0, p.bytes-bytes)
	var mostMessages int
	var mostBytes int64
	for _, pl := range p.open {
		mostMessages += pl.messages
		mostBytes += pl.bytes
	}
	p.messages, p.bytes = min(p.messages, mostMessages), min(p.bytes, mostBytes)
	p.settle()
	return untouched
}

// settle forgets requests that have nothing left. One without a bound in bytes
// is alone.
func (p *pulls) settle() {
	bounded := len(p.open) > 0 && p.open[0].bytes > 0
	if p.messages == 0 || bounded && p.bytes == 0 {
		p.reset()
	}
}

// reset forgets all requests: none can bring anything any more.
func (p *pulls) reset() {
	p.open = p.open[:0]
	p.messages, p.bytes = 0, 0
}

// request is the body of MSG.NEXT.
func (pl pull) request(src *source) []byte {
	b := make([]byte, 0, 96)
	b = append(b, `{"batch":`...)
	b = strconv.AppendInt(b, int64(pl.messages), 10)
	if pl.bytes > 0 {
		b = append(b, `,"max_bytes":`...)
		b = strconv.AppendInt(b, pl.bytes, 10)
	}
	b = append(b, `,"expires":`...)
	b = strconv.AppendInt(b, int64(src.pullExpiry), 10)
	b = append(b, `,"idle_heartbeat":`...)
	b = strconv.AppendInt(b, int64(src.heartbeat()), 10)
	return append(b, '}')
}

// verdict is what a status means for a subscription.
type verdict uint8

const (
	alive   verdict = iota // a heartbeat
	ended                  // the request is over, ask again
	tooBig                 // as ended; the next message does not fit
	pause                  // as ended, but not at once
	unsure                 // ask the server whether the durable is there
	deleted                // the durable is gone
	refused                // the request itself is refused
)

// judge reads a status message.
func judge(m *nats.Msg) (v verdict, text string) {
	text = m.Header.Get("Description")
	switch m.Header.Get("Status") {
	case "100":
		return alive, text
	case "404", "408":
		return ended, text
	case "503":
		return unsure, "no responders"
	case "409":
		switch text {
		case "Batch Completed":
			return ended, text
		case "Message Size Exceeds MaxBytes":
			return tooBig, text
		case "Leadership Change", "Server Shutdown":
			return pause, text
		case "Consumer Deleted":
			return deleted, text
		}
	}
	return refused, text
}

// unused reads what a request did not use.
func unused(m *nats.Msg) (messages int, bytes int64) {
	messages, _ = strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
	bytes, _ = strconv.ParseInt(m.Header.Get("Nats-Pending-Bytes"), 10, 64)
	return messages, bytes
}

// overdue tells whether open requests are lost: the server has been silent for
// more than two heartbeats, or the oldest request has outlived its expiry. The
// server says nothing of a request that exceeds the durable's max_waiting.
func (p *pulls) overdue(src *source, heard, now int64) bool {
	beat := int64(src.heartbeat())
	return len(p.open) > 0 && (now-heard > 2*beat+beat/4 || now-p.open[0].asked > int64(src.pullExpiry)+beat)
}
