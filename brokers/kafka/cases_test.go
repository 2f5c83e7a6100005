package kafka

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// These follow public fault reports of other clients and frameworks, each named
// beside its test.

// franz-go#1272, #507: what was paused while members come and go is there after
// the resume.
func TestPausedPartitionsSurviveRebalances(t *testing.T) {
	inBubble(t, func(r *rig) {
		s := r.topic("t", 2, nil)
		m := r.join(s)
		m.hold()
		second := r.join(s)
		second.close()
		r.put(s, 0, 20)
		m.flow()
		ds := m.receive(20)
		r.same("after the resume", ds, numbered(0, 20))
		m.ack(ds...)
	})
}

// franz-go#1200: many short polls beside a join block nothing.
func TestPollsBesideJoins(t *testing.T) {
	inBubble(t, func(r *rig) {
		s := r.topic("t", 4, nil)
		r.put(s, 0, 40)
		m := r.join(s)
		var got []*brokers.Delivery
		joined := make(chan *member, 1)
		go func() {
			second, err := r.tryJoin(r.conn, s)
			if err != nil {
				r.Error(err)
			}
			joined <- second
		}()
		for len(joined) == 0 {
			ds := m.some(1, time.Millisecond)
			m.ack(ds...)
			got = append(got, ds...)
		}
		second := <-joined
		for len(got) < 40 {
			for _, one := range []*member{m, second} {
				ds := one.some(10, 500*time.Millisecond)
				one.ack(ds...)
				got = append(got, ds...)
			}
		}
		r.same("both got", got, numbered(0, 40))
	})
}

// franz-go#187, #753: what was polled and not handled does not hold up the end.
func TestCloseWithRecordsInHand(t *testing.T) {
	inBubble(t, func(r *rig) {
		s := r.topic("t", 1, nil)
		r.put(s, 0, 5)
		m := r.join(s)
		ds := m.receive(5)
		began := time.Now()
		rep := m.close(ds...)
		if took := time.Since(began); took > time.Second || !rep.Released || rep.Returned != 5 {
			r.Errorf("closing took %v, and reports %+v", took, rep)
		}
	})
}

// franz-go#1485: an eager group whose offsets cannot be fetched at first reads
// nothing that it has given up.
func TestEagerWithFailingOffsetFetch(t *testing.T) {
	inBubble(t, func(r *rig) {
		s := r.topic("t", 4, func(k *supervisorv1.KafkaSource) { k.Balancer = supervisorv1.KafkaBalancer_KAFKA_BALANCER_RANGE })
		r.put(s, 0, 40)
		m := r.join(s)
		m.ack(m.receive(40)...)
		m.hold()
		m.flow()
		fault := r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Err: kerr.UnknownServerError, Count: 2})
		second := r.join(s)
		must(r, fault.Wait(r.within(patience), 2))
		r.put(s, 40, 40)
		var got []*brokers.Delivery
		owner := map[string]*member{}
		for len(got) < 40 {
			for _, one := range []*member{m, second} {
				ds := one.some(40, 500*time.Millisecond)
				one.ack(ds...)
				got = append(got, ds...)
				for _, p := range partitionsOf(ds) {
					if o := owner[p]; o != nil && o != one {
						r.Errorf("%s came to both", p)
					}
					owner[p] = one
				}
			}
		}
		r.same("both got", got, numbered(40, 40))
	})
}

// franz-go#57: a process that dies with records in hand loses none.
func TestKilledBeforeHandling(t *testing.T) {
	inBubble(t, func(r *rig) {
		s := r.topic("t", 2, nil)
		r.put(s, 0, 20)
		g := newGate(r.gate.dial)
		victim, err := r.tryJoin(r.open(g), s)
		must(r, err)
		ds := victim.receive(20)
		victim.ack(of(ds, []*brokers.Origin{ds[0].Origin})...)
		g.kill()
		next := r.join(s)
		got := next.receive(20)
		r.same("the next member gets", got, numbered(0, 20))
		next.ack(got...)
	})
}

