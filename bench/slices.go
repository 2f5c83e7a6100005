package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
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

// settings are the flags that all comparisons have.
type settings struct {
	pace

	// results, if not empty, is the file to put the table into.
	results string
	// only is part of the names of the cases to run.
	only string
	// profile, if not empty, is where to write a CPU profile.
	profile string
}

func settingsFlags(fs *flag.FlagSet) *settings {
	s := &settings{}
	fs.IntVar(&s.reps, "reps", 40, "repetitions of each comparison")
	fs.DurationVar(&s.slice, "slice", 250*time.Millisecond, "how long each side works at a time")
	fs.DurationVar(&s.warm, "warm", 30*time.Millisecond, "how long it works before it is measured")
	fs.StringVar(&s.results, "results", "", "also put the table into this file (bench/RESULTS.md)")
	fs.StringVar(&s.only, "case", "", "only the cases whose name contains this")
	fs.StringVar(&s.profile, "cpuprofile", "", "at last let the last supervised side work for five seconds and write a CPU profile of that into this file")
	return s
}

func (s *settings) wants(name string) bool { return strings.Contains(name, s.only) }

// profiled writes a profile of a side alone, if one is wanted.
func (s *settings) profiled(ctx context.Context, side side) error {
	if s.profile == "" {
		return nil
	}
	f, err := os.Create(s.profile)
	if err != nil {
		return fmt.Errorf("write the profile: %w", err)
	}
	p := pace{reps: 1, slice: 5 * time.Second, warm: s.warm}
	if err := pprof.StartCPUProfile(f); err != nil {
		return errors.Join(err, f.Close())
	}
	_, err = rounds(ctx, p, side)
	pprof.StopCPUProfile()
	return errors.Join(err, f.Close())
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

// heapFloor is what the daemon adds to the live heap, untouched, so that the
// collector runs less often; here it serves all sides alike.
const heapFloor = 32 << 20

// rounds lets the sides work in slices, one after the other, the order reversed
// each repetition. It returns the figures of each.
func rounds(ctx context.Context, p pace, sides ...side) ([]figures, error) {
	ballast := make([]byte, heapFloor)
	defer runtime.KeepAlive(ballast)
	out := make([]figures, len(sides))
	for rep := range p.reps {
		for i := range sides {
			if rep%2 == 1 {
				i = len(sides) - 1 - i
			}
			if err := measure(ctx, p, sides[i], &out[i]); err != nil {
				return nil, fmt.Errorf("%s: %w", sides[i].name, err)
			}
		}
	}
	return out, nil
}

// relate compares b with a, of the same rounds.
func relate(a, b figures) comparison {
	each := make([]float64, len(a.perSecond))
	for i := range each {
		each[i] = b.perSecond[i] / a.perSecond[i]
	}
	return comparison{
		a: a, b: b,
		ratio: median(b.perSecond) / median(a.perSecond), low: percentile(each, 10), high: percentile(each, 90),
	}
}

// compare lets both sides work and compares b with a.
func compare(ctx context.Context, p pace, a, b side) (comparison, error) {
	f, err := rounds(ctx, p, a, b)
	if err != nil {
		return comparison{}, err
	}
	return relate(f[0], f[1]), nil
}

// fastest compares ways to do the same, with fewer repetitions, and returns the
// index of the fastest and what there is to tell.
func fastest(ctx context.Context, p pace, ways ...side) (int, string, error) {
	p.reps = max(3, p.reps/4)
	f, err := rounds(ctx, p, ways...)
	if err != nil {
		return 0, "", err
	}
	best := 0
	told := make([]string, len(ways))
	for i := range ways {
		told[i] = fmt.Sprintf("%s %.2f", ways[i].name, relate(f[0], f[i]).ratio)
		if median(f[i].perSecond) > median(f[best].perSecond) {
			best = i
		}
	}
	return best, strings.Join(told, ", "), nil
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
