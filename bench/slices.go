package main

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"
)

// side is one way to do the work that is compared. It works between start and
// stop, which the harness calls in turn, never both sides at a time.
type side struct {
	name string
	// start begins to work; on return messages flow or soon will.
	start func(context.Context) error
	// stop ends it; on return nothing is handled any more.
	stop func(context.Context) error
	// count is how many messages were handled and settled so far.
	count func() (int64, error)
}

// pace is how long and how often.
type pace struct {
	reps int
	// warm is left out of each slice.
	slice, warm time.Duration
}

// figures are one side's, one value per slice.
type figures struct {
	// perSecond are messages; cpu is time of this process per message; allocs
	// and bytes are heap allocations per message.
	perSecond, cpu, allocs, bytes []float64
}

// comparison is what compare found about b relative to a.
type comparison struct {
	a, b figures
	// ratio is that of the medians; low and high are the 10th and the 90th
	// percentile of the ratios of single repetitions.
	ratio, low, high float64
}

// compare lets both sides work in slices, the order reversed each repetition.
func compare(ctx context.Context, p pace, a, b side) (comparison, error) {
	var c comparison
	for rep := range p.reps {
		order := []struct {
			side side
			into *figures
		}{{a, &c.a}, {b, &c.b}}
		if rep%2 == 1 {
			slices.Reverse(order)
		}
		for _, o := range order {
			if err := measure(ctx, p, o.side, o.into); err != nil {
				return c, fmt.Errorf("%s: %w", o.side.name, err)
			}
		}
	}
	each := make([]float64, p.reps)
	for i := range each {
		each[i] = c.b.perSecond[i] / c.a.perSecond[i]
	}
	c.ratio = median(c.b.perSecond) / median(c.a.perSecond)
	c.low, c.high = percentile(each, 10), percentile(each, 90)
	return c, nil
}

// measure lets one side work for one slice.
func measure(ctx context.Context, p pace, s side, into *figures) error {
	runtime.GC() // both begin with an equal heap
	if err := s.start(ctx); err != nil {
		return err
	}
	if err := wait(ctx, p.warm); err != nil {
		return err
	}
	before, err := read(s)
	if err != nil {
		return err
	}
	if err := wait(ctx, p.slice); err != nil {
		return err
	}
	after, err := read(s)
	if err != nil {
		return err
	}
	if err := s.stop(ctx); err != nil {
		return err
	}
	n := float64(after.count - before.count)
	if n == 0 {
		return fmt.Errorf("handled nothing within %s: is the broker up?", p.slice)
	}
	into.perSecond = append(into.perSecond, n/after.at.Sub(before.at).Seconds())
	into.cpu = append(into.cpu, float64(after.cpu-before.cpu)/n)
	into.allocs = append(into.allocs, float64(after.allocs-before.allocs)/n)
	into.bytes = append(into.bytes, float64(after.bytes-before.bytes)/n)
	return nil
}

// reading is where a side and the process stand at a moment.
type reading struct {
	at            time.Time
	count         int64
	cpu           time.Duration
	allocs, bytes uint64
}

func read(s side) (reading, error) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	n, err := s.count()
	return reading{at: time.Now(), count: n, cpu: cpuTime(), allocs: m.Mallocs, bytes: m.TotalAlloc}, err
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// The band in which two equal sides must lie for a run to count.
const (
	equalLow  = 0.97
	equalHigh = 1.03
)

// equal tells whether c may be of two sides of one kind.
func (c comparison) equal() bool { return c.ratio >= equalLow && c.ratio <= equalHigh }

func median(v []float64) float64 { return percentile(v, 50) }

// percentile interpolates between the values around it; NaN without values.
func percentile(v []float64, p float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	at := p / 100 * float64(len(s)-1)
	i := int(at)
	if i+1 == len(s) {
		return s[i]
	}
	return s[i] + (at-float64(i))*(s[i+1]-s[i])
}
