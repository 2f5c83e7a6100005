package supervisor

import "time"

// backoff doubles from initial to max.
type backoff struct{ initial, max time.Duration }

// after draws the wait before attempt n+1, evenly from 0 to the n-th step
// (full jitter), so that many who failed together do not come back together.
func (b backoff) after(n int, jitter func() float64) time.Duration {
	step := b.initial
	for i := 1; i < n && step < b.max; i++ {
		step *= 2
	}
	return time.Duration(jitter() * float64(min(step, b.max)))
}