// franz-go#1484: a dead letter whose confirmation does not come is an error,
// though the broker has it: the original stays.
func TestDeadLetterWithoutAnswer(t *testing.T) {
	inBubble(t, func(r *rig) {
		s := r.topic("t", 1, nil)
		must(r, r.create(r.within(patience), "t.dead", 1))
		must(r, r.conn.Publish(r.within(patience), []brokers.Publication{{Target: topic("t.dead"), Body: []byte("a")}}))
		r.gate.deafen()
		err := r.conn.Publish(r.within(2*time.Second), []brokers.Publication{{Target: topic("t.dead"), Body: []byte("b")}})
		if brokers.ClassOf(err) != brokers.Unreachable {
			r.Errorf("published without an answer: %v", err)
		}
		r.eventually("the broker has it", func() bool {
			ms, err := r.DeadLetters(r.within(patience), s)
			return err == nil && len(ms) == 2
		})
		r.gate.hear()
	})
}

// franz-go#1164: a batch that is corrupt is neither passed nor waited at in
// silence.
func TestCorruptBatch(t *testing.T) {
	inBubble(t, func(r *rig) {
		s := r.topic("t", 1, nil)
		r.gate.corruptBy(func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("m0003"), []byte("x0003")) })
		r.put(s, 0, 5)
		m := r.join(s)
		err := m.fails(brokers.Transient)
		r.says(err, "t/0", "seek")
		m.close()
		if at := r.committed(s)["t/0"]; at > 3 {
			r.Errorf("the position is %d, past the corrupt record", at)
		}
		r.gate.corruptBy(nil)
		r.same("sound again", r.join(s).receive(5), numbered(0, 5))
	})
}

// redpanda-data/connect#4009, #4477: acks that come after partitions moved change
// nothing, and nothing is lost.
func TestLateAcksOfRevokedPartitions(t *testing.T) {
	inBubble(t, func(r *rig) {
		s := r.topic("t", 14, nil)
		r.put(s, 0, 140)
		m := r.join(s)
		ds := m.receive(140)
		moved := make(chan []*brokers.Origin, 8)
		m.revokes(func(_ context.Context, o []*brokers.Origin) { moved <- o })
		second := r.join(s)
		lost := of(ds, <-moved)
		got := second.receive(len(lost))
		r.same("the new owner gets", got, bodiesOf(lost))
		m.ack(ds...)
		rep := m.hold()
		if rep.OwnershipLost != len(lost) {
			r.Errorf("%d acks came too late, but the report is %+v", len(lost), rep)
		}
		for _, p := range partitionsOf(lost) {
			if at := r.committed(s)[p]; at > 0 {
				r.Errorf("%s was given up, but %d is committed", p, at)
			}
		}
		second.ack(got...)
		second.hold()
		if c, err := r.Count(r.within(patience), s); err != nil || c.Remaining != 0 {
			r.Errorf("%+v remain, %v", c, err)
		}
	})
}

// parallel-consumer#826: what had not started when its partition was revoked is
// not committed, whatever else was.
func TestRevokedBetweenEnqueueAndStart(t *testing.T) {
	inBubble(t, func(r *rig) {
		s := r.topic("t", 2, nil)
		r.put(s, 0, 40)
		m := r.join(s)
		ds := m.receive(40)
		first := map[string]int64{} // not started of each partition
		for _, name := range partitionsOf(ds) {
			mine := slices.DeleteFunc(slices.Clone(ds), func(d *brokers.Delivery) bool { return d.Origin.Name != name })
			m.ack(append(slices.Clone(mine[:4]), mine[5:8]...)...)
			first[name] = mine[4].Position
		}
		revoked := make(chan struct{}, 8)
		m.revokes(func(context.Context, []*brokers.Origin) { revoked <- struct{}{} })
		second := r.join(s)
		<-revoked
		second.receive(1)
		for name, at := range r.committed(s) {
			if at > first[name] {
				r.Errorf("%s: %d is committed, but %d had not started", name, at, first[name])
			}
		}
	})
}

