package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
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
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				simulate(t, seed, &met)
			})
		}
	})
	t.Logf("%d runs; %s", runs, met.String())
	if runs == simRuns {
		met.check(t)
	}
}

// sometimes counts what a run must have met for the whole to mean anything.
type sometimes struct {
	handled, acked, deadLettered, returned, abandoned, late, panics  atomic.Int64
	cutBusy, frozenBusy, storeFaults, restarts, rebalances, overtook atomic.Int64
	clean, unclean                                                   atomic.Int64
	rows                                                             sync.Map // of the transition table, as from+event
}

func (m *sometimes) counters() map[string]*atomic.Int64 {
	return map[string]*atomic.Int64{
		"handled": &m.handled, "acked": &m.acked, "dead-lettered": &m.deadLettered, "returned": &m.returned,
		"abandoned": &m.abandoned, "late": &m.late, "panics": &m.panics, "cut while busy": &m.cutBusy,
		"frozen while busy": &m.frozenBusy, "store faults": &m.storeFaults, "restarts": &m.restarts,
		"rebalances": &m.rebalances, "overtaken": &m.overtook, "clean receipts": &m.clean, "unclean receipts": &m.unclean,
	}
}

func (m *sometimes) String() string {
	var out []string
	for name, n := range m.counters() {
		out = append(out, fmt.Sprintf("%s %d", name, n.Load()))
	}
	return strings.Join(out, ", ")
}

