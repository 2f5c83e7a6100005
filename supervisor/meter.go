package supervisor

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	sampleEvery = time.Second
	// rateOver is how many samples the rate looks back.
	rateOver = 10
	// lagEvery is how often brokers are asked for the lag of each consumer,
	// lagAtOnce of them at a time.
	lagEvery   = 10 * time.Second
	lagAtOnce  = 8
	lagTimeout = 2 * time.Second
)

// meter keeps the figures of one consumer that are not counted but sampled.
type meter struct {
	lag atomic.Pointer[pb.Lag]

	mu      sync.Mutex
	samples [rateOver + 1]int64
	n       int
}

func (m *meter) sample(settled int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.samples[m.n%len(m.samples)] = settled
	m.n++
}

// rate is messages settled per second over the last samples.
func (m *meter) rate() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	have := min(m.n, len(m.samples))
	if have < 2 {
		return 0
	}
	last := m.samples[(m.n-1)%len(m.samples)]
	first := m.samples[(m.n-have)%len(m.samples)]
	return float64(last-first) / (float64(have-1) * sampleEvery.Seconds())
}

// startMeters samples rates and asks for lags until the shutdown.
func (s *Supervisor) startMeters() {
	ctx, cancel := context.WithCancelCause(context.Background())
	s.stopMeters = cancel
	s.meters.Go(func() { every(ctx, sampleEvery, s.sampleRates) })
	s.meters.Go(func() { every(ctx, lagEvery, func() { s.askLags(ctx) }) })
}

func every(ctx context.Context, d time.Duration, f func()) {
	t := time.NewTicker(d)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			f()
		case <-ctx.Done():
			return
		}
	}
}

func (s *Supervisor) sampleRates() {
	for _, c := range s.unsorted() {
		n := c.pool.counters()
		c.meter.sample(n.acked + n.deadLettered)
	}
}

func (s *Supervisor) unsorted() []*consumer {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]*consumer, 0, len(s.consumers))
	for _, c := range s.consumers {
		out = append(out, c)
	}
	return out
}

func (s *Supervisor) askLags(ctx context.Context) {
	slots := make(chan struct{}, lagAtOnce)
	var wg sync.WaitGroup
	for _, c := range s.unsorted() {
		ep := c.pool.current()
		if ep == nil || !ep.caps.Lag {
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			wg.Wait()
			return
		}
		wg.Go(func() {
			defer func() { <-slots }()
			bounded, cancel := context.WithTimeout(ctx, lagTimeout)
			defer cancel()
			lag, err := ep.sub.Lag(bounded)
			if err != nil {
				return // the last figure stays, and shows its age
			}
			out := &pb.Lag{Messages: lag.Messages, Approximate: lag.Approximate, At: timestamppb.Now()}
			if ep.caps.Positions {
				out.Gap = new(lag.Gap)
				if lag.Uncommitted >= 0 {
					out.Uncommitted = new(lag.Uncommitted)
				}
			}
			c.meter.lag.Store(out)
		})
	}
	wg.Wait()
}

// current is the epoch that delivers, or nil.
func (p *pool) current() *epoch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ep == nil || p.ep.fenced {
		return nil
	}
	return p.ep
}
