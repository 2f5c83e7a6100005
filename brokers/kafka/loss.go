package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// span is what a partition's log has: from first up to, and without, end.
type span struct{ first, end int64 }

func (s span) has(offset int64) bool { return s.first <= offset && offset <= s.end }

func (s span) String() string {
	if s.first == s.end {
		return fmt.Sprintf("the log is empty and goes on at %d", s.end)
	}
	return fmt.Sprintf("the log has %d to %d", s.first, s.end-1)
}

// spans asks for the logs of topics. Partitions that did not answer are left out.
func (c *conn) spans(ctx context.Context, committedOnly bool, topics ...string) (map[partitionKey]span, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, commitLimit, errSilent)
	defer cancel()
	first, err := c.adm.ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, within(ctx, err)
	}
	list := c.adm.ListEndOffsets
	if committedOnly {
		list = c.adm.ListCommittedOffsets
	}
	end, err := list(ctx, topics...)
	if err != nil {
		return nil, within(ctx, err)
	}
	out := map[partitionKey]span{}
	first.Each(func(f kadm.ListedOffset) {
		if e, ok := end.Lookup(f.Topic, f.Partition); ok && f.Err == nil && e.Err == nil {
			out[partitionKey{f.Topic, f.Partition}] = span{f.Offset, e.Offset}
		}
	})
	return out, nil
}

// adjust is called by the client with where the partitions just assigned begin.
// They begin at exact offsets, which are committed: a partition that moves on
// before its first ack begins in the same place at its next owner, though new
// records came meanwhile. A position that the log does not have is a loss.
func (s *subscription) adjust(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	topics := make([]string, 0, len(offsets))
	for t := range offsets {
		topics = append(topics, t)
	}
	if len(topics) == 0 {
		return offsets, nil
	}
	spans, err := s.c.spans(ctx, s.src.committedOnly, topics...)
	if err != nil {
		// Then the client finds out by itself: it knows the start position, and
		// never goes on past a loss.
		s.c.ask4()
		return offsets, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic, parts := range offsets {
		for p := range parts {
			t := s.trackers[topic][p]
			span, known := spans[partitionKey{topic, p}]
			if !known || t == nil {
				continue
			}
			at, ok := s.startOf(t, span)
			if !ok {
				delete(parts, p)
				continue
			}
			if at != t.committed {
				parts[p] = kgo.NewOffset().At(at)
			}
			t.begin(at)
		}
	}
	poke(s.dirty)
	return offsets, nil
}

// startOf decides where a partition begins; false: it must not. mu is held.
func (s *subscription) startOf(t *tracker, log span) (int64, bool) {
	switch {
	case t.committed == unknown && s.src.start == supervisorv1.KafkaPosition_KAFKA_POSITION_LATEST:
		return log.end, true
	case t.committed == unknown:
		return log.first, true
	case !t.foreign && log.has(t.committed):
		return t.committed, true
	}
	why := outOfRange(t.origin.Name, t.committed, log)
	if t.foreign {
		why = fmt.Errorf("the group's position in %s is of a topic of that name that was deleted; %s of the one that is there now", t.origin.Name, log)
	}
	s.losses(why.Error())
	if s.src.fails() {
		go s.fail(s.stopped(t.origin.Name, why))
		return 0, false
	}
	t.committed = unknown // it may be lowered: `reset` says so
	return s.src.resetTo(log), true
}

func outOfRange(name string, offset int64, log span) error {
	return fmt.Errorf("the offset %d of %s is out of range: %s", offset, name, log)
}

// resetTo is where to go on after a loss.
func (s *source) resetTo(log span) int64 {
	if s.reset == supervisorv1.KafkaReset_KAFKA_RESET_LATEST {
		return log.end
	}
	return log.first
}

// losses lets the observer and the log know.
func (s *subscription) losses(why string) {
	s.c.log.Warn("records are lost", "group", s.src.group, "why", why)
	s.observer.Condition(supervisorv1.ConditionType_CONDITION_TYPE_DATA_LOSS, true, why)
}

// stopped: nothing goes on until an operator has chosen where.
func (s *subscription) stopped(name string, why error) error {
	return &brokers.Error{
		Class: brokers.Refused, Op: "read " + name, Err: why,
		Remedy: "choose where to go on with `supctl seek`, or set source.kafka.reset; then start the consumer",
	}
}

// lose is told by the poller that what was to be read next of a partition is
// gone: retention took it, or the log was cut. What follows takes time, and the
// poller has none.
func (s *subscription) lose(topic string, partition int32, cut *kgo.ErrDataLoss) {
	s.mu.Lock()
	t := s.trackers[topic][partition]
	if t == nil || t.losing || t.revoking || s.err != nil {
		s.mu.Unlock()
		return
	}
	t.losing, t.paused = true, true
	s.mu.Unlock()
	s.client.PauseFetchPartitions(byTopic([]*tracker{t}))
	s.c.work.Go(func() { s.decide(t, cut) })
}

// decide ends the epoch, or begins a new one of the partition where `reset` says.
func (s *subscription) decide(t *tracker, cut *kgo.ErrDataLoss) {
	spans, err := s.c.spans(s.life, s.src.committedOnly, t.topic)
	log, ok := spans[partitionKey{t.topic, t.partition}]
	if err == nil && !ok {
		err = errSilent
	}
	if err != nil {
		s.fail(classify("ask for the offsets of "+t.origin.Name, err))
		return
	}
	s.mu.Lock()
	why := outOfRange(t.origin.Name, max(t.cursor, t.committed), log)
	if cut != nil {
		why = fmt.Errorf("the log of %s was cut at %d, below the offset %d that had been read: %s", t.origin.Name, cut.ResetTo, cut.ConsumedTo, log)
	}
	s.mu.Unlock()
	s.losses(why.Error())
	if s.src.fails() {
		s.fail(s.stopped(t.origin.Name, why))
		return
	}
	s.restart(t, s.src.resetTo(log))
}

// restart finishes with a partition as if it were revoked, and begins it anew.
func (s *subscription) restart(t *tracker, at int64) {
	ts := s.revoke(byTopic([]*tracker{t}))
	ctx, cancel := context.WithTimeoutCause(s.life, s.src.revokeTimeout(), errSilent)
	s.observer.Revoke(ctx, origins(ts))
	cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.retired || s.err != nil {
		return
	}
	s.drop(ts)
	s.resume(s.adopt(t.topic, t.partition, t.member), at)
}

// resume lets a partition go on at an offset; mu is held.
func (s *subscription) resume(t *tracker, at int64) {
	t.begin(at)
	t.refetch(at)
	t.astray = false
	t.paused = true // the client may have it paused; rewinding ends that
	s.interrupt()
	poke(s.dirty)
}
