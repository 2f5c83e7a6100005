package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
)

// Frames and methods of AMQP 0-9-1 that a consumer meets, by their numbers in
// the specification; a method's are its class and its own.
const (
	frameMethod    = 1
	frameHeader    = 2
	frameBody      = 3
	frameHeartbeat = 8
	frameEnd       = 0xCE
	// frameMax is what the stub lets either side send at once.
	frameMax  = 128 << 10
	frameHead = 1 + 2 + 4

	connectionStart   = 10<<16 | 10
	connectionStartOK = 10<<16 | 11
	connectionTune    = 10<<16 | 30
	connectionTuneOK  = 10<<16 | 31
	connectionOpen    = 10<<16 | 40
	connectionOpenOK  = 10<<16 | 41
	connectionClose   = 10<<16 | 50
	connectionCloseOK = 10<<16 | 51
	channelOpen       = 20<<16 | 10
	channelOpenOK     = 20<<16 | 11
	channelClose      = 20<<16 | 40
	channelCloseOK    = 20<<16 | 41
	queueDeclare      = 50<<16 | 10
	queueDeclareOK    = 50<<16 | 11
	basicQos          = 60<<16 | 10
	basicQosOK        = 60<<16 | 11
	basicConsume      = 60<<16 | 20
	basicConsumeOK    = 60<<16 | 21
	basicCancel       = 60<<16 | 30
	basicCancelOK     = 60<<16 | 31
	basicDeliver      = 60<<16 | 60
	basicAck          = 60<<16 | 80
	basicReject       = 60<<16 | 90
	basicNack         = 60<<16 | 120
)

// long is a long string; a Go string goes out as a short one.
type long string

// appendFrame appends a frame around what payload appends.
func appendFrame(b []byte, kind byte, channel uint16, payload func([]byte) []byte) []byte {
	b = append(b, kind)
	b = binary.BigEndian.AppendUint16(b, channel)
	at := len(b)
	b = payload(append(b, 0, 0, 0, 0))
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return append(b, frameEnd)
}

// appendMethod appends a method's frame. An argument's Go type says how it goes
// over the wire.
func appendMethod(b []byte, channel uint16, method uint32, args ...any) []byte {
	return appendFrame(b, frameMethod, channel, func(b []byte) []byte {
		b = binary.BigEndian.AppendUint32(b, method)
		for _, a := range args {
			switch v := a.(type) {
			case uint8:
				b = append(b, v)
			case uint16:
				b = binary.BigEndian.AppendUint16(b, v)
			case uint32:
				b = binary.BigEndian.AppendUint32(b, v)
			case uint64:
				b = binary.BigEndian.AppendUint64(b, v)
			case string:
				b = append(append(b, byte(len(v))), v...)
			case long:
				b = append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
			}
		}
		return b
	})
}

// appendContent appends the header and the body of a persistent message.
func appendContent(b []byte, channel uint16, body []byte) []byte {
	const basic, hasDeliveryMode, persistent = 60, 1 << 12, 2
	b = appendFrame(b, frameHeader, channel, func(b []byte) []byte {
		b = binary.BigEndian.AppendUint32(b, basic<<16)
		b = binary.BigEndian.AppendUint64(b, uint64(len(body)))
		b = binary.BigEndian.AppendUint16(b, hasDeliveryMode)
		return append(b, persistent)
	})
	return appendFrame(b, frameBody, channel, func(b []byte) []byte { return append(b, body...) })
}

// readFrame returns the next frame. Its payload is good until the next read.
func readFrame(r *bufio.Reader) (kind byte, channel uint16, payload []byte, err error) {
	head, err := r.Peek(frameHead)
	if err != nil {
		return 0, 0, nil, err
	}
	size := int(binary.BigEndian.Uint32(head[3:]))
	whole, err := r.Peek(frameHead + size + 1)
	if err != nil {
		return 0, 0, nil, err
	}
	if whole[frameHead+size] != frameEnd {
		return 0, 0, nil, errors.New("a frame does not end where it says")
	}
	_, err = r.Discard(len(whole))
	return whole[0], binary.BigEndian.Uint16(whole[1:]), whole[frameHead : frameHead+size], err
}

var errShort = errors.New("a method is shorter than its arguments")

// arguments reads a method's in order; after the first that is not there all are
// zero and err is set.
type arguments struct {
	b   []byte
	err error
}

func (a *arguments) take(n int) []byte {
	if a.err == nil && len(a.b) < n {
		a.err = fmt.Errorf("%w: %d bytes, want %d", errShort, len(a.b), n)
	}
	if a.err != nil {
		return make([]byte, n)
	}
	out := a.b[:n]
	a.b = a.b[n:]
	return out
}

func (a *arguments) bits() byte     { return a.take(1)[0] }
func (a *arguments) short() uint16  { return binary.BigEndian.Uint16(a.take(2)) }
func (a *arguments) word() uint32   { return binary.BigEndian.Uint32(a.take(4)) }
func (a *arguments) double() uint64 { return binary.BigEndian.Uint64(a.take(8)) }
func (a *arguments) text() string   { return string(a.take(int(a.bits()))) }
