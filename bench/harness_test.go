package main

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestPercentile(t *testing.T) {
	v := []float64{4, 1, 3, 2}
	for p, want := range map[float64]float64{0: 1, 50: 2.5, 100: 4} {
		if got := percentile(v, p); got != want {
			t.Errorf("percentile %v of %v is %v, want %v", p, v, got, want)
		}
	}
	if got := percentile(nil, 50); !math.IsNaN(got) {
		t.Errorf("percentile of nothing is %v, want NaN", got)
	}
}

// ticking is a side that handles a message every so often, in virtual time, and
// writes down when it worked.
func ticking(name string, every time.Duration, diary *[]string) side {
	var from time.Time
	var n int64
	return side{
		name:  name,
		start: func(context.Context) error { from = time.Now(); *diary = append(*diary, name); return nil },
		stop:  func(context.Context) error { n += int64(time.Since(from) / every); from = time.Time{}; return nil },
		count: func() (int64, error) { return n + int64(time.Since(from)/every), nil },
	}
}

func TestCompareTakesTurnsAndFindsTheRatio(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var diary []string
		p := pace{reps: 4, slice: time.Second, warm: time.Second}
		c, err := compare(t.Context(), p, ticking("a", time.Millisecond, &diary), ticking("b", 2*time.Millisecond, &diary))
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.Split("abbaabba", ""); !slices.Equal(diary, want) {
			t.Errorf("the sides worked in the order %v, want %v", diary, want)
		}
		if c.ratio != 0.5 || c.low != 0.5 || c.high != 0.5 {
			t.Errorf("ratio %v (%v-%v), want 0.5", c.ratio, c.low, c.high)
		}
		if c.equal() {
			t.Error("sides of which one is twice as fast passed for equal")
		}
	})
}

func TestCompareRefusesASideThatDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var diary []string
		p := pace{reps: 1, slice: time.Second}
		_, err := compare(t.Context(), p, ticking("a", time.Millisecond, &diary), ticking("b", time.Hour, &diary))
		if err == nil {
			t.Error("a side that handled nothing was measured")
		}
	})
}

func TestResultsReplaceTheirOwnSection(t *testing.T) {
	path := filepath.Join(t.TempDir(), "RESULTS.md")
	put := func(title, cell string) {
		t.Helper()
		r := &report{title: title, head: []string{"figure"}}
		r.row(cell)
		var screen bytes.Buffer
		if err := r.publish(&screen, path); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(screen.String(), cell) {
			t.Errorf("the screen does not show %q:\n%s", cell, screen.String())
		}
	}
	put("one", "old-one")
	put("two", "two")
	put("one", "new-one")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := string(b)
	if strings.Contains(got, "old-one") || strings.Count(got, "new-one") != 1 || strings.Count(got, "| two |") != 1 ||
		!strings.HasPrefix(got, resultsHead) || strings.Index(got, "new-one") > strings.Index(got, "| two |") {
		t.Errorf("the file is\n%s", got)
	}
}

func TestUnknownBenchmarkShowsTheUsage(t *testing.T) {
	err := run(t.Context(), []string{"nonsense"}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "jetstream") || strings.Contains(err.Error(), "idle-part") {
		t.Errorf("run said %v, want the benchmarks that there are", err)
	}
}
