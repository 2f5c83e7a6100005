package kafka

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// produceLimit is how long a record whose publisher gave up may still be tried.
const produceLimit = 30 * time.Second

// publisher is a client of its own, made for the first publication, so that
// one that has to wait holds up no commit.
type publisher struct {
	mu     sync.Mutex
	client *kgo.Client
	closed bool
}

func (p *publisher) get(c *conn) (*kgo.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fenced("publish", errConnDone)
	}
	if p.client == nil {
		opts := append(c.dialer.options(c.log),
			kgo.RequiredAcks(kgo.AllISRAcks()),
			kgo.ProducerLinger(0),
			kgo.RecordDeliveryTimeout(produceLimit),
			kgo.UnknownTopicRetries(1),
		)
		client, err := kgo.NewClient(opts...)
		if err != nil {
			return nil, err
		}
		p.client = client
	}
	return p.client, nil
}

func (p *publisher) close() {
	p.mu.Lock()
	client := p.client
	p.client, p.closed = nil, true
	p.mu.Unlock()
	if client != nil {
		client.Close()
	}
}

// Publish sends with acks=all from an idempotent producer, and returns when all
// in-sync replicas have everything. What it does not know to have arrived when
// ctx ends may still arrive. A publication's ID goes nowhere: Kafka recognises
// repetitions only within one session of a producer.
func (c *conn) Publish(ctx context.Context, ps []brokers.Publication) error {
	op := "publish"
	if err := ctx.Err(); err != nil {
		return classify(op, silence(ctx))
	}
	records := make([]*kgo.Record, len(ps))
	for i := range ps {
		t, ok := ps[i].Target.(topic)
		if !ok {
			return &brokers.Error{Class: brokers.Refused, Op: op, Err: fmt.Errorf("%v is no topic of Kafka", ps[i].Target)}
		}
		op = "publish to " + t.String()
		records[i] = record(string(t), &ps[i])
	}
	client, err := c.pub.get(c)
	if err != nil {
		return classify(op, err)
	}
	results := make(chan error, len(records))
	// The records outlive this call when the broker does not answer: one that is
	// on its way cannot be called back without a gap in the producer's sequence.
	for _, r := range records {
		client.Produce(context.WithoutCancel(ctx), r, func(_ *kgo.Record, err error) { results <- err })
	}
	for range records {
		select {
		case err := <-results:
			if err != nil {
				return classify(op, err)
			}
		case <-ctx.Done():
			return classify(op, within(ctx, ctx.Err()))
		}
	}
	return nil
}

func record(topic string, p *brokers.Publication) *kgo.Record {
	r := &kgo.Record{Topic: topic, Key: p.Key, Value: p.Body}
	if len(p.Headers) > 0 {
		r.Headers = make([]kgo.RecordHeader, len(p.Headers))
		for i, h := range p.Headers {
			r.Headers[i] = kgo.RecordHeader{Key: h.Name, Value: []byte(h.Value)}
		}
	}
	return r
}
