package supervisor

import (
	"sync"
	"sync/atomic"
	"time"
)

// tick is how fine the shared clock is while handlers run: handler deadlines
// fire at most this late, and ages within a batch are this exact.
const tick = 10 * time.Millisecond

// clock is the time of one supervisor, in nanoseconds since it began, and the
// wheel that fires handler deadlines. While any handler runs, one goroutine
// ticks for all consumers; reading the ticked time costs one atomic load.
type clock struct {
	base   time.Time
	ticked atomic.Int64
	quit   chan struct{}

	mu      sync.Mutex
	pools   map[*pool]struct{}
	ticking bool
}

func newClock() *clock {
	return &clock{base: time.Now(), quit: make(chan struct{}), pools: map[*pool]struct{}{}}
}

// now reads the exact time.
func (c *clock) now() int64 { return int64(time.Since(c.base)) }

// coarse is the time of the last tick; exact to [tick] while a pool is busy.
func (c *clock) coarse() int64 { return c.ticked.Load() }

// at turns a time of this clock into a wall time.
func (c *clock) at(ns int64) time.Time { return c.base.Add(time.Duration(ns)) }

// busy adds a pool to the wheel; the pool leaves by scan returning false.
func (c *clock) busy(p *pool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pools[p] = struct{}{}
	if !c.ticking {
		c.ticking = true
		c.ticked.Store(c.now())
		go c.run()
	}
}

func (c *clock) run() {
	t := time.NewTicker(tick)
	defer t.Stop()
	var due []*pool
	for {
		select {
		case <-t.C:
		case <-c.quit:
			return
		}
		now := c.now()
		c.ticked.Store(now)
		c.mu.Lock()
		due = due[:0]
		for p := range c.pools {
			due = append(due, p)
		}
		c.mu.Unlock()
		for _, p := range due {
			p.scan(now)
		}
		c.mu.Lock()
		if len(c.pools) == 0 {
			c.ticking = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
}

// idle takes a pool off the wheel.
func (c *clock) idle(p *pool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pools, p)
}

// stop ends the ticking for good; what still runs meets no deadline any more.
func (c *clock) stop() { close(c.quit) }
