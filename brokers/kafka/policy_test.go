package kafka

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/brokertest"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

const (
	assignedCondition  = supervisorv1.ConditionType_CONDITION_TYPE_ASSIGNED
	connectedCondition = supervisorv1.ConditionType_CONDITION_TYPE_CONNECTED
	lossCondition      = supervisorv1.ConditionType_CONDITION_TYPE_DATA_LOSS
)

func reset(to supervisorv1.KafkaReset) func(*supervisorv1.KafkaSource) {
	return func(k *supervisorv1.KafkaSource) { k.Reset_ = to }
}

// handled has a group finish n records of a new topic t.
func (r *rig) handled(n int, change func(*supervisorv1.KafkaSource)) *supervisorv1.ConsumerSpec {
	r.Helper()
	s := r.topic("t", 1, change)
	r.put(s, 0, n)
	m := r.join(s)
	m.ack(m.receive(n)...)
	m.close()
	return s
}

// A position that the log no longer has ends as reset says: with words that name
// partition and range, or in another place that is told.
func TestPositionOutOfRangeAtTheStart(t *testing.T) {
	for to, first := range map[supervisorv1.KafkaReset]string{
		supervisorv1.KafkaReset_KAFKA_RESET_FAIL: "", supervisorv1.KafkaReset_KAFKA_RESET_EARLIEST: "m0008", supervisorv1.KafkaReset_KAFKA_RESET_LATEST: "m0020",
	} {
		t.Run(to.String(), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				s := r.handled(5, reset(to))
				r.put(s, 5, 15)
				must(r, r.fake.DeleteRecords("t", 0, 8))
				m := r.join(s)
				defer m.close()
				if first == "" {
					r.says(m.fails(brokers.Refused), "t/0", "offset 5", "8 to 19", "supctl seek")
					if at := r.committed(s)["t/0"]; at != 5 {
						r.Errorf("the position was moved to %d", at)
					}
				} else {
					r.put(s, 20, 1)
					if got := m.receive(1); string(got[0].Body) != first {
						r.Errorf("it goes on with %s, want %s", got[0].Body, first)
					}
				}
				if c := m.condition(lossCondition); !strings.HasPrefix(c, "true: ") || !strings.Contains(c, "8 to 19") {
					r.Errorf("the condition is %q", c)
				}
			})
		})
	}
}

// Retention that overtakes a consumer which works is the same loss.
func TestPositionOutOfRangeWhileHeld(t *testing.T) {
	for to, want := range map[supervisorv1.KafkaReset][]string{
		supervisorv1.KafkaReset_KAFKA_RESET_FAIL: nil, supervisorv1.KafkaReset_KAFKA_RESET_EARLIEST: numbered(8, 12), supervisorv1.KafkaReset_KAFKA_RESET_LATEST: numbered(20, 1),
	} {
		t.Run(to.String(), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				s := r.topic("t", 1, reset(to))
				r.put(s, 0, 20)
				m := r.join(s)
				ds := m.receive(5)
				m.ack(ds[:2]...)
				m.hold(ds[2:]...)
				must(r, r.fake.DeleteRecords("t", 0, 8))
				m.flow()
				if want == nil {
					r.says(m.fails(brokers.Refused), "t/0", "8 to 19")
					return
				}
				if to == supervisorv1.KafkaReset_KAFKA_RESET_LATEST {
					if ds := m.some(1, time.Second); len(ds) > 0 {
						r.Errorf("%v came of what it was to skip", bodiesOf(ds))
					}
					r.put(s, 20, 1)
				}
				got := m.receive(len(want))
				r.same("after the loss", got, want)
				m.ack(got...)
				m.hold()
				if c, err := r.Count(r.within(patience), s); err != nil || c.Remaining != 0 {
					r.Errorf("%+v, %v remain", c, err)
				}
			})
		})
	}
}

