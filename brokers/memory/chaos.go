package memory

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

// Chaos is how Trouble disturbs a broker.
type Chaos struct {
	// Every is the mean time between faults; default 1 s.
	Every time.Duration
	// Lasting is the longest that a fault lasts; default 2 s.
	Lasting time.Duration
	// Latency is the longest delay of a call; 0: none.
	Latency time.Duration
	// Queues are those that faults of a queue hit; without one, there are none.
	Queues []string
}

// Trouble disturbs b until ctx ends, and heals it then: connections are cut,
// frozen and lost, calls fail and are slow, deliveries are taken away, partitions
// move. What it does follows from rng alone. It returns how often each fault
// happened, so that a test can tell that it saw them.
func (b *Broker) Trouble(ctx context.Context, rng *rand.Rand, c Chaos) map[string]int {
	if c.Every <= 0 {
		c.Every = time.Second
	}
	if c.Lasting <= 0 {
		c.Lasting = 2 * time.Second
	}
	happened := make(map[string]int)
	faults := b.faults(c)
	for {
		if sleep(ctx, 1+time.Duration(rng.Int64N(int64(2*c.Every)))) != nil {
			return happened
		}
		f := faults[rng.IntN(len(faults))]
		if f.begin(rng) != nil {
			continue // the queue was deleted, or has no partitions
		}
		happened[f.name]++
		err := sleep(ctx, 1+time.Duration(rng.Int64N(int64(c.Lasting))))
		if f.end != nil {
			f.end()
		}
		if err != nil {
			return happened
		}
	}
}

// fault is one kind of trouble; end may be nil.
type fault struct {
	name  string
	begin func(*rand.Rand) error
	end   func()
}

func (b *Broker) faults(c Chaos) []fault {
	always := func(f func(*rand.Rand)) func(*rand.Rand) error {
		return func(rng *rand.Rand) error { f(rng); return nil }
	}
	faults := []fault{
		{"cut", always(func(rng *rand.Rand) { b.CutAfter(rng.IntN(4)) }), func() { b.Heal() }},
		{"blink", always(func(rng *rand.Rand) { b.CutAfter(rng.IntN(4)); b.Heal() }), nil},
		{"freeze", always(func(*rand.Rand) { b.Freeze() }), func() { b.Thaw() }},
		{"lose", always(func(*rand.Rand) { b.Lose() }), nil},
		{"fail", always(b.failOne), b.FailNoMore},
	}
	if c.Latency > 0 {
		slow := func(rng *rand.Rand) {
			for op := range opCount {
				b.Delay(op, time.Duration(rng.Int64N(int64(c.Latency))))
			}
		}
		faults = append(faults, fault{"slow", always(slow), b.DelayNoMore})
	}
	if len(c.Queues) > 0 {
		faults = append(faults,
			fault{"redeliver", func(rng *rand.Rand) error { return b.Redeliver(c.Queues[rng.IntN(len(c.Queues))]) }, nil},
			fault{"rebalance", func(rng *rand.Rand) error { return b.Rebalance(c.Queues[rng.IntN(len(c.Queues))]) }, nil},
		)
	}
	return faults
}

// failOne lets the next calls of some kind fail.
func (b *Broker) failOne(rng *rand.Rand) {
	op := Op(rng.IntN(int(opCount)))
	class := []brokers.Class{brokers.Transient, brokers.Unreachable}[rng.IntN(2)]
	b.Fail(Failure{Op: op, Times: 1 + rng.IntN(3), Class: class, Done: rng.IntN(2) == 0})
}
