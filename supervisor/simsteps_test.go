//nolint:forbidigo // every test here runs in a bubble of virtual time
package supervisor_test

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
)

// step does one random thing.
func (s *sim) step() {
	name := s.names[s.rnd.IntN(len(s.names))]
	dice := s.rnd.IntN(100)
	switch leaked := s.rig.get(name).GetStatus().GetLeakedHandlers(); {
	case leaked > 0 && s.faulty && dice%3 == 0:
		s.squeeze(name, leaked)
	case dice < 15:
		s.more(name, 1+s.rnd.IntN(40))
	case dice < 60:
		s.verb(name)
	case dice < 66:
		if _, err := s.rig.tryApply(s.spec(name)); err != nil && !storeDown(err) {
			s.t.Errorf("apply: %v", err)
		}
	case dice < 71:
		s.restart()
	case dice < 73:
		s.crash()
	case dice < 76:
		s.seekTail(name)
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

// squeeze leaves, while the broker is lost, no slots but those that leaked
// handlers hold.
func (s *sim) squeeze(name string, leaked int32) {
	s.broker.Cut()
	time.Sleep(time.Second)
	_, err := s.rig.try(pb.Verb_VERB_SCALE, name, func(c *supervisor.Command) { c.Concurrency = leaked })
	if err != nil && !storeDown(err) {
		s.t.Errorf("scale of %s: %v", name, err)
	}
}

// seekTail moves positions to where they are committed already, which loses and
// repeats nothing: it meets the states that a seek is refused in, and the faults.
func (s *sim) seekTail(name string) {
	at := s.broker.Committed(name)
	if len(at) == 0 {
		return
	}
	var ps []*pb.Position
	for i, p := range at {
		ps = append(ps, &pb.Position{Origin: strconv.Itoa(i), Position: p})
	}
	began := time.Now()
	_, err := s.rig.s.Seek(s.rig.ctx, "sim", &pb.SeekRequest{Name: name, To: &pb.SeekRequest_Positions{Positions: &pb.Positions{Positions: ps}}})
	if d := time.Since(began); d > 30*time.Second {
		s.t.Errorf("seek of %s took %v", name, d)
	}
	var e *supervisor.Error
	if err != nil && !errors.As(err, &e) {
		s.t.Errorf("seek of %s: %v", name, err)
	}
	if err == nil {
		s.met.seeks.Add(1)
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

// crash ends the process as kill -9 does, and begins another over what the store
// holds: every consumer is where the last durable reply put it.
func (s *sim) crash() {
	want := map[string]*pb.Desired{}
	for _, n := range s.names {
		if c := s.rig.get(n); condition(c, pb.ConditionType_CONDITION_TYPE_NOT_DURABLE) == nil {
			want[n] = c.GetDesired()
		}
	}
	s.begins(true) // the dead one's handlers count no more
	s.live.Store(nil)
	s.rig.crash()
	s.setFault(nil)
	s.mu.Lock()
	s.unclean = true
	s.mu.Unlock()
	s.start()
	s.met.crashes.Add(1)
	for n, d := range want {
		got := s.rig.get(n).GetDesired()
		if got.GetState() != d.GetState() || len(got.GetHolds()) > len(d.GetHolds()) || got.GetScale().GetConcurrency() != d.GetScale().GetConcurrency() {
			s.t.Errorf("%s: desired %v before the crash, %v after", n, d, got)
		}
	}
}

// held checks receipts against what the broker saw meanwhile. What happened at
// the very moment of the beginning or the end may or may not count.
func (s *sim) held(queue string, rc *pb.Receipt) {
	if rc.GetOutcome() == pb.ReceiptOutcome_RECEIPT_OUTCOME_INTERRUPTED {
		return
	}
	from := rc.GetStarted().AsTime()
	to := from.Add(rc.GetDuration().AsDuration())
	least, most := map[memory.EventKind]int64{}, map[memory.EventKind]int64{}
	for _, e := range s.broker.History(queue) {
		if e.At.Before(from) || e.At.After(to.Add(time.Microsecond)) {
			continue
		}
		most[e.Kind]++
		if e.At.After(from) && e.At.Before(to.Add(-time.Microsecond)) {
			least[e.Kind]++
		}
	}
	s.met.checked.Add(1)
	for _, c := range []struct {
		what string
		n    int64
		kind memory.EventKind
	}{
		{"completed and dead-lettered", rc.GetCompleted() + rc.GetDeadLettered(), memory.Acked},
		{"returned", rc.GetReturned(), memory.Returned},
	} {
		if c.n < least[c.kind] || c.n > most[c.kind] {
			s.t.Errorf("%s: %d %s, but the broker saw %d to %d: %v", queue, c.n, c.what, least[c.kind], most[c.kind], rc)
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
	switch s.rnd.IntN(11) {
	case 9:
		s.broker.Lose()
		s.met.lost.Add(1)
	case 10:
		if s.rnd.IntN(3) > 0 {
			s.permit()
		} else if err := s.broker.Forbid(name, "access refused"); err == nil {
			s.met.forbidden.Add(1)
		}
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
		s.broker.Fail(memory.Failure{Op: memory.Op(s.rnd.IntN(10)), Times: 1 + s.rnd.IntN(3), Class: class, Done: s.rnd.IntN(2) == 0})
	case 6:
		s.broker.Delay(memory.Op(s.rnd.IntN(10)), time.Duration(s.rnd.IntN(2000))*time.Millisecond)
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

// permit gives back all rights.
func (s *sim) permit() {
	for _, n := range s.names {
		if err := s.broker.Permit(n); err != nil {
			s.t.Error(err)
		}
	}
}

// heal ends all faults.
func (s *sim) heal() {
	s.permit()
	s.setFault(nil)
	s.broker.Heal()
	s.broker.Thaw()
	s.broker.FailNoMore()
	for op := range memory.Op(10) {
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
			if !s.faulty && !s.unclean {
				s.held(n, rc)
			}
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