// A position of a topic that had the same name is no position of this one.
func TestPositionOfAnotherTopic(t *testing.T) {
	inBubble(t, func(r *rig) {
		s := r.handled(3, nil)
		other := *noteOf([16]byte{7})
		must(r, r.with(func(_ *kgo.Client, a *kadm.Client) error {
			o := kadm.Offsets{}
			o.Add(kadm.Offset{Topic: "t", Partition: 0, At: 2, LeaderEpoch: -1, Metadata: other})
			return a.CommitAllOffsets(r.within(patience), groupOf(s), o)
		}))
		m := r.join(s)
		r.says(m.fails(brokers.Refused), "t/0", "deleted", "supctl seek")
	})
}

// A topic that is made again while it is consumed is a loss at once, though it
// was never missing when somebody looked.
func TestTopicMadeAgain(t *testing.T) {
	inBubble(t, func(r *rig) {
		s := r.topic("t", 1, nil)
		m := r.join(s)
		must(r, r.fake.DeleteTopic("t"))
		must(r, r.fake.CreateTopic("t", 1, nil))
		r.says(m.fails(brokers.Refused), "topic t", "created again")
	})
}

// A second member with the same instance_id takes over, and the first says so.
func TestSameInstance(t *testing.T) {
	inBubble(t, func(r *rig) {
		s := r.topic("t", 1, func(k *supervisorv1.KafkaSource) { k.InstanceId = "a" })
		m := r.join(s)
		second := r.join(s)
		r.says(m.fails(brokers.Fenced), `instance_id "a"`, "its own")
		r.put(s, 0, 3)
		r.same("the second gets", second.receive(3), numbered(0, 3))
	})
}

// A static member that comes back within its session keeps its place.
func TestStaticMemberStays(t *testing.T) {
	inBubble(t, func(r *rig) {
		s := r.topic("t", 1, func(k *supervisorv1.KafkaSource) { k.InstanceId = "a" })
		m := r.join(s)
		if rep := m.close(); !rep.Released {
			r.Errorf("closed, but %+v", rep)
		}
		if c, err := r.Count(r.within(patience), s); err != nil || c.Members != 1 {
			r.Errorf("%+v, %v; a static member stays", c, err)
		}
		r.put(s, 0, 3)
		r.same("after it came back", r.join(s).receive(3), numbered(0, 3))
	})
}

// What the group refuses is told in its words.
func TestGroupRefuses(t *testing.T) {
	inBubble(t, func(r *rig) {
		s := r.topic("t", 1, nil)
		r.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.JoinGroup}, Err: kerr.GroupAuthorizationFailed, Count: -1})
		_, err := r.tryJoin(r.conn, s)
		if brokers.ClassOf(err) != brokers.Refused {
			r.Fatalf("class %v: %v", brokers.ClassOf(err), err)
		}
		r.says(err, "t-group", "GROUP_AUTHORIZATION_FAILED")
	})
}

// A pattern without topics is missing; one that comes later is consumed.
func TestPattern(t *testing.T) {
	inBubble(t, func(r *rig) {
		s := r.specOf("x", func(k *supervisorv1.KafkaSource) { k.Topics, k.TopicPattern = nil, "logs-.*" })
		_, err := r.tryJoin(r.conn, s)
		if brokers.ClassOf(err) != brokers.Missing {
			r.Fatalf("class %v: %v", brokers.ClassOf(err), err)
		}
		r.says(err, "logs-.*")
		must(r, r.create(r.within(patience), "logs-a", 1))
		must(r, r.create(r.within(patience), "more-logs-b", 1))
		m := r.join(s)
		must(r, r.create(r.within(patience), "logs-c", 1))
		for _, name := range []string{"logs-a", "more-logs-b", "logs-c"} {
			must(r, r.publish(r.within(patience), name, []brokertest.Message{{Body: []byte(name)}}))
		}
		var got []*brokers.Delivery
		for end := time.Now().Add(2 * metadataAge); len(got) < 2 && time.Now().Before(end); {
			got = append(got, m.some(5, time.Second)...)
		}
		r.same("of the pattern", got, []string{"logs-a", "logs-c"})
	})
}

