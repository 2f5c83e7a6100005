package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"sync"
)

// amqpBody is the size of the stub's messages.
const amqpBody = 100

// amqpStub is as much of an AMQP 0-9-1 broker as a consumer needs, and costs as
// little as one can: it has one message, ready to be written. The queue "endless"
// never ends; any other name is an empty queue. What is given back is gone.
type amqpStub struct {
	listener net.Listener
	sessions sync.WaitGroup

	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
}

// newAMQPStub serves on a free port of loopback until it is closed.
func newAMQPStub(ctx context.Context) (*amqpStub, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &amqpStub{listener: l, open: map[net.Conn]struct{}{}}
	s.sessions.Go(s.accept)
	return s, nil
}

func (s *amqpStub) url() string { return "amqp://" + s.listener.Addr().String() }

// close ends all connections and returns when all of it has ended.
func (s *amqpStub) close() error {
	err := s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for c := range s.open {
		_ = c.Close() // a session ends with an error either way
	}
	s.mu.Unlock()
	s.sessions.Wait()
	return err
}

func (s *amqpStub) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		if s.closed {
			_ = c.Close()
		}
		s.open[c] = struct{}{}
		s.mu.Unlock()
		s.sessions.Go(func() {
			_ = newAMQPSession(c).serve() // a client that hangs up is no error of ours
			s.mu.Lock()
			delete(s.open, c)
			s.mu.Unlock()
			_ = c.Close()
		})
	}
}

// amqpSession is one connection of a client, on one goroutine: it answers all
// that has arrived, then delivers all that fits into the windows, as one write.
type amqpSession struct {
	r        *bufio.Reader
	w        *bufio.Writer
	channels map[uint16]*amqpChannel
	scratch  []byte
}

func newAMQPSession(c net.Conn) *amqpSession {
	return &amqpSession{
		r: bufio.NewReaderSize(c, frameMax+frameHead+1), w: bufio.NewWriterSize(c, frameMax),
		channels: map[uint16]*amqpChannel{},
	}
}

// amqpChannel is a channel with at most one consumer.
type amqpChannel struct {
	prefetch int
	window   window
	// tag is the consumer's, "" without one.
	tag string
	// message is a delivery but for its delivery tag, which stands at tagAt; nil
	// when the consumer's queue is empty.
	message []byte
	tagAt   int
}

// window is what was delivered on a channel and is not settled.
type window struct {
	// All below low is settled; next was not delivered yet. above are those between
	// the two that are settled.
	low, next uint64
	above     map[uint64]struct{}
}

func newWindow() window { return window{low: 1, next: 1, above: map[uint64]struct{}{}} }

func (w *window) unsettled() int { return int(w.next-w.low) - len(w.above) }

// settle takes one tag, or all up to it; false: it is none that is unsettled.
func (w *window) settle(tag uint64, multiple bool) bool {
	_, settled := w.above[tag]
	if settled || tag < w.low || tag >= w.next {
		return false
	}
	if multiple {
		for ; w.low < tag; w.low++ {
			delete(w.above, w.low)
		}
	}
	if tag > w.low {
		w.above[tag] = struct{}{}
		return true
	}
	w.low++
	for ; len(w.above) > 0; w.low++ {
		if _, ok := w.above[w.low]; !ok {
			break
		}
		delete(w.above, w.low)
	}
	return true
}

var errHungUp = errors.New("the client hung up")

func (s *amqpSession) serve() error {
	greeting := make([]byte, 8)
	if _, err := io.ReadFull(s.r, greeting); err != nil {
		return err
	}
	if string(greeting) != "AMQP\x00\x00\x09\x01" {
		return fmt.Errorf("the client speaks %q", greeting)
	}
	s.send(0, connectionStart, uint8(0), uint8(9), long(""), long("PLAIN"), long("en_US"))
	for {
		if s.r.Buffered() == 0 {
			s.deliver()
			if err := s.w.Flush(); err != nil {
				return err
			}
		}
		kind, channel, payload, err := readFrame(s.r)
		if err != nil {
			return err
		}
		switch kind {
		case frameHeartbeat:
			// Enough to show that the stub is alive: a client that sends none writes
			// something else, and is answered.
			s.scratch = appendFrame(s.scratch[:0], frameHeartbeat, 0, func(b []byte) []byte { return b })
			_, err = s.w.Write(s.scratch)
		case frameMethod:
			err = s.method(channel, payload)
		default:
			err = fmt.Errorf("a client that only consumes sent a frame of type %d", kind)
		}
		if err != nil {
			return errors.Join(err, s.w.Flush())
		}
	}
}

