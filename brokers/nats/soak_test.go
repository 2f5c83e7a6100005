package nats

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// soak publishes and consumes while a test disturbs the server, and keeps the
// books.
type soak struct {
	*rig

	// stop ends the producer, which closes produced.
	stop, produced chan struct{}
	wg             sync.WaitGroup

	mu        sync.Mutex
	confirmed map[int]bool // the server has stored it
	acked     map[int]int  // handled and settled, how often
	epochs    int
}

func newSoak(t *testing.T) *soak {
	t.Helper()
	s := &soak{rig: newRig(t), stop: make(chan struct{}), produced: make(chan struct{}), confirmed: map[int]bool{}, acked: map[int]int{}}
	s.wg.Go(s.produce)
	s.wg.Go(s.consume)
	return s
}

// produce publishes numbers until stopped; what is not confirmed is not counted,
// though it may be stored.
func (s *soak) produce() {
	defer close(s.produced)
	for n := 0; ; {
		err := s.client(func(_ *nats.Conn, js jetstream.JetStream) error {
			for {
				select {
				case <-s.stop:
					return nil
				default:
				}
				n++
				ctx := s.within(time.Second)
				if _, err := js.Publish(ctx, "s.in", strconv.AppendInt(nil, int64(n), 10)); err != nil {
					return err
				}
				s.mu.Lock()
				s.confirmed[n] = true
				s.mu.Unlock()
			}
		})
		select {
		case <-s.stop:
			return
		default:
		}
		if err == nil {
			return
		}
	}
}

func (s *soak) consume() {
	plan := s.plan(func(_ *supervisorv1.ConsumerSpec, n *supervisorv1.NatsSource) {
		n.AckWait, n.PullExpiry = durationpb.New(2*time.Second), durationpb.New(time.Second)
	})
	for !s.done() {
		sub, err := s.conn.Subscribe(s.within(time.Second), plan.Source, nil)
		if err != nil {
			continue // it returns at its context's end, or the connection is being made
		}
		s.mu.Lock()
		s.epochs++
		s.mu.Unlock()
		var mine []brokers.Delivery
		for err == nil && !s.done() {
			if mine, err = sub.Receive(s.within(time.Second), brokers.Credit{Messages: 100, Bytes: 1 << 20}); errors.Is(err, context.DeadlineExceeded) {
				err = nil
				continue
			}
			if err == nil {
				err = sub.Settle(s.within(time.Second), settlements(brokers.Ack, mine))
			}
			if err == nil {
				s.book(mine)
				mine = nil
			}
		}
		if _, err := sub.Close(s.within(5*time.Second), refs(mine)); err != nil {
			s.Errorf("close: %v", err)
		}
	}
}

func (s *soak) book(ds []brokers.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range ds {
		n, err := strconv.Atoi(string(ds[i].Body))
		if err != nil {
			s.Errorf("a body is %q", ds[i].Body)
		}
		s.acked[n]++
	}
}

func (s *soak) counts() (confirmed, acked, epochs int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.confirmed), len(s.acked), s.epochs
}

// done: the producer has ended, and all it got confirmed is handled.
func (s *soak) done() bool {
	select {
	case <-s.produced:
	default:
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := range s.confirmed {
		if s.acked[n] == 0 {
			return false
		}
	}
	return true
}

// progress waits until so many more messages are handled.
func (s *soak) progress(n int) {
	s.Helper()
	_, before, _ := s.counts()
	poll(s, patience, "messages are handled", func() bool { _, now, _ := s.counts(); return now >= before+n })
}

// finish waits for the rest and checks the books: nothing is lost, and what came
// twice is no more than what was under way at the faults.
func (s *soak) finish(faults int) {
	s.Helper()
	close(s.stop)
	poll(s, 2*patience, "all that was confirmed is handled", s.done)
	s.wg.Wait()
	confirmed, _, epochs := s.counts()
	twice := 0
	for _, n := range s.acked {
		twice += n - 1
	}
	s.Logf("%d confirmed, %d handled twice, %d faults, %d epochs", confirmed, twice, faults, epochs)
	if confirmed < 1000 || epochs <= faults/2 {
		s.Errorf("the test saw too little: %d messages, %d epochs", confirmed, epochs)
	}
	if most := faults * (100 + 1000); twice > most {
		s.Errorf("%d came twice, at most %d could have been under way", twice, most)
	}
}

// Killed and started again under load, the server loses nothing that it confirmed.
func TestKilledUnderLoad(t *testing.T) {
	s := newSoak(t)
	const kills = 6
	for range kills {
		s.progress(200)
		s.process.kill()
		s.down()
		s.process.start()
	}
	s.progress(200)
	s.finish(kills)
}

// Cut at random moments under load, nothing is lost.
func TestCutUnderLoad(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	s := newSoak(t)
	const cuts = 20
	for range cuts {
		s.progress(20 + rnd.IntN(100))
		s.proxy.cut()
		s.progress(1)
	}
	s.finish(cuts)
}

// Frozen under load for longer than ack_wait, nothing is lost.
func TestFrozenUnderLoad(t *testing.T) {
	s := newSoak(t)
	s.progress(500)
	s.process.freeze()
	thaw := time.NewTimer(4 * time.Second)
	<-thaw.C
	s.process.thaw()
	s.progress(500)
	s.finish(1)
}
