package supervisor

import (
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// Snapshot is one consumer for metrics.
type Snapshot struct {
	Consumer  *pb.Consumer
	Durations Durations
	// MaxMessages bounds Consumer.status.in_flight.
	MaxMessages int
}

// Durations counts handler calls by how long they took. Counts are per bucket,
// not cumulative; the last has no bound.
type Durations struct {
	Bounds []time.Duration
	Counts []uint64
	Sum    time.Duration
}

// Each hands every consumer to f, one after another, in no order.
func (s *Supervisor) Each(f func(Snapshot)) {
	bounds := durationBounds()
	for _, c := range s.unsorted() {
		c.pool.mu.Lock()
		h, limit := c.pool.hist, c.pool.cfg.maxMessages
		c.pool.mu.Unlock()
		f(Snapshot{
			Consumer: c.snapshot(), MaxMessages: limit,
			Durations: Durations{Bounds: bounds[:], Counts: h.counts[:], Sum: time.Duration(h.sum)},
		})
	}
}

// HardLimitsFired counts the hard limits that fired since the process began.
func (s *Supervisor) HardLimitsFired() int64 { return s.hardLimits.Load() }

// BytesInFlight is what all consumers hold together.
func (s *Supervisor) BytesInFlight() int64 { return s.bytes.inUse() }
