package kafka

import (
	"context"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// Lag counts what stands in the logs of the partitions that this member has and
// was not taken. Offsets that hold no record (of transactions and compaction)
// count as well.
func (s *subscription) Lag(ctx context.Context) (brokers.Lag, error) {
	s.mu.Lock()
	err := s.err
	if err != nil {
		err = s.ended()
	}
	var topics []string
	for t := range s.trackers {
		topics = append(topics, t)
	}
	s.mu.Unlock()
	if err != nil || len(topics) == 0 {
		return brokers.Lag{}, err
	}
	spans, err := s.c.spans(ctx, s.src.committedOnly, topics...)
	if err != nil {
		return brokers.Lag{}, classify("ask for the end of "+s.src.String(), within(ctx, err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var lag brokers.Lag
	for _, t := range s.each() {
		log, ok := spans[partitionKey{t.topic, t.partition}]
		if !ok || t.next == unknown {
			lag.Approximate = true
			continue
		}
		lag.Messages += t.waiting(log.end)
		lag.Gap = max(lag.Gap, t.next-t.position)
		switch {
		case t.committed == unknown || lag.Uncommitted == unknown:
			lag.Uncommitted = unknown
		default:
			lag.Uncommitted += max(0, log.end-t.committed)
		}
	}
	return lag, nil
}
