//nolint:forbidigo // every test here runs in a bubble of virtual time
package supervisor_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"google.golang.org/protobuf/types/known/durationpb"
)

var errPoison = errors.New("poison")

func fails(context.Context, *supervisor.Message) supervisor.Outcome {
	return supervisor.Retry(errPoison)
}

// deadTo dead-letters after two attempts, half a second apart.
func deadTo(topic string) func(*pb.ConsumerSpec) {
	return func(s *pb.ConsumerSpec) {
		half := durationpb.New(500 * time.Millisecond)
		s.Retry = &pb.Retry{Attempts: new(int32(2)), Backoff: &pb.Backoff{Initial: half, Max: half}}
		if topic != "" {
			s.DeadLetter = &pb.DeadLetter{Target: &pb.DeadLetter_Topic{Topic: topic}}
		}
	}
}

func TestDeadLettersTellTheirStory(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.handle = func(context.Context, *supervisor.Message) supervisor.Outcome { panic("line one\nline two") }
		create(r, "q", memory.QueueOptions{})
		m := memory.Message{ID: "m", Key: []byte("k"), Body: []byte("body"), Headers: []brokers.Header{
			{Name: "mine", Value: "1"}, {Name: "mine", Value: "2"}, {Name: "supervisord-error", Value: "of an earlier life"},
		}}
		if err := r.broker.Publish("q", m); err != nil {
			t.Fatal(err)
		}
		r.apply(newSpec("q", deadTo("dead")))
		r.until("it is dead", func() bool { return r.get("q").GetStatus().GetCounters().GetDeadLettered() == 1 })
		dead := r.broker.Waiting("dead")
		if len(dead) != 1 || string(dead[0].Body) != "body" || string(dead[0].Key) != "k" {
			t.Fatalf("dead letters %v", dead)
		}
		h := map[string][]string{}
		for _, e := range dead[0].Headers {
			h[e.Name] = append(h[e.Name], e.Value)
		}
		for name, want := range map[string]string{
			"mine": "1|2", "supervisord-consumer": "default/q", "supervisord-message-id": "m", "supervisord-attempts": "2",
			"supervisord-error": "the handler panicked: line one line two", "supervisord-origin": "q",
		} {
			if got := strings.Join(h[name], "|"); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		if !strings.Contains(h["supervisord-stack"][0], "deadletter_test.go") {
			t.Errorf("stack %q", h["supervisord-stack"])
		}
		wantQueue(t, r, "q", 0, 0)
	})
}

func TestNothingIsAckedBeforeItsDeadLetterIsConfirmed(t *testing.T) {
	inBubbleWith(t, memory.Options{}, func(r *rig) { // the target is missing
		r.handle = fails
		r.publish("q", "m", 3)
		r.apply(newSpec("q", deadTo("dead"), slots(3)))
		time.Sleep(time.Minute)
		c := r.get("q")
		if c.GetStatus().GetCounters().GetAcked() != 0 || c.GetStatus().GetInFlight() != 3 {
			t.Errorf("status %v", c.GetStatus())
		}
		if b := condition(c, pb.ConditionType_CONDITION_TYPE_HEAD_BLOCKED); !b.GetStatus() || !strings.Contains(b.GetReason(), "m-") {
			t.Errorf("condition %v", b)
		}
		create(r, "dead", memory.QueueOptions{})
		r.until("all are dead", func() bool { return r.get("q").GetStatus().GetCounters().GetDeadLettered() == 3 })
		r.until("nothing is blocked", func() bool {
			return condition(r.get("q"), pb.ConditionType_CONDITION_TYPE_HEAD_BLOCKED) == nil
		})
		if n := len(r.broker.Waiting("dead")); n != 3 {
			t.Errorf("%d dead letters", n)
		}
	})
}

