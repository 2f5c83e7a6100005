package kafka

import (
	"context"
	"encoding/base64"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// notePrefix begins the metadata of positions that this driver commits: which
// topic they are of, should it be deleted and made again.
const notePrefix = "topic-id="

func noteOf(id kadm.TopicID) *string {
	note := ""
	if id != (kadm.TopicID{}) {
		note = notePrefix + base64.RawURLEncoding.EncodeToString(id[:])
	}
	return &note
}

// noted reads the topic's id from a position's metadata.
func noted(metadata *string) (id kadm.TopicID, ok bool) {
	if metadata == nil {
		return id, false
	}
	text, ok := strings.CutPrefix(*metadata, notePrefix)
	if !ok {
		return id, false
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) != len(id) {
		return id, false
	}
	return kadm.TopicID(b), true
}

// fetched is called by the client with the group's positions of partitions that
// were assigned, before they are consumed.
func (s *subscription) fetched(ctx context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	if len(resp.Groups) == 0 {
		return nil
	}
	ids, err := s.identify(ctx)
	if err != nil {
		return nil // the client goes on by itself; the next probe tells what is wrong
	}
	byID := map[kadm.TopicID]string{}
	for name, id := range ids {
		byID[id] = name
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range resp.Groups[0].Topics {
		rt := &resp.Groups[0].Topics[i]
		name := rt.Topic
		if name == "" {
			name = byID[rt.TopicID]
		}
		for _, p := range rt.Partitions {
			if t := s.trackers[name][p.Partition]; t != nil && p.ErrorCode == 0 {
				t.found(p.Offset, p.Metadata, ids[name])
			}
		}
	}
	return nil
}

// found books the group's position.
func (t *tracker) found(offset int64, metadata *string, id kadm.TopicID) {
	t.committed = max(offset, unknown)
	was, ok := noted(metadata)
	t.foreign = offset >= 0 && ok && was != id && id != (kadm.TopicID{})
}

// locate finds out where partitions go on that the client does not ask for by
// itself, and lets them.
func (s *subscription) locate(ts []*tracker) {
	for s.relocate(ts) != nil {
		if pause(s.life, metadataPause) != nil {
			return
		}
	}
}

func (s *subscription) relocate(ts []*tracker) error {
	ctx, cancel := context.WithTimeoutCause(s.life, commitLimit, errSilent)
	defer cancel()
	ids, err := s.identify(ctx)
	if err != nil {
		return err
	}
	topics := slices.Collect(maps.Keys(byTopic(ts)))
	spans, err := s.c.spans(ctx, s.src.committedOnly, topics...)
	if err != nil {
		return err
	}
	all, err := s.c.adm.FetchOffsets(ctx, s.src.group)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range ts {
		log, known := spans[partitionKey{t.topic, t.partition}]
		o, has := all.Lookup(t.topic, t.partition)
		switch {
		case t.retired || !t.astray:
			continue
		case !known:
			return errSilent
		case has && o.Err != nil:
			return o.Err
		case has:
			t.found(o.At, &o.Metadata, ids[t.topic])
		}
		if at, ok := s.startOf(t, log); ok {
			s.resume(t, at)
		}
	}
	return nil
}

// identify fills in the ids of topics that a pattern brought.
func (s *subscription) identify(ctx context.Context) (map[string]kadm.TopicID, error) {
	s.mu.Lock()
	ids, unknownIDs := map[string]kadm.TopicID{}, []string(nil)
	for name, t := range s.topics {
		ids[name] = t.id
		if t.partitions == 0 {
			unknownIDs = append(unknownIDs, name)
		}
	}
	s.mu.Unlock()
	if len(unknownIDs) == 0 {
		return ids, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, probeLimit, errSilent)
	defer cancel()
	all, err := s.c.ask(ctx, unknownIDs, false)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, t := range all {
		if t.err == nil {
			s.topics[name], ids[name] = t, t.id
		}
	}
	return ids, nil
}
