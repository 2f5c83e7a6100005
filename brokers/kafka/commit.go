package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

const (
	// commitLimit is how long the broker may take for one commit.
	commitLimit = 5 * time.Second
	// commitAgain is the pause before the next attempt of whoever waits for one.
	commitAgain = 100 * time.Millisecond
)

// commitSoon wakes the committer, at once when much has gathered; mu is held.
func (s *subscription) commitSoon() {
	if s.fresh > 0 {
		poke(s.dirty)
	}
}

// commits is the committer: positions go to the broker every commit_interval or
// commit_every acks, all partitions together.
func (s *subscription) commits() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	armed := false
	for {
		select {
		case <-s.dirty:
			if s.many() {
				break
			}
			if !armed {
				armed = true
				timer.Reset(s.src.commitInterval)
			}
			continue
		case <-timer.C:
		case <-s.life.Done():
			return
		}
		armed = false
		ctx, cancel := context.WithTimeoutCause(s.life, commitLimit, errSilent)
		err := s.commit(ctx, nil)
		cancel()
		if err != nil {
			armed = true
			timer.Reset(max(s.src.commitInterval, commitAgain))
		}
	}
}

// many: so much has gathered that the interval is not waited for.
func (s *subscription) many() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fresh >= s.src.commitEvery
}

// confirm commits until the broker has confirmed all up to the marks, or ctx
// ends.
func (s *subscription) confirm(ctx context.Context, marks map[*tracker]int) bool {
	for {
		if s.proven(marks) {
			return true
		}
		bounded, cancel := context.WithTimeoutCause(ctx, commitLimit, errSilent)
		err := s.commit(bounded, nil)
		cancel()
		if err == nil && s.proven(marks) {
			return true
		}
		s.mu.Lock()
		over := s.err != nil && !s.closed
		s.mu.Unlock()
		if over || pause(ctx, commitAgain) != nil {
			return false
		}
	}
}

func (s *subscription) proven(marks map[*tracker]int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t, mark := range marks {
		if !t.retired && (t.proven < mark || t.doubtful) {
			return false
		}
	}
	return true
}

// offer is a position on its way to the broker.
type offer struct {
	t      *tracker
	at     kgo.EpochOffset
	passed int
}

// commit sends the positions that the broker does not know, of these trackers or
// of all. One is under way at a time; it returns within ctx.
func (s *subscription) commit(ctx context.Context, only []*tracker) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return silence(ctx)
	}
	offers := s.offers(only)
	if len(offers) == 0 {
		return nil
	}
	req := s.request(offers)
	if len(req.Topics) == 0 {
		return errRetired
	}
	// Not through the client's own commit: that one waits while the group meets,
	// which another member can draw out for as long as it likes.
	resp, err := req.RequestWith(ctx, s.client)
	if err != nil {
		s.doubt(offers)
		return within(ctx, err)
	}
	return s.answered(offers, codes(req, resp))
}

// offers are what is to be committed.
func (s *subscription) offers(only []*tracker) []offer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if only == nil {
		only = s.each()
		s.fresh = 0
	}
	var out []offer
	for _, t := range only {
		if t.dirty() {
			out = append(out, offer{t, kgo.EpochOffset{Epoch: t.positionEpoch, Offset: t.position}, t.passed})
		}
	}
	return out
}

// errRetired: nothing is left to commit.
var errRetired = errors.New("the partitions have moved")

// request makes a commit of what is this member's at this moment: the broker
// checks who commits, but not who owns what. It notes which topic each position
// is of.
func (s *subscription) request(offers []offer) *kmsg.OffsetCommitRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = s.src.group
	req.MemberID, req.Generation = s.client.GroupMetadata()
	if s.src.instance != "" {
		req.InstanceID = &s.src.instance
	}
	for _, o := range offers {
		if o.t.retired || o.t.member != req.MemberID {
			continue
		}
		n := len(req.Topics)
		if n == 0 || req.Topics[n-1].Topic != o.t.topic {
			t := kmsg.NewOffsetCommitRequestTopic()
			t.Topic, t.TopicID = o.t.topic, s.topics[o.t.topic].id
			req.Topics = append(req.Topics, t)
			n++
		}
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch = o.t.partition, o.at.Offset, o.at.Epoch
		p.Metadata = noteOf(req.Topics[n-1].TopicID)
		req.Topics[n-1].Partitions = append(req.Topics[n-1].Partitions, p)
	}
	return req
}

// partitionKey names a partition.
type partitionKey struct {
	topic     string
	partition int32
}

// codes reads the answer for each partition; newer brokers name topics by id.
func codes(req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse) map[partitionKey]error {
	byID := map[[16]byte]string{}
	for i := range req.Topics {
		byID[req.Topics[i].TopicID] = req.Topics[i].Topic
	}
	out := map[partitionKey]error{}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		name := t.Topic
		if name == "" {
			name = byID[t.TopicID]
		}
		for _, p := range t.Partitions {
			out[partitionKey{name, p.Partition}] = kerr.ErrorForCode(p.ErrorCode)
		}
	}
	return out
}

// doubt books a commit without an answer: the broker may have it, or get it yet.
func (s *subscription) doubt(offers []offer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range offers {
		o.t.doubtful = true
	}
}

// answered books what the broker said of each partition, and returns the first
// error.
func (s *subscription) answered(offers []offer, said map[partitionKey]error) error {
	s.mu.Lock()
	var first, fatal error
	for _, o := range offers {
		err, ok := said[partitionKey{o.t.topic, o.t.partition}]
		switch {
		case !ok:
			first = errors.Join(first, errRetired)
		case err == nil:
			o.t.committed, o.t.doubtful = o.at.Offset, false
			o.t.proven = max(o.t.proven, o.passed)
		default:
			first = errors.Join(first, err)
			fatal = errors.Join(fatal, s.commitFailed(o.t, err))
		}
	}
	s.mu.Unlock()
	if fatal != nil {
		s.fail(fatal)
	}
	return first
}

// commitFailed tells whether a partition's answer ends the epoch; mu is held.
// What the group says of the membership the client acts on by itself.
func (s *subscription) commitFailed(t *tracker, err error) error {
	switch {
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.UnknownTopicOrPartition):
		s.c.ask4()
		return nil
	case errors.Is(err, kerr.FencedInstanceID):
		return s.fencedInstance(err)
	}
	e, ok := errors.AsType[*brokers.Error](classify("commit the position of "+t.origin.Name, err))
	if ok && e.Class == brokers.Refused {
		return e
	}
	return nil
}
