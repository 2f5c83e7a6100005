package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// assigned is called by the client when the group has answered; with nothing,
// too, in each session of a cooperative group.
func (s *subscription) assigned(_ context.Context, cl *kgo.Client, parts map[string][]int32) {
	<-s.started
	member, _ := cl.GroupMetadata()
	s.rejoined(member)
	s.mu.Lock()
	for topic, list := range parts {
		for _, p := range list {
			s.adopt(topic, p, member)
		}
		if _, ok := s.topics[topic]; !ok {
			s.topics[topic] = topicInfo{} // its id is seen with its offsets
		}
	}
	select {
	case <-s.joined:
	default:
		close(s.joined)
	}
	if s.held && len(parts) > 0 {
		s.repause = true
		s.interrupt()
	}
	s.mu.Unlock()
	if len(parts) > 0 {
		// A pause for a gap was of an earlier epoch.
		cl.ResumeFetchPartitions(parts)
	}
	s.tell("the group " + s.src.group + " has given this member no partition: others have them all")
}

// adopt begins a partition's epoch; mu is held.
func (s *subscription) adopt(topic string, partition int32, member string) *tracker {
	if s.trackers[topic] == nil {
		s.trackers[topic] = map[int32]*tracker{}
	}
	t := newTracker(s, topic, partition, s.freeIndex(), member)
	s.trackers[topic][partition] = t
	return t
}

// rejoined begins anew what a former membership had and the group has given to
// this one again. Others may have had it in between, and have committed: the
// client, which goes on where it was, would handle that again and take their
// positions back.
func (s *subscription) rejoined(member string) {
	s.mu.Lock()
	stale := map[string][]int32{}
	for _, t := range s.each() {
		if t.member != member {
			stale[t.topic] = append(stale[t.topic], t.partition)
		}
	}
	s.mu.Unlock()
	ts := s.revoke(stale)
	if len(ts) == 0 {
		return
	}
	s.giveUp(ts)
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := make([]*tracker, len(ts))
	for i, t := range ts {
		fresh[i] = s.adopt(t.topic, t.partition, member)
		fresh[i].astray = true
	}
	s.c.work.Go(func() { s.locate(fresh) })
}

// freeIndex is the lowest index that no live origin has; mu is held.
func (s *subscription) freeIndex() int {
	taken := map[int]bool{}
	for _, t := range s.each() {
		taken[t.origin.Index] = true
	}
	for i := 0; ; i++ {
		if !taken[i] {
			return i
		}
	}
}

// tell lets the observer know which partitions there are, or why none.
func (s *subscription) tell(none string) {
	s.mu.Lock()
	ts, over := s.each(), s.err != nil
	s.mu.Unlock()
	if over {
		return
	}
	reason := names(ts)
	if len(ts) == 0 {
		reason = none
	}
	s.observer.Condition(supervisorv1.ConditionType_CONDITION_TYPE_ASSIGNED, len(ts) > 0, reason)
}

// revoked is called by the client while the group waits: nothing of these
// partitions is delivered any more, the caller finishes with them, and their
// positions are committed before they go.
func (s *subscription) revoked(_ context.Context, cl *kgo.Client, parts map[string][]int32) {
	<-s.started
	ts := s.revoke(parts)
	if len(ts) == 0 {
		return
	}
	if member, _ := cl.GroupMetadata(); ts[0].member != member {
		s.giveUp(ts) // they were lost before the member joined again
		s.tell(s.away())
		return
	}
	limit := s.src.revokeTimeout()
	ctx, cancel := context.WithTimeoutCause(s.life, limit*5/6, errSilent)
	if ctx.Err() == nil {
		s.observer.Revoke(ctx, origins(ts))
	}
	cancel()
	ctx, cancel = context.WithTimeoutCause(s.life, limit/6, errSilent)
	if ctx.Err() == nil {
		s.commitAll(ctx, ts)
	}
	cancel()
	s.retire(ts)
	s.tell(s.away())
}

// away is why there is no partition between two sessions.
func (s *subscription) away() string { return "waits for the group " + s.src.group }

// commitAll tries as long as ctx allows.
func (s *subscription) commitAll(ctx context.Context, ts []*tracker) {
	for {
		err := s.commit(ctx, ts)
		if err == nil || errors.Is(err, errRetired) || pause(ctx, commitAgain) != nil {
			return
		}
	}
}

// lost is called by the client when the partitions are with others already:
// nothing may be committed.
func (s *subscription) lost(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
	<-s.started
	if ts := s.revoke(parts); len(ts) > 0 {
		s.giveUp(ts)
		s.tell(s.away())
	}
}

// giveUp ends epochs that are over already: what has not started does not start.
func (s *subscription) giveUp(ts []*tracker) {
	s.retire(ts)
	ctx, cancel := context.WithCancelCause(s.life)
	cancel(errSilent)
	if s.life.Err() == nil {
		s.observer.Revoke(ctx, origins(ts))
	}
}

// revoke closes the intake of partitions.
func (s *subscription) revoke(parts map[string][]int32) []*tracker {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*tracker
	for _, t := range s.each() {
		if slices.Contains(parts[t.topic], t.partition) {
			t.revoking = true
			out = append(out, t)
		}
	}
	if len(out) > 0 {
		// Built anew: what Receive returned must not be written over.
		keep := make([]brokers.Delivery, 0, len(s.buffer))
		for i := range s.buffer {
			if t := trackerOf(&s.buffer[i]); !t.revoking {
				keep = append(keep, s.buffer[i])
			} else {
				t.free(s.buffer[i].Position)
			}
		}
		s.buffer = keep
		// The poller rests while something waits for Receive, which waits for it.
		poke(s.steer)
	}
	return out
}

// retire ends the epochs of partitions: what is settled from now on comes too
// late.
func (s *subscription) retire(ts []*tracker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(ts)
}

// drop is retire; mu is held.
func (s *subscription) drop(ts []*tracker) {
	for _, t := range ts {
		t.retired = true
		s.unconfirmed += t.unproven(t.passed)
		s.willRepeat += t.done
		t.places = places{}
		if s.trackers[t.topic][t.partition] == t {
			delete(s.trackers[t.topic], t.partition)
			if len(s.trackers[t.topic]) == 0 {
				delete(s.trackers, t.topic)
			}
		}
	}
}

func origins(ts []*tracker) []*brokers.Origin {
	out := make([]*brokers.Origin, len(ts))
	for i, t := range ts {
		out[i] = t.origin
	}
	return out
}

// groupFailed decides what the end of a member's session means. Most of it the
// client repairs by joining again.
func (s *subscription) groupFailed(err error) {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) {
		return
	}
	if errors.Is(err, kerr.FencedInstanceID) || errors.Is(err, kerr.UnreleasedInstanceID) {
		s.fail(s.fencedInstance(err))
		return
	}
	e, ok := errors.AsType[*brokers.Error](classify("join group "+s.src.group, err))
	switch {
	case !ok:
	case e.Class == brokers.Refused, e.Class == brokers.Lost, e.Class == brokers.Missing:
		s.fail(e)
	default:
		s.c.log.Debug("group session ended; the member joins again", "group", s.src.group, "error", err)
		s.c.ask4()
	}
}

// fencedInstance says who took over.
func (s *subscription) fencedInstance(err error) error {
	return &brokers.Error{
		Class: brokers.Fenced, Op: s.op,
		Err:    fmt.Errorf("another member of the group joined with the instance_id %q: %w", s.src.instance, err),
		Remedy: "give each member its own instance_id, and stop the other one",
	}
}
