package supervisor

import (
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// Snapshot is one consumer for metrics.
type Snapshot struct {
	Consumer  *pb.Consumer
	Durations Durations
	// MaxMessages and MaxBytes bound what is in flight.
	MaxMessages int
	MaxBytes    int64
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
		h, messages, bytes := c.pool.hist, c.pool.cfg.maxMessages, c.pool.cfg.maxBytes
		c.pool.mu.Unlock()
		f(Snapshot{
			Consumer: c.snapshot(), MaxMessages: messages, MaxBytes: bytes,
			Durations: Durations{Bounds: bounds[:], Counts: h.counts[:], Sum: time.Duration(h.sum)},
		})
	}
}

// HardLimitsFired counts the hard limits that fired since the process began.
func (s *Supervisor) HardLimitsFired() int64 { return s.hardLimits.Load() }

// BytesInFlight is what all consumers hold together.
func (s *Supervisor) BytesInFlight() int64 { return s.bytes.inUse() }