func TestVerbsEndThoughTheDeadLetterTargetDoesNotAnswer(t *testing.T) {
	for v, limit := range map[pb.Verb]time.Duration{
		pb.Verb_VERB_KILL: 2 * time.Second, pb.Verb_VERB_STOP: 5 * time.Second, pb.Verb_VERB_PAUSE: 12 * time.Second,
		pb.Verb_VERB_DRAIN: 5 * time.Second,
	} {
		t.Run(v.String(), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.handle = fails
				r.publish("q", "m", 1)
				r.broker.Delay(memory.OpPublish, time.Hour)
				r.apply(newSpec("q", deadTo("dead"), shortLimits))
				time.Sleep(5 * time.Second)
				res := r.do(v, "q")
				within(t, v.String(), limit, func() {
					rc := r.receipt("q", res.GetOperation())
					if rc.GetReturned() != 1 || rc.GetCompleted() != 0 || rc.GetDeadLettered() != 0 {
						t.Errorf("receipt %v", rc)
					}
				})
				wantQueue(t, r, "q", 1, 0)
			})
		})
	}
}

// The broker stored it, but the answer was lost: published again, not lost.
func TestDeadLettersWhoseConfirmationIsLost(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.handle = fails
		r.publish("q", "m", 1)
		r.broker.Fail(memory.Failure{Op: memory.OpPublish, Times: 1, Class: brokers.Transient, Done: true})
		r.apply(newSpec("q", deadTo("dead")))
		r.until("it is dead", func() bool { return r.get("q").GetStatus().GetCounters().GetDeadLettered() == 1 })
		if n := len(r.broker.Waiting("dead")); n != 2 {
			t.Errorf("%d dead letters, want 2", n)
		}
	})
}

func TestWithoutATargetItIsTriedForEverAndNamed(t *testing.T) {
	for _, ordering := range []pb.Ordering{pb.Ordering_ORDERING_NONE, pb.Ordering_ORDERING_KEY} {
		t.Run(ordering.String(), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				var h handlings
				r.handle = func(_ context.Context, m *supervisor.Message) supervisor.Outcome {
					h.add(m)
					return supervisor.DeadLetter(errPoison)
				}
				r.publish("q", "m", 1)
				r.apply(newSpec("q", deadTo(""), func(s *pb.ConsumerSpec) { s.Ordering = ordering }))
				time.Sleep(time.Minute)
				if n := h.of("m-0"); n < 60 || n > 130 {
					t.Errorf("tried %d times in a minute, every half a second", n)
				}
				b := condition(r.get("q"), pb.ConditionType_CONDITION_TYPE_HEAD_BLOCKED)
				if !b.GetStatus() || !strings.Contains(b.GetReason(), "m-0") {
					t.Errorf("condition %v", b)
				}
				res := r.do(pb.Verb_VERB_PAUSE, "q")
				rc := r.receipt("q", res.GetOperation())
				clean(t, rc)
				if rc.GetReturned() != 1 {
					t.Errorf("receipt %v", rc)
				}
				synctest.Wait()
				if b := condition(r.get("q"), pb.ConditionType_CONDITION_TYPE_HEAD_BLOCKED); b != nil {
					t.Errorf("still %v", b)
				}
			})
		})
	}
}

// A handler that a stop cancelled burns no attempt and is never dead-lettered.
func TestStoppedMessagesAreNeverDeadLettered(t *testing.T) {
	for _, v := range []pb.Verb{pb.Verb_VERB_KILL, pb.Verb_VERB_STOP} {
		for name, o := range map[string]supervisor.Outcome{
			"retry": supervisor.Retry(context.Canceled), "dead letter": supervisor.DeadLetter(context.Canceled),
		} {
			t.Run(v.String()+" "+name, func(t *testing.T) {
				inBubble(t, func(r *rig) {
					entered := make(chan struct{}, 10)
					r.handle = func(ctx context.Context, _ *supervisor.Message) supervisor.Outcome {
						entered <- struct{}{}
						<-ctx.Done()
						return o
					}
					r.publish("q", "m", 1)
					r.apply(newSpec("q", shortLimits, timeout(time.Hour), func(s *pb.ConsumerSpec) {
						deadTo("dead")(s)
						s.Retry.Attempts = new(int32(1))
					}))
					<-entered
					rc := r.receipt("q", r.do(v, "q").GetOperation())
					clean(t, rc)
					if rc.GetReturned() != 1 || rc.GetDeadLettered() != 0 || len(r.broker.Waiting("dead")) != 0 {
						t.Errorf("receipt %v", rc)
					}
				})
			})
		}
	}
}
