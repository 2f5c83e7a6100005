//nolint:forbidigo // every test here runs in a bubble of virtual time
package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"github.com/seed-111f5b8e/supervisord/supervisor/lifecycle"
	"google.golang.org/protobuf/types/known/durationpb"
)

// simRuns is how many seeds TestSimulation runs; SIM_RUNS overrides it, and
// SEED=n runs that one alone.
const simRuns = 2000

// TestSimulation drives the real core, store included, over the memory broker
// in virtual time: random verbs, faults, restarts and handlers, then it heals
// everything and holds the outcome against what was published. A failure prints
// its seed; SEED=n runs it again.
func TestSimulation(t *testing.T) {
	runs, first := simRuns, uint64(1)
	if s := os.Getenv("SIM_RUNS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("SIM_RUNS=%q is not a number of runs", s)
		}
		runs = n
	}
	if s := os.Getenv("SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("SEED=%q is not a seed", s)
		}
		runs, first = 1, n
	}
	var met sometimes
	t.Run("seeds", func(t *testing.T) {
		for i := range runs {
			seed := first + uint64(i)
			t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				simulate(t, seed, &met)
			})
		}
	})
	t.Logf("tally: %d runs; %s", runs, met.String())
	if runs == simRuns {
		met.check(t)
	}
}

// sometimes counts what a run must have met for the whole to mean anything.
type sometimes struct {
	handled, acked, deadLettered, returned, abandoned, late, panics  atomic.Int64
	cutBusy, frozenBusy, storeFaults, restarts, rebalances, overtook atomic.Int64
	clean, unclean, crashes, checked, lost, forbidden, seeks         atomic.Int64

	mu sync.Mutex
	// rows of the transition table that were taken, by state and event.
	rows map[[2]string]int
}

func (m *sometimes) moved(from, event string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rows == nil {
		m.rows = map[[2]string]int{}
	}
	m.rows[[2]string{from, event}]++
}

func (m *sometimes) counters() map[string]*atomic.Int64 {
	return map[string]*atomic.Int64{
		"handled": &m.handled, "acked": &m.acked, "dead-lettered": &m.deadLettered, "returned": &m.returned,
		"abandoned": &m.abandoned, "late": &m.late, "panics": &m.panics, "cut while busy": &m.cutBusy,
		"frozen while busy": &m.frozenBusy, "store faults": &m.storeFaults, "restarts": &m.restarts,
		"rebalances": &m.rebalances, "crashes": &m.crashes, "receipts checked": &m.checked, "overtaken": &m.overtook, "clean receipts": &m.clean, "unclean receipts": &m.unclean,
		"connections lost": &m.lost, "rights revoked": &m.forbidden, "seeks": &m.seeks,
	}
}

func (m *sometimes) String() string {
	var out []string
	for name, n := range m.counters() {
		out = append(out, fmt.Sprintf("%s %d", name, n.Load()))
	}
	slices.Sort(out)
	taken := 0
	for _, row := range lifecycle.Table() {
		if m.rows[[2]string{row.From.String(), row.On.String()}] > 0 {
			taken++
		}
	}
	return strings.Join(out, ", ") + fmt.Sprintf("; %d of %d rows of the transition table", taken, len(lifecycle.Table()))
}

func (m *sometimes) check(t *testing.T) {
	t.Helper()
	for name, n := range m.counters() {
		if n.Load() == 0 {
			t.Errorf("never met: %s", name)
		}
	}
	for _, row := range lifecycle.Table() {
		if m.rows[[2]string{row.From.String(), row.On.String()}] == 0 {
			t.Errorf("never taken: %v on %v", row.From, row.On)
		}
	}
}

// sim is one run.
type sim struct {
	*rig
	seed     uint64
	rnd      *rand.Rand // of the test's goroutine; each handler call has its own
	met      *sometimes
	live     atomic.Pointer[supervisor.Supervisor]
	names    []string
	ordering map[string]pb.Ordering // of each, for good: what runs under one may meet what starts under another
	faulty   bool                   // faults are injected in this run

	mu        sync.Mutex
	boot      int               // counts processes; what a dead one still does is void
	published map[string]string // id -> queue
	handled   map[string]int    // id -> acked by the handler
	calls     map[string]int    // id -> handler calls
	running   map[string]int    // consumer+key -> calls now
	opening   bool
	unclean   bool
	violation string
	n         int
}

func simulate(t *testing.T, seed uint64, met *sometimes) {
	t.Helper()
	dir := fastDir(t)
	synctest.Test(t, func(t *testing.T) {
		s := &sim{
			seed: seed, calls: map[string]int{}, rnd: rand.New(rand.NewPCG(seed, 17)), met: met, published: map[string]string{},
			handled: map[string]int{}, running: map[string]int{}, ordering: map[string]pb.Ordering{},
		}
		s.faulty = s.rnd.IntN(4) > 0
		s.rig = newRig(t, dir, memory.Options{CreateTargets: true})
		s.rig.moved = met.moved
		s.start()
		s.setUp()
		for range 20 + s.rnd.IntN(30) {
			s.step()
			s.checkAll()
			time.Sleep(time.Duration(s.rnd.IntN(3000)) * time.Millisecond)
		}
		s.heal()
		s.converge()
		s.account()
		if t.Failed() {
			t.Logf("run it again with SEED=%d", seed)
		}
	})
}

// start opens the supervisor; handlers may be called before that returns.
func (s *sim) start() {
	boot := s.begins(true)
	s.rig.opened = s.live.Store
	s.rig.handles = map[string]supervisor.Handler{
		"test": supervisor.HandlerFunc(func(ctx context.Context, m *supervisor.Message) supervisor.Outcome {
			return s.handler(ctx, boot, m)
		}),
	}
	s.rig.open()
	s.begins(false)
}

