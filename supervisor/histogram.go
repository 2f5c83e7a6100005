package supervisor

import (
	"sort"
	"time"
)

// durationBounds are the upper bounds of the handler duration buckets.
func durationBounds() [12]time.Duration {
	return [12]time.Duration{
		10 * time.Microsecond, 100 * time.Microsecond, time.Millisecond, 5 * time.Millisecond,
		25 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, time.Second,
		2500 * time.Millisecond, 10 * time.Second, 30 * time.Second, time.Minute,
	}
}

// histogram counts handler calls by duration; the last bucket has no bound.
type histogram struct {
	counts [13]uint64
	sum    int64
}

// observe adds n calls of the same duration.
func (h *histogram) observe(ns int64, n int) {
	bounds := durationBounds()
	i := sort.Search(len(bounds), func(i int) bool { return ns <= int64(bounds[i]) })
	h.counts[i] += uint64(n)
	h.sum += ns * int64(n)
}
