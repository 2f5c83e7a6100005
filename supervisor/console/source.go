package console

import (
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// Source is the supervisor as the console sees it. Its methods do no I/O and
// are safe for concurrent use.
type Source interface {
	// Each calls f with every consumer, one after another, in any order.
	Each(f func(Snapshot))
	// ShuttingDown is true from the beginning of a shutdown.
	ShuttingDown() bool
	// Info says how the process is.
	Info() *supervisorv1.GetServerInfoResponse
	// HardLimits counts the stops, since the process began, that ended because
	// their hard limit fired.
	HardLimits() int64
}

// Snapshot is a consumer at one moment; it is read only.
type Snapshot struct {
	// Consumer has the spec's defaults filled in.
	Consumer *supervisorv1.Consumer
	// Durations are of all handler calls since the process began.
	Durations Histogram
}

// Histogram counts durations. All consumers have the same bounds.
type Histogram struct {
	// Bounds are the buckets' inclusive upper ends in seconds, rising.
	Bounds []float64
	// Counts are of each bucket by itself; the last, one more than there are
	// bounds, has no upper end.
	Counts []uint64
	// Sum of all durations, in seconds.
	Sum float64
}