func (m *sometimes) check(t *testing.T) {
	t.Helper()
	for name, n := range m.counters() {
		if n.Load() == 0 {
			t.Errorf("never met: %s", name)
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
	ordering pb.Ordering
	faulty   bool // faults are injected in this run

	mu        sync.Mutex
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
	dir, err := os.MkdirTemp(fastDir(), "sim")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	synctest.Test(t, func(t *testing.T) {
		s := &sim{
			seed: seed, calls: map[string]int{}, rnd: rand.New(rand.NewPCG(seed, 17)), met: met, published: map[string]string{},
			handled: map[string]int{}, running: map[string]int{},
		}
		s.faulty = s.rnd.IntN(4) > 0
		s.ordering = []pb.Ordering{pb.Ordering_ORDERING_NONE, pb.Ordering_ORDERING_KEY}[s.rnd.IntN(2)]
		s.rig = newRig(t, dir, memory.Options{CreateTargets: true})
		s.rig.handle = s.handler
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
	s.setOpening(true)
	s.rig.opened = s.live.Store
	s.rig.open()
	s.setOpening(false)
}

func (s *sim) setOpening(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening = on
}

// fastDir is a folder in memory where there is one: fsync is tested elsewhere.
func fastDir() string {
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
		return "/dev/shm"
	}
	return os.TempDir()
}

// setUp makes queues of different kinds with a consumer each.
func (s *sim) setUp() {
	kinds := []memory.QueueOptions{
		{}, {Prefetch: 10}, {Partitions: 3}, {DeliveryLimit: 20, GiveBackCounts: true, DeadLetter: "limit.dead"},
		{SingleActive: true}, {AckTimeout: 30 * time.Second},
	}
	for i := range 1 + s.rnd.IntN(3) {
		name := fmt.Sprintf("c%d", i)
		if err := s.broker.Create(name, kinds[s.rnd.IntN(len(kinds))]); err != nil {
			s.t.Fatal(err)
		}
		s.names = append(s.names, name)
		s.more(name, 1+s.rnd.IntN(60))
		s.rig.apply(s.spec(name))
	}
}

func (s *sim) spec(name string) *pb.ConsumerSpec {
	return newSpec(name, func(p *pb.ConsumerSpec) {
		p.Concurrency = new(int32(1 + s.rnd.IntN(6)))
		p.MaxInFlight = &pb.MaxInFlight{Messages: new(int32(8 + s.rnd.IntN(20)))}
		p.Ordering = s.ordering // for good: what runs under one ordering may meet what starts under another
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
func (s *sim) handler(ctx context.Context, m *supervisor.Message) supervisor.Outcome {
	id := string(m.Body)
	s.mu.Lock()
	queue := s.published[id]
	s.calls[id]++
	rnd := rand.New(rand.NewPCG(s.seed, uint64(s.calls[id])<<32|uint64(crc32.ChecksumIEEE(m.Body))))
	s.mu.Unlock()
	dice, long := rnd.IntN(100), time.Duration(1+rnd.IntN(8000))*time.Millisecond
	s.met.handled.Add(1)
	// A supervisor does not know of the leaked handlers of the one before.
	who := fmt.Sprintf("%p %s %s", s.live.Load(), queue, m.Key)
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
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handled[id]++
	return supervisor.Ack()
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
	ordered := c.GetSpec().GetOrdering() == pb.Ordering_ORDERING_KEY
	if n := s.running[who]; ordered && n > 1 && c.GetStatus().GetLeakedHandlers() == 0 {
		s.violation = fmt.Sprintf("%d calls run at once: %s", n, who)
	}
}

func (s *sim) left(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[who]--
}

// step does one random thing.
func (s *sim) step() {
	name := s.names[s.rnd.IntN(len(s.names))]
	dice := s.rnd.IntN(100)
	switch {
	case dice < 15:
		s.more(name, 1+s.rnd.IntN(40))
	case dice < 60:
		s.verb(name)
	case dice < 66:
		if _, err := s.rig.tryApply(s.spec(name)); err != nil && !storeDown(err) {
			s.t.Errorf("apply: %v", err)
		}
	case dice < 72:
		s.restart()
	default:
		if s.faulty {
			s.breakSomething(name)
		}
	}
}

func (s *sim) verb(name string) {
	v := []pb.Verb{
		pb.Verb_VERB_PAUSE, pb.Verb_VERB_PAUSE, pb.Verb_VERB_RESUME, pb.Verb_VERB_RESUME, pb.Verb_VERB_START,
		pb.Verb_VERB_START, pb.Verb_VERB_DRAIN, pb.Verb_VERB_STOP, pb.Verb_VERB_RESTART, pb.Verb_VERB_KILL, pb.Verb_VERB_SCALE,
	}[s.rnd.IntN(11)]
	began := time.Now()
	_, err := s.rig.try(v, name, func(c *supervisor.Command) {
		switch v {
		case pb.Verb_VERB_PAUSE:
			if s.rnd.IntN(3) == 0 {
				c.Until = time.Now().Add(time.Duration(1+s.rnd.IntN(10)) * time.Second)
			}
			c.Hold = []string{"", "schedule"}[s.rnd.IntN(2)]
		case pb.Verb_VERB_RESUME:
			c.AllHolds = s.rnd.IntN(2) == 0
		case pb.Verb_VERB_DRAIN:
			c.Then = pb.DrainThen(s.rnd.IntN(3))
			if s.rnd.IntN(4) == 0 {
				c.Mode, c.BacklogTimeout = pb.DrainMode_DRAIN_MODE_BACKLOG, 5*time.Second
			}
		case pb.Verb_VERB_SCALE:
			c.Concurrency = int32(s.rnd.IntN(8))
		}
	})
	limit := 20 * time.Second
	if v == pb.Verb_VERB_KILL {
		limit = 2 * time.Second
	}
	if d := time.Since(began); d > limit {
		s.t.Errorf("%v of %s took %v", v, name, d)
	}
	var e *supervisor.Error
	if err != nil && (!errors.As(err, &e) || !storeDown(err) && e.Reason != pb.ErrorReason_ERROR_REASON_INVALID_STATE_TRANSITION) {
		s.t.Errorf("%v of %s: %v", v, name, err)
	}
}

func storeDown(err error) bool {
	var e *supervisor.Error
	return errors.As(err, &e) && e.Reason == pb.ErrorReason_ERROR_REASON_STORE_UNAVAILABLE
}

// restart ends the supervisor cleanly and begins another over the same store.
func (s *sim) restart() {
	s.setFault(nil)
	want := map[string]*pb.Desired{}
	for _, n := range s.names {
		want[n] = s.rig.get(n).GetDesired()
	}
	for _, rc := range s.rig.close() {
		s.note(rc)
	}
	s.live.Store(nil)
	s.start()
	s.met.restarts.Add(1)
	for _, n := range s.names {
		got := s.rig.get(n).GetDesired()
		if got.GetState() != want[n].GetState() {
			s.t.Errorf("%s: desired %v before the restart, %v after", n, want[n], got)
		}
	}
}

func (s *sim) note(rc *pb.Receipt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch rc.GetOutcome() {
	case pb.ReceiptOutcome_RECEIPT_OUTCOME_CLEAN:
		s.met.clean.Add(1)
	case pb.ReceiptOutcome_RECEIPT_OUTCOME_OVERTAKEN:
		s.met.overtook.Add(1)
	default:
		s.met.unclean.Add(1)
		s.unclean = true
	}
	s.met.abandoned.Add(int64(len(rc.GetAbandoned())))
	s.met.returned.Add(rc.GetReturned())
}

// breakSomething injects a fault.
func (s *sim) breakSomething(name string) {
	busy := int64(0)
	if s.rig.get(name).GetStatus().GetInFlight() > 0 {
		busy = 1
	}
	class := []brokers.Class{brokers.Transient, brokers.Unreachable}[s.rnd.IntN(2)]
	switch s.rnd.IntN(9) {
	case 0:
		s.broker.Cut()
		s.met.cutBusy.Add(busy)
	case 1, 2, 3:
		s.broker.Heal()
		s.broker.Thaw()
	case 4:
		s.broker.Freeze()
		s.met.frozenBusy.Add(busy)
	case 5:
		s.broker.Fail(memory.Failure{Op: memory.Op(s.rnd.IntN(9)), Times: 1 + s.rnd.IntN(3), Class: class, Done: s.rnd.IntN(2) == 0})
	case 6:
		s.broker.Delay(memory.Op(s.rnd.IntN(9)), time.Duration(s.rnd.IntN(2000))*time.Millisecond)
	case 7:
		if err := s.broker.Rebalance(name); err == nil {
			s.met.rebalances.Add(busy)
		}
	case 8:
		if s.rnd.IntN(2) == 0 {
			s.setFault(errors.New("no space left on device"))
			s.met.storeFaults.Add(1)
		} else {
			s.setFault(nil)
		}
	}
}

func (s *sim) setFault(err error) { s.rig.setFault(err) }

// checkAll checks what must hold at every step.
func (s *sim) checkAll() {
	for _, n := range s.names {
		c := s.rig.get(n)
		if limit := c.GetSpec().GetMaxInFlight().GetMessages(); c.GetStatus().GetInFlight() > max(limit, 28) {
			s.t.Errorf("%s holds %d messages, at most %d", n, c.GetStatus().GetInFlight(), limit)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.violation != "" {
		s.t.Error(s.violation)
		s.violation = ""
	}
}

// heal ends all faults.
func (s *sim) heal() {
	s.setFault(nil)
	s.broker.Heal()
	s.broker.Thaw()
	for op := range memory.Op(9) {
		s.broker.Delay(op, 0)
	}
	time.Sleep(time.Minute) // deaf handlers return, slots come back
}

// converge starts everything and waits until every queue is empty.
func (s *sim) converge() {
	for _, n := range s.names {
		s.rig.do(pb.Verb_VERB_RESUME, n, func(c *supervisor.Command) { c.AllHolds = true })
		s.rig.do(pb.Verb_VERB_START, n)
	}
	for _, n := range s.names {
		for i := 0; ; i++ {
			d := s.broker.Depth(n)
			if d.Waiting == 0 && d.Unacked == 0 {
				break
			}
			if i == 20000 {
				s.t.Errorf("%s does not come to rest: %+v, %v", n, d, s.rig.get(n).GetStatus())
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// account holds what was published against what became of it.
func (s *sim) account() {
	for _, n := range s.names {
		out, err := s.rig.s.Receipts(&pb.ListReceiptsRequest{Name: n, Limit: 100})
		if err != nil {
			s.t.Errorf("receipts of %s: %v", n, err)
		}
		for _, rc := range out.GetReceipts() {
			s.note(rc)
		}
		k := s.rig.get(n).GetStatus().GetCounters()
		s.met.acked.Add(k.GetAcked())
		s.met.late.Add(k.GetLate())
		s.met.panics.Add(k.GetPanics())
		if k.GetLate() > 0 {
			s.unclean = true
		}
	}
	s.rig.close()
	dead := map[string]bool{}
	for _, q := range s.broker.Queues() {
		if !strings.HasSuffix(q, ".dead") {
			continue
		}
		for _, m := range s.broker.Waiting(q) {
			dead[string(m.Body)] = true
		}
	}
	s.met.deadLettered.Add(int64(len(dead)))
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.published {
		switch {
		case s.handled[id] == 0 && !dead[id]:
			s.t.Errorf("lost: %s was neither handled nor dead-lettered", id)
		case s.handled[id] > 1 && !s.faulty && !s.unclean:
			s.t.Errorf("%s was handled %d times though every receipt is clean and no fault was injected", id, s.handled[id])
		}
	}
	if err := s.broker.Misuse(); err != nil {
		s.t.Errorf("the broker's contract was broken: %v", err)
	}
}