// A group that begins at the end keeps its beginning: what comes while nobody is
// there is not skipped, though nothing was handled before.
func TestLatestIsKept(t *testing.T) {
	inBubble(t, func(r *rig) {
		s := r.topic("t", 1, func(k *supervisorv1.KafkaSource) { k.Start = supervisorv1.KafkaPosition_KAFKA_POSITION_LATEST })
		r.put(s, 0, 3)
		m := r.join(s)
		r.eventually("its beginning is committed", func() bool { return r.committed(s)["t/0"] == 3 })
		m.close()
		r.put(s, 3, 2)
		r.same("since the beginning", r.join(s).receive(2), numbered(3, 2))
	})
}

// An outage shorter than the session ends nothing; a longer one ends the epoch.
func TestOutages(t *testing.T) {
	inBubble(t, func(r *rig) {
		s := r.topic("t", 1, func(k *supervisorv1.KafkaSource) { k.SessionTimeout = nil }) // 45s
		r.put(s, 0, 5)
		m := r.join(s)
		m.ack(m.receive(5)...)
		m.hold()
		m.flow()
		r.gate.kill()
		r.eventually("it is told", func() bool { return strings.HasPrefix(m.condition(connectedCondition), "false: ") })
		must(r, pause(r.Context(), 10*time.Second))
		r.gate.revive()
		r.put(s, 5, 5)
		got := m.receive(5)
		r.same("after the outage", got, numbered(5, 5))
		m.ack(got...)
		r.eventually("the end of it is told", func() bool { return strings.HasPrefix(m.condition(connectedCondition), "true: ") })
		r.gate.kill()
		r.says(m.fails(brokers.Unreachable), "session_timeout")
		r.gate.revive()
	})
}

// A record that is larger than every bound of a fetch passes.
func TestLargeRecord(t *testing.T) {
	inBubble(t, func(r *rig) {
		s := r.topic("t", 1, func(k *supervisorv1.KafkaSource) {
			k.FetchMaxBytes, k.PartitionMaxBytes = new(int64(2000)), new(int64(1000))
		})
		large := bytes.Repeat([]byte("x"), 100_000)
		must(r, r.publish(r.within(patience), "t", []brokertest.Message{{Body: []byte("a")}, {Body: large}, {Body: []byte("b")}}))
		r.same("all three", r.join(s).receive(3), []string{"a", "b", string(large)})
	})
}

// A partition whose gap is too wide waits, and the others go on.
func TestGapIsBounded(t *testing.T) {
	inBubble(t, func(r *rig) {
		const limit = 20
		s := r.topic("t", 2, func(k *supervisorv1.KafkaSource) { k.MaxGapPerPartition = new(int32(limit)) })
		r.put(s, 0, 400)
		m := r.join(s)
		var stuck *brokers.Delivery
		held, got := 0, 0
		for got < 400 {
			ds := m.some(5, 2*time.Second)
			if len(ds) == 0 {
				break
			}
			for _, d := range ds {
				got++
				switch {
				case stuck == nil:
					stuck = d
				case d.Origin == stuck.Origin:
					held++
					m.ack(d)
				default:
					m.ack(d)
				}
			}
		}
		if held > limit+5 || got == 400 {
			r.Fatalf("%d records came above the one that is not finished, %d of all", held, got)
		}
		m.ack(stuck)
		for got < 400 {
			ds := m.receive(1)
			got += len(ds)
			m.ack(ds...)
		}
	})
}

// Members without a partition say so.
func TestNoPartition(t *testing.T) {
	inBubble(t, func(r *rig) {
		s := r.topic("t", 1, nil)
		first, second := r.join(s), r.join(s)
		r.eventually("one of two has it", func() bool {
			a, b := first.condition(assignedCondition), second.condition(assignedCondition)
			return strings.HasPrefix(a, "true: t/0") && strings.HasPrefix(b, "false: ") || strings.HasPrefix(b, "true: t/0") && strings.HasPrefix(a, "false: ")
		})
		if !strings.Contains(first.Capabilities().Pause+second.Capabilities().Pause, "t/0") {
			r.Errorf("the words on pausing do not name the partition: %q", first.Capabilities().Pause)
		}
	})
}