// begins tells that a process begins, or has begun.
func (s *sim) begins(now bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opening = now; now {
		s.boot++
	}
	return s.boot
}

// dead tells whether a call is of a process that is over.
func (s *sim) dead(boot int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.boot != boot
}

// setUp makes queues of different kinds with a consumer each.
func (s *sim) setUp() {
	kinds := []memory.QueueOptions{
		{}, {Prefetch: 10}, {Partitions: 3}, {DeliveryLimit: 20, GiveBackCounts: true, DeadLetter: "limit.dead"},
		{SingleActive: true, LeaveOnHold: true}, {AckTimeout: 30 * time.Second},
	}
	for i := range 1 + s.rnd.IntN(3) {
		name := fmt.Sprintf("c%d", i)
		kind := kinds[s.rnd.IntN(len(kinds))]
		if err := s.broker.Create(name, kind); err != nil {
			s.t.Fatal(err)
		}
		orderings := []pb.Ordering{pb.Ordering_ORDERING_NONE, pb.Ordering_ORDERING_KEY, pb.Ordering_ORDERING_PARTITION}
		s.ordering[name] = orderings[s.rnd.IntN(2+min(1, kind.Partitions))]
		s.names = append(s.names, name)
	}
	for _, name := range s.names {
		s.more(name, 1+s.rnd.IntN(60))
		s.rig.apply(s.spec(name))
	}
}

func (s *sim) spec(name string) *pb.ConsumerSpec {
	return newSpec(name, func(p *pb.ConsumerSpec) {
		p.Concurrency = new(int32(1 + s.rnd.IntN(6)))
		p.MaxInFlight = &pb.MaxInFlight{Messages: new(int32(8 + s.rnd.IntN(20)))}
		p.Ordering = s.ordering[name]
		p.Retry = &pb.Retry{Attempts: new(int32(1 + s.rnd.IntN(4)))}
		p.Stop = &pb.Stop{Soft: durationpb.New(3 * time.Second), Hard: durationpb.New(6 * time.Second)}
		p.DeadLetter = &pb.DeadLetter{Target: &pb.DeadLetter_Topic{Topic: name + ".dead"}}
	})
}

func (s *sim) more(queue string, n int) {
	for range n {
		s.n++
		id := fmt.Sprintf("%s-%d", queue, s.n)
		s.mu.Lock()
		s.published[id] = queue
		s.mu.Unlock()
		err := s.broker.Publish(queue, memory.Message{ID: id, Key: fmt.Appendf(nil, "k%d", s.rnd.IntN(5)), Body: []byte(id)})
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// handler acts at random; the body is the message's id.
func (s *sim) handler(ctx context.Context, boot int, m *supervisor.Message) supervisor.Outcome {
	if s.dead(boot) {
		return void(ctx)
	}
	id := string(m.Body)
	s.mu.Lock()
	queue := s.published[id]
	s.calls[id]++
	rnd := rand.New(rand.NewPCG(s.seed, uint64(s.calls[id])<<32|uint64(crc32.ChecksumIEEE(m.Body))))
	s.mu.Unlock()
	dice, long := rnd.IntN(100), time.Duration(1+rnd.IntN(8000))*time.Millisecond
	s.met.handled.Add(1)
	// A supervisor does not know of the leaked handlers of the one before.
	who := fmt.Sprintf("%d %s %s", boot, queue, m.Key)
	if s.ordering[queue] == pb.Ordering_ORDERING_PARTITION {
		who = fmt.Sprintf("%d %s", boot, m.Origin.Name)
	}
	s.entered(queue, who)
	defer s.left(who)
	switch {
	case dice < 70:
		time.Sleep(long / 400)
	case dice < 80:
		return supervisor.Retry(errors.New("it failed"))
	case dice < 84:
		panic("a bug in the handler")
	case dice < 92:
		select {
		case <-time.After(long):
		case <-ctx.Done():
			return supervisor.Retry(ctx.Err())
		}
	case dice < 95:
		time.Sleep(5 * long) // deaf
	case dice < 98:
		return supervisor.DeadLetter(errors.New("never"))
	default:
		return supervisor.Release()
	}
	if !s.effect(boot, id) {
		return void(ctx)
	}
	return supervisor.Ack()
}

// effect notes that a message was handled, unless the process is dead.
func (s *sim) effect(boot int, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.boot != boot {
		return false
	}
	s.handled[id]++
	return true
}

// void is a call of a dead process: it has no effect and no outcome.
func void(ctx context.Context) supervisor.Outcome {
	<-ctx.Done()
	return supervisor.Retry(ctx.Err())
}

// entered checks what must hold when a handler call starts.
func (s *sim) entered(queue, who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[who]++
	live := s.live.Load()
	if live == nil {
		if !s.opening {
			s.violation = "a handler call started after the shutdown"
		}
		return
	}
	c, err := live.Get("", queue)
	if err != nil {
		return
	}
	st := c.GetStatus().GetState()
	if st == pb.State_STATE_PAUSED || st == pb.State_STATE_STOPPED {
		s.violation = fmt.Sprintf("a handler call started while %s was %v", queue, st)
	}
	ordered := c.GetSpec().GetOrdering() >= pb.Ordering_ORDERING_KEY
	if n := s.running[who]; ordered && n > 1 && c.GetStatus().GetLeakedHandlers() == 0 {
		s.violation = fmt.Sprintf("%d calls run at once: %s", n, who)
	}
}

func (s *sim) left(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[who]--
}
