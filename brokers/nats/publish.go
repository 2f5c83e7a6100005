package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// publisher has a connection of its own, made when it is first needed: the
// server stalls the reading of a client whose publications have a slow
// subscriber somewhere (stalledWait in nats-server's client.go), and large
// bodies take their time; neither may hold up acks.
type publisher struct {
	dialer *dialer
	// heard takes what the server says about no call.
	heard  nats.ErrHandler
	mu     sync.Mutex
	js     jetstream.JetStream
	closed bool
}

// Publish sends a batch and waits for every PubAck.
func (c *conn) Publish(ctx context.Context, list []brokers.Publication) error {
	if len(list) == 0 {
		return nil
	}
	op := fmt.Sprintf("publish to %v", list[0].Target)
	msgs := make([]*nats.Msg, len(list))
	to := func(subject string) bool {
		return slices.ContainsFunc(msgs, func(m *nats.Msg) bool { return m.Subject == subject })
	}
	for i := range list {
		to, ok := list[i].Target.(subject)
		if !ok {
			return &brokers.Error{Class: brokers.Refused, Op: op, Err: errors.New("the target is not of this driver")}
		}
		msgs[i] = message(to, &list[i])
	}
	_, err := call(ctx, c, to, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.pub.publish(ctx, msgs)
	}, nil)
	return classify(op, err)
}

// serverHeaders begin with this and tell the server what to do with a message:
// Nats-Rollup purges, Nats-Expected-* refuses, Nats-TTL deletes. They were meant
// for the stream that a message comes from, so a copy of it goes without.
const serverHeaders = "Nats-"

func message(to subject, p *brokers.Publication) *nats.Msg {
	m := &nats.Msg{Subject: string(to), Data: p.Body, Header: make(nats.Header, len(p.Headers)+1)}
	for _, h := range p.Headers {
		if !strings.HasPrefix(h.Name, serverHeaders) {
			m.Header[h.Name] = append(m.Header[h.Name], h.Value)
		}
	}
	if p.ID != "" {
		m.Header[jetstream.MsgIDHeader] = []string{p.ID}
	}
	return m
}

// publish uses nats.go: see call.
func (p *publisher) publish(ctx context.Context, msgs []*nats.Msg) error {
	js, err := p.connect(ctx)
	if err != nil {
		return err
	}
	acks := make([]jetstream.PubAckFuture, 0, len(msgs))
	for _, m := range msgs {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		ack, err := js.PublishMsgAsync(m, jetstream.WithStallWait(publishStall))
		if err != nil {
			return err
		}
		acks = append(acks, ack)
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

const (
	// publishWindow is how many publications may wait for their PubAck; more
	// wait for room, for as long as publishStall.
	publishWindow = 1024
	publishStall  = backgroundLimit
)

// connect dials once; nats.go reconnects from then on, unless it gave up.
func (p *publisher) connect(ctx context.Context) (jetstream.JetStream, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errConnDone
	}
	if p.js != nil && !p.js.Conn().IsClosed() {
		return p.js, nil
	}
	nc, err := p.dialer.dial(ctx, "publisher", nats.ErrorHandler(p.heard))
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(publishWindow),
		jetstream.WithPublishAsyncTimeout(backgroundLimit))
	if err != nil {
		nc.Close()
		return nil, err
	}
	p.js = js
	return js, nil
}

func (p *publisher) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.js != nil {
		p.js.Conn().Close()
	}
}