func (s *amqpSession) send(channel uint16, method uint32, args ...any) {
	s.scratch = appendMethod(s.scratch[:0], channel, method, args...)
	_, _ = s.w.Write(s.scratch) // Flush tells
}

// deliver writes what fits into the windows.
func (s *amqpSession) deliver() {
	for _, c := range s.channels {
		if c.message == nil {
			continue
		}
		for n := c.prefetch - c.window.unsettled(); n > 0; n-- {
			binary.BigEndian.PutUint64(c.message[c.tagAt:], c.window.next)
			c.window.next++
			_, _ = s.w.Write(c.message) // Flush tells
		}
	}
}

// method answers one method. An error ends the connection.
func (s *amqpSession) method(channel uint16, payload []byte) error {
	a := &arguments{b: payload}
	method := a.word()
	c := s.channels[channel]
	if c == nil && channel != 0 && method != channelOpen && method != channelCloseOK {
		return s.refuse(channel, method, 504, "the channel is not open")
	}
	switch method {
	case basicAck:
		tag := a.double()
		s.settled(channel, c, tag, a.bits()&1 != 0)
	case basicNack:
		tag := a.double()
		s.settled(channel, c, tag, a.bits()&1 != 0)
	case basicReject:
		s.settled(channel, c, a.double(), false)
	case basicConsume:
		a.short()
		queue, tag := a.text(), a.text()
		if a.bits()&2 != 0 || c.tag != "" || c.prefetch == 0 {
			return s.refuse(channel, method, 540, "one consumer a channel, with a prefetch and acknowledgements")
		}
		c.consume(channel, queue, tag)
		s.send(channel, basicConsumeOK, tag)
	case basicCancel:
		c.tag, c.message = "", nil
		s.send(channel, basicCancelOK, a.text())
	case basicQos:
		a.word()
		c.prefetch = int(a.short())
		s.send(channel, basicQosOK)
	case queueDeclare:
		a.short()
		s.send(channel, queueDeclareOK, a.text(), uint32(0), uint32(0))
	default:
		return s.control(channel, method)
	}
	return a.err
}

// control answers what opens and closes.
func (s *amqpSession) control(channel uint16, method uint32) error {
	switch method {
	case connectionStartOK:
		s.send(0, connectionTune, uint16(2047), uint32(frameMax), uint16(60))
	case connectionTuneOK, channelCloseOK:
	case connectionOpen:
		s.send(0, connectionOpenOK, "")
	case connectionClose:
		s.send(0, connectionCloseOK)
		return errHungUp
	case connectionCloseOK:
		return errHungUp
	case channelOpen:
		s.channels[channel] = &amqpChannel{window: newWindow()}
		s.send(channel, channelOpenOK, long(""))
	case channelClose:
		delete(s.channels, channel)
		s.send(channel, channelCloseOK)
	default:
		return s.refuse(channel, method, 540, "the stub has no such method")
	}
	return nil
}

// refuse ends the connection as a broker does.
func (s *amqpSession) refuse(channel uint16, method uint32, code uint16, why string) error {
	s.send(0, connectionClose, code, why, method)
	return fmt.Errorf("method %d.%d on channel %d: %s", method>>16, method&0xFFFF, channel, why)
}

// settled books an acknowledgement. One of what is not unsettled ends the
// channel, as a broker does.
func (s *amqpSession) settled(channel uint16, c *amqpChannel, tag uint64, multiple bool) {
	if !c.window.settle(tag, multiple) {
		delete(s.channels, channel)
		s.send(channel, channelClose, uint16(406), fmt.Sprintf("PRECONDITION_FAILED - unknown delivery tag %d", tag), uint32(basicAck))
	}
}

func (c *amqpChannel) consume(channel uint16, queue, tag string) {
	c.tag = tag
	if queue != endlessQueue {
		return
	}
	c.message = appendMethod(nil, channel, basicDeliver, tag, uint64(0), uint8(0), "", queue)
	c.tagAt = frameHead + 4 + 1 + len(tag)
	c.message = appendContent(c.message, channel, make([]byte, amqpBody))
}

// runAMQPServer is the stub's process: it says its URL.
func runAMQPServer(ctx context.Context, fs *flag.FlagSet, args []string, w io.Writer) error {
	if err := fs.Parse(args); err != nil {
		return err
	}
	s, err := newAMQPStub(ctx)
	if err != nil {
		return err
	}
	return errors.Join(serve(ctx, w, s.url()), s.close())
}