// spring-kafka#813, #2222: a pause stands through rebalances, and a second pause
// changes nothing.
func TestPauseRebalancePause(t *testing.T) {
	inBubble(t, func(r *rig) {
		s := r.topic("t", 4, nil)
		m := r.join(s)
		m.hold()
		second := r.join(s)
		second.hold()
		r.put(s, 0, 40)
		second.close()
		m.hold()
		if ds := m.some(1, 10*time.Second); len(ds) > 0 {
			r.Fatalf("a held member was given %v", bodiesOf(ds))
		}
		m.flow()
		r.same("after the resume", m.receive(40), numbered(0, 40))
	})
}

// IBM/sarama#1608: a handler that takes longer than the hand-over loses its
// partition at the deadline, and its late success is not committed.
func TestSlowHandlerLosesItsPartition(t *testing.T) {
	inBubble(t, func(r *rig) {
		s := r.topic("t", 2, nil)
		r.put(s, 0, 20)
		m := r.join(s)
		ds := m.receive(20)
		moved := make(chan []*brokers.Origin, 8)
		m.revokes(func(ctx context.Context, o []*brokers.Origin) {
			<-ctx.Done() // it goes on for three minutes
			moved <- o
		})
		began := time.Now()
		second := r.join(s)
		lost := of(ds, <-moved)
		got := second.receive(len(lost))
		if took := time.Since(began); took > 5*time.Second { // the rebalance timeout
			r.Errorf("the partition was handed over after %v", took)
		}
		second.ack(got...)
		second.hold()
		before := r.committed(s)
		must(r, pause(r.Context(), 3*time.Minute))
		m.ack(lost...)
		m.hold()
		for _, name := range partitionsOf(lost) {
			if at := r.committed(s)[name]; at != before[name] {
				r.Errorf("%s: the late ack moved the position from %d to %d", name, before[name], at)
			}
		}
	})
}

// A member that was expelled and whose partitions another has had takes nothing
// back when it joins again: whether it is told that it is unknown, or hears of
// a rebalance and is known no more when it joins.
func TestExpelledMemberTakesNothingBack(t *testing.T) {
	for name, told := range map[string]*kerr.Error{"unknown": nil, "rebalance": kerr.RebalanceInProgress} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) { expelled(r, told) })
		})
	}
}

func expelled(r *rig, told *kerr.Error) {
	s := r.topic("t", 1, nil)
	r.put(s, 0, 10)
	g := newGate(r.gate.dial)
	m, err := r.tryJoin(r.open(g), s)
	must(r, err)
	ds := m.receive(10)
	m.ack(ds[:3]...)
	m.hold()
	m.flow()
	g.freeze()
	second := r.join(s) // gets the partition once the first is missed
	second.ack(second.receive(7)...)
	second.hold()
	second.close()
	m.ack(ds[3:5]...) // too late, and would take the position back to 5
	if told != nil {
		heartbeats := r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Err: told, Count: -1})
		joins := r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Observe: true})
		g.thaw()
		must(r, joins.Wait(r.within(patience), 1))
		heartbeats.Remove()
	} else {
		g.thaw()
	}
	r.put(s, 10, 5)
	var again []*brokers.Delivery
	for end := time.Now().Add(patience); len(again) < 5 && time.Now().Before(end); {
		again = append(again, m.some(10, time.Second)...)
	}
	r.same("after it joined again", again, numbered(10, 5))
	if at := r.committed(s)["t/0"]; at != 10 {
		r.Errorf("the position is %d, the other one had committed 10", at)
	}
	m.ack(again...)
	m.hold()
	if at := r.committed(s)["t/0"]; at != 15 {
		r.Errorf("the position is %d, want 15", at)
	}
}
