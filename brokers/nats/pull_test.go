package nats

import (
	"testing"

	"pgregory.net/rapid"
)

// request is a pull as the server keeps it.
type openPull struct {
	pull
	left  int
	bytes int64
}

// pullModel is the server's side: requests served in turns, each ended by a
// status, but for one whose bytes are used up exactly. See nextWaiting,
// loopAndGatherMsgs and processWaiting in nats-server's consumer.go.
type pullModel struct {
	src    *source
	client pulls
	queue  []*openPull
	// held is what arrived and the client has not used; credit is the client's.
	held      int
	heldBytes int64
	credit    int
	bytes     int64
}

func (m *pullModel) ask(t *rapid.T) {
	n, most, ok := m.client.want(m.src, m.credit-m.held, m.bytes-m.heldBytes, m.held == 0)
	if !ok {
		if m.held == 0 && len(m.queue) == 0 {
			t.Fatalf("nothing is held and nothing under way, but nothing is asked for: %+v", m.client)
		}
		return
	}
	if n < 1 || n > m.src.pullMessages || most < 0 || most > m.src.pullBytes {
		t.Fatalf("asked for %d messages, %d bytes", n, most)
	}
	pl := m.client.start(n, most, 0)
	m.queue = append(m.queue, &openPull{pull: pl, left: n, bytes: most})
}

// deliver sends one message as the server would.
func (m *pullModel) deliver(t *rapid.T, weight int64) {
	for len(m.queue) > 0 {
		p := m.queue[0]
		m.queue = m.queue[1:]
		bounded := p.pull.bytes > 0
		if bounded && weight > p.bytes {
			m.client.alone = m.client.drop(p.number, p.left, p.bytes)
			continue
		}
		p.left--
		if bounded {
			if p.bytes -= weight; p.bytes == 0 {
				p.left = 0 // and no status is sent
			}
		}
		m.client.arrived(weight)
		m.held++
		m.heldBytes += weight
		switch {
		case p.left > 0:
			m.queue = append(m.queue, p)
		case p.bytes > 0:
			m.client.drop(p.number, 0, p.bytes) // "Batch Completed"
		}
		break
	}
	m.check(t)
}

func (m *pullModel) expire(t *rapid.T) {
	if len(m.queue) > 0 {
		p := m.queue[0]
		m.queue = m.queue[1:]
		m.client.drop(p.number, p.left, p.bytes)
	}
	m.check(t)
}

// check demands that the client never believes less to be under way than is: then
// more than the credit could come.
func (m *pullModel) check(t *rapid.T) {
	var left int
	var bytes int64
	for _, p := range m.queue {
		left += p.left
		bytes += p.bytes
	}
	if m.client.messages < left || m.client.bytes < bytes {
		t.Fatalf("%d messages, %d bytes are under way, the client believes %d, %d", left, bytes, m.client.messages, m.client.bytes)
	}
	if m.held > m.credit {
		t.Fatalf("%d messages are held, the credit is %d", m.held, m.credit)
	}
	if m.heldBytes > m.bytes && m.held > 1 {
		t.Fatalf("%d bytes are held in %d messages, the credit is %d", m.heldBytes, m.held, m.bytes)
	}
}

// Whatever comes and ends in whatever order, what is held stays within the credit,
// and the client always asks again: it never starves.
func TestPullsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		credit := rapid.IntRange(1, 50).Draw(t, "credit")
		bytes := rapid.Int64Range(1, 2000).Draw(t, "bytes")
		m := &pullModel{credit: credit, bytes: bytes, src: &source{
			messages: credit, bytes: bytes,
			pullMessages: rapid.IntRange(1, credit).Draw(t, "pull messages"),
			pullBytes:    rapid.Int64Range(1, bytes).Draw(t, "pull bytes"),
		}}
		t.Repeat(map[string]func(*rapid.T){
			"ask":     m.ask,
			"expire":  m.expire,
			"deliver": func(t *rapid.T) { m.deliver(t, rapid.Int64Range(1, 300).Draw(t, "weight")) },
			"use": func(*rapid.T) {
				m.held, m.heldBytes = 0, 0
			},
		})
		// In the end everything can still be delivered.
		for range 10 {
			m.held, m.heldBytes = 0, 0
			for len(m.queue) > 0 {
				m.expire(t)
			}
			m.ask(t)
			m.deliver(t, 250)
			if m.held == 0 {
				m.ask(t)
				m.deliver(t, 250)
			}
			if m.held != 1 {
				t.Fatalf("a message cannot be had: %+v", m.client)
			}
		}
	})
}
