//nolint:forbidigo // every test here runs in a bubble of virtual time
package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"google.golang.org/protobuf/types/known/durationpb"
)

// ordered is a handler that fails and dawdles at random and checks the order of
// each lane: no two calls at a time, and nothing before its predecessor is done.
type ordered struct {
	t  *testing.T
	of func(m *supervisor.Message) string

	mu      sync.Mutex
	rnd     *rand.Rand
	running map[string]int
	done    map[string]int // the number of the last acked
	calls   map[string]int
	acked   int
}

func newOrdered(t *testing.T, seed uint64, of func(*supervisor.Message) string) *ordered {
	t.Logf("seed %d", seed)
	return &ordered{
		t: t, of: of, rnd: rand.New(rand.NewPCG(seed, 1)), running: map[string]int{}, done: map[string]int{}, calls: map[string]int{},
	}
}

func (o *ordered) handle(_ context.Context, m *supervisor.Message) supervisor.Outcome {
	lane := o.of(m)
	_, number, _ := strings.Cut(string(m.Body), "-")
	n, err := strconv.Atoi(number)
	if err != nil {
		o.t.Error(err)
	}
	o.mu.Lock()
	if o.running[lane]++; o.running[lane] > 1 {
		o.t.Errorf("%d calls at once for %s", o.running[lane], lane)
	}
	if last, ok := o.done[lane]; ok && n <= last {
		o.t.Errorf("%s: %d after %d", lane, n, last)
	}
	o.calls[string(m.Body)]++
	dice, d := o.rnd.IntN(10), time.Duration(o.rnd.IntN(40))*time.Millisecond
	o.mu.Unlock()
	time.Sleep(d)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running[lane]--
	if dice < 2 {
		return supervisor.Retry(errors.New("not yet"))
	}
	o.done[lane] = n
	o.acked++
	return supervisor.Ack()
}

func (o *ordered) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.acked
}

func quickRetry(s *pb.ConsumerSpec) {
	s.Retry = &pb.Retry{
		Attempts: new(int32(1000)), Backoff: &pb.Backoff{Initial: durationpb.New(5 * time.Millisecond), Max: durationpb.New(50 * time.Millisecond)},
	}
}

// stir carries out the i-th of a round of verbs.
func stir(r *rig, i int, spec func(int32) *pb.ConsumerSpec) {
	r.t.Helper()
	switch i % 6 {
	case 0:
		r.do(pb.Verb_VERB_PAUSE, "q")
	case 1:
		r.do(pb.Verb_VERB_RESUME, "q")
	case 2:
		r.do(pb.Verb_VERB_SCALE, "q", func(c *supervisor.Command) { c.Concurrency = int32(1 + i%7) })
	case 3:
		r.apply(spec(int32(3 + i%3)))
	case 4:
		clean(r.t, r.receipt("q", r.do(pb.Verb_VERB_STOP, "q").GetOperation()))
		r.do(pb.Verb_VERB_START, "q")
	case 5:
		clean(r.t, r.receipt("q", r.do(pb.Verb_VERB_PAUSE, "q").GetOperation()))
		r.do(pb.Verb_VERB_RESUME, "q")
	}
}

// Order is kept within a lane through retries, pauses, hot changes and scaling.
func TestOrderIsKeptThroughVerbs(t *testing.T) {
	key := func(m *supervisor.Message) string { return string(m.Key) }
	partition := func(m *supervisor.Message) string { return m.Origin.Name }
	for name, c := range map[string]struct {
		queue    memory.QueueOptions
		ordering pb.Ordering
		of       func(*supervisor.Message) string
	}{
		"keys of a queue":      {memory.QueueOptions{}, pb.Ordering_ORDERING_KEY, key},
		"keys of partitions":   {memory.QueueOptions{Partitions: 3}, pb.Ordering_ORDERING_KEY, key},
		"partitions":           {memory.QueueOptions{Partitions: 3}, pb.Ordering_ORDERING_PARTITION, partition},
		"counted give-backs":   {memory.QueueOptions{GiveBackCounts: true, DeliveryLimit: 1000}, pb.Ordering_ORDERING_KEY, key},
		"a prefetching driver": {memory.QueueOptions{Prefetch: 20}, pb.Ordering_ORDERING_KEY, key},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				o := newOrdered(t, 1, c.of)
				r.handle = o.handle
				create(r, "q", c.queue)
				r.publish("q", "m", 1500)
				spec := func(n int32) *pb.ConsumerSpec {
					return newSpec("q", slots(n), small(50), quickRetry, func(s *pb.ConsumerSpec) {
						s.Ordering, s.Lanes = c.ordering, nil
						if c.ordering == pb.Ordering_ORDERING_KEY {
							s.Lanes = new(int32(16))
						}
					})
				}
				r.apply(spec(4))
				for i := 0; o.count() < 1500 && i < 1000; i++ {
					time.Sleep(150 * time.Millisecond)
					stir(r, i, spec)
				}
				if o.count() != 1500 {
					t.Errorf("%d of 1500 acked", o.count())
				}
			})
		})
	}
}

// Revoking a partition finishes its gaps, gives up its tail and lets the rest be.
func TestRevokedPartitionsAreHandedOverWithoutRepeats(t *testing.T) {
	inBubble(t, func(r *rig) {
		o := newOrdered(t, 2, func(m *supervisor.Message) string { return fmt.Sprint(m.Origin.Name, string(m.Key)) })
		r.handle = o.handle
		create(r, "q", memory.QueueOptions{Partitions: 4, RevokeTimeout: 30 * time.Second})
		r.publish("q", "m", 2000)
		r.apply(newSpec("q", slots(6), byKey, small(60), quickRetry))
		for range 40 {
			time.Sleep(100 * time.Millisecond)
			if err := r.broker.Rebalance("q"); err != nil {
				t.Fatal(err)
			}
			if r.get("q").GetStatus().GetState() == pb.State_STATE_PAUSED {
				r.do(pb.Verb_VERB_RESUME, "q")
			} else {
				clean(t, r.receipt("q", r.do(pb.Verb_VERB_PAUSE, "q").GetOperation()))
			}
		}
		r.do(pb.Verb_VERB_RESUME, "q")
		wantAcked(r, "q", 2000)
		if o.count() != 2000 {
			t.Errorf("%d acked by the handler, of 2000", o.count())
		}
	})
}
