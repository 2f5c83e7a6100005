package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// burst is how many publications wait for their confirms at a time on a channel;
// each of them may be returned, and there is room for that.
const burst = 100

// publisher has a TCP connection of its own, made when it is first needed: while a
// memory or disk alarm stands the broker stops reading connections that publish,
// and acks would wait with them.
type publisher struct {
	c *conn
	// idle has room for one, and is taken by whoever dials.
	idle chan struct{}

	mu     sync.Mutex
	raw    *amqp.Connection
	free   []*confirmed
	closed bool
	// blocked says why the broker takes no publications; "" while it does. open is
	// closed while it does.
	blocked string
	open    chan struct{}
}

// confirmed is a channel in confirm mode. One batch uses it at a time, so that what
// is returned on it is that batch's.
type confirmed struct {
	raw     *amqp.Connection
	ch      *amqp.Channel
	closes  <-chan *amqp.Error
	returns <-chan amqp.Return
}

// Publish sends persistent messages that must be routed, and waits for all
// confirms.
func (c *conn) Publish(ctx context.Context, list []brokers.Publication) error {
	if len(list) == 0 {
		return nil
	}
	op := fmt.Sprintf("publish to %v", list[0].Target)
	for i := range list {
		if _, ok := list[i].Target.(target); !ok {
			return &brokers.Error{Class: brokers.Refused, Op: op, Err: errors.New("the target is not of this driver")}
		}
	}
	if err := c.Err(); err != nil {
		return err
	}
	_, err := call(ctx, c, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.pub.publish(ctx, list)
	}, nil)
	if why := c.pub.why(); err != nil && ctx.Err() != nil && why != "" {
		return &brokers.Error{
			Class: brokers.Transient, Op: op, Err: errors.New("the broker blocks publishers: " + why),
			Remedy: "free memory or disk of the broker, until its alarm ends",
		}
	}
	return classify(op, err, channelKinds())
}

// why says why the broker takes no publications.
func (p *publisher) why() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.blocked
}

func (p *publisher) publish(ctx context.Context, list []brokers.Publication) error {
	ch, err := p.take(ctx)
	if err != nil {
		return err
	}
	for part := range slices.Chunk(list, burst) {
		if err := p.ready(ctx); err != nil {
			p.give(ch)
			return err
		}
		if err := ch.publish(ctx, part); err != nil {
			_ = ch.ch.Close() // whatever is still to come on it
			return err
		}
	}
	p.give(ch)
	return nil
}

// ready waits while the broker blocks publishers: what is written then is read no
// sooner, and stays in its way.
func (p *publisher) ready(ctx context.Context) error {
	p.mu.Lock()
	open := p.open
	p.mu.Unlock()
	select {
	case <-open:
		return nil
	default:
	}
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// publish sends at most burst and waits for their confirms.
func (ch *confirmed) publish(ctx context.Context, list []brokers.Publication) error {
	sent := make([]*amqp.DeferredConfirmation, 0, len(list))
	for i := range list {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t, _ := list[i].Target.(target)
		key := t.queue
		if t.exchange != "" {
			key = string(list[i].Key)
		}
		c, err := ch.ch.PublishWithDeferredConfirm(t.exchange, key, true, false, publishing(&list[i]))
		if err != nil {
			return ch.over(err)
		}
		sent = append(sent, c)
	}
	refused := 0
	for _, c := range sent {
		select {
		case <-c.Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if !c.Acked() {
			refused++
		}
	}
	// The broker returns a message before it confirms it.
	select {
	case r, ok := <-ch.returns:
		if ok {
			return &amqp.Error{Code: int(r.ReplyCode), Reason: r.ReplyText}
		}
	default:
	}
	if refused > 0 {
		return ch.over(&brokers.Error{
			Class: brokers.Transient, Op: fmt.Sprintf("publish to %v", list[0].Target),
			Err:    fmt.Errorf("the broker refused %d of %d messages", refused, len(list)),
			Remedy: "is the queue full, and set to reject what is published?",
		})
	}
	return nil
}

// over is why the channel ended, or err when it did not.
func (ch *confirmed) over(err error) error {
	select {
	case why, ok := <-ch.closes:
		if ok {
			return why
		}
		return amqp.ErrClosed
	default:
		return err
	}
}

// take finds a channel that nobody uses, or opens one.
func (p *publisher) take(ctx context.Context) (*confirmed, error) {
	raw, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	for len(p.free) > 0 {
		ch := p.free[len(p.free)-1]
		p.free = p.free[:len(p.free)-1]
		if ch.raw == raw && !ch.ch.IsClosed() {
			p.mu.Unlock()
			return ch, nil
		}
	}
	p.mu.Unlock()
	if err := p.ready(ctx); err != nil {
		return nil, err
	}
	ch, err := raw.Channel()
	if err != nil {
		return nil, err
	}
	out := &confirmed{
		raw: raw, ch: ch,
		closes:  ch.NotifyClose(make(chan *amqp.Error, 1)),
		returns: ch.NotifyReturn(make(chan amqp.Return, burst)),
	}
	if err := ch.Confirm(false); err != nil {
		return nil, err
	}
	return out, nil
}

func (p *publisher) give(ch *confirmed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, ch)
}

// connect dials once for all who need it.
func (p *publisher) connect(ctx context.Context) (*amqp.Connection, error) {
	select {
	case p.idle <- struct{}{}:
		defer func() { <-p.idle }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	p.mu.Lock()
	raw, closed := p.raw, p.closed
	p.mu.Unlock()
	switch {
	case closed:
		return nil, &brokers.Error{Class: brokers.Fenced, Op: p.c.op(), Err: errConnDone}
	case raw != nil && !raw.IsClosed():
		return raw, nil
	}
	raw, err := p.c.dialer.dial(ctx, "publisher")
	if err != nil {
		return nil, err
	}
	blocks := raw.NotifyBlocked(make(chan amqp.Blocking, 1))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		p.c.background(func() { closeNow(raw) })
		return nil, &brokers.Error{Class: brokers.Fenced, Op: p.c.op(), Err: errConnDone}
	}
	p.raw, p.free, p.blocked, p.open = raw, nil, "", make(chan struct{})
	close(p.open)
	go p.watch(raw, blocks)
	return raw, nil
}

// watch hears that the broker blocks publishers, and no longer does.
func (p *publisher) watch(raw *amqp.Connection, blocks <-chan amqp.Blocking) {
	for b := range blocks {
		p.block(raw, b)
	}
	p.block(raw, amqp.Blocking{})
}

func (p *publisher) block(raw *amqp.Connection, b amqp.Blocking) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.raw != raw {
		return
	}
	switch was := p.blocked != ""; {
	case b.Active && !was:
		p.blocked, p.open = "no reason given", make(chan struct{})
		if b.Reason != "" {
			p.blocked = b.Reason
		}
		p.c.log.Warn("the broker blocks publishers", "reason", b.Reason)
	case !b.Active && was:
		p.blocked = ""
		close(p.open)
		p.c.log.Info("the broker takes publications again")
	}
}

// close returns what is still to be closed.
func (p *publisher) close() []*amqp.Connection {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.raw == nil {
		return nil
	}
	return []*amqp.Connection{p.raw}
}
