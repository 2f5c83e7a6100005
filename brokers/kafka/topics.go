package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// topicInfo is what the cluster says of a topic.
type topicInfo struct {
	// id is another when the topic is made again under its name; zero: the broker
	// has no ids.
	id         kadm.TopicID
	partitions int
	internal   bool
	unreadable bool
	err        error
}

func (t topicInfo) missing() bool {
	return errors.Is(t.err, kerr.UnknownTopicOrPartition) || errors.Is(t.err, kerr.UnknownTopicID)
}

// ask asks for topics by name, or for all of them.
func (c *conn) ask(ctx context.Context, names []string, all bool) (map[string]topicInfo, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	if !all {
		req.Topics = make([]kmsg.MetadataRequestTopic, len(names))
	}
	for i := range req.Topics {
		req.Topics[i] = kmsg.NewMetadataRequestTopic()
		req.Topics[i].Topic = &names[i]
	}
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return nil, within(ctx, err)
	}
	out := make(map[string]topicInfo, len(resp.Topics))
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.Topic == nil {
			continue
		}
		ops := kadm.DecodeACLOperations(t.AuthorizedOperations)
		out[*t.Topic] = topicInfo{
			id: t.TopicID, partitions: len(t.Partitions), internal: t.IsInternal,
			// A broker that does not tell is believed to allow.
			unreadable: len(ops) > 0 && !slices.Contains(ops, kadm.OpRead),
			err:        kerr.ErrorForCode(t.ErrorCode),
		}
	}
	return out, nil
}

// of are the topics of this source, those that the cluster does not know included.
func (s *source) of(all map[string]topicInfo) map[string]topicInfo {
	out := make(map[string]topicInfo, len(s.topics))
	for _, name := range s.topics {
		t, ok := all[name]
		if !ok {
			t.err = kerr.UnknownTopicOrPartition
		}
		out[name] = t
	}
	if s.pattern == nil {
		return out
	}
	for name, t := range all {
		if !t.internal && s.pattern.MatchString(name) {
			out[name] = t
		}
	}
	return out
}

// look finds a source's topics, and creates missing ones if it is to. An error
// tells the first that cannot be consumed.
func (c *conn) look(ctx context.Context, src *source) (map[string]topicInfo, error) {
	found, missing, err := c.inspect(ctx, src)
	if err != nil || len(missing) == 0 {
		return found, err
	}
	if src.missing != supervisorv1.Missing_MISSING_CREATE {
		return nil, missingTopics(src, missing)
	}
	for _, name := range missing {
		_, err := c.adm.CreateTopic(ctx, src.partitions, src.replication, nil, name)
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return nil, classify("create topic "+name, within(ctx, err))
		}
	}
	// A new topic is not known to every broker at once.
	for {
		found, missing, err = c.inspect(ctx, src)
		if err != nil || len(missing) == 0 {
			return found, err
		}
		if err := pause(ctx, metadataPause); err != nil {
			return nil, classify("create "+src.String(), err)
		}
	}
}

// inspect asks once.
func (c *conn) inspect(ctx context.Context, src *source) (found map[string]topicInfo, missing []string, err error) {
	all, err := c.ask(ctx, src.topics, src.pattern != nil)
	if err != nil {
		return nil, nil, classify("look for "+src.String(), err)
	}
	found = src.of(all)
	if len(found) == 0 {
		return nil, []string{src.wanted}, nil
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		switch t := found[name]; {
		case t.missing():
			missing = append(missing, name)
		case t.err != nil:
			return nil, nil, classify("look for topic "+name, t.err)
		case t.unreadable:
			return nil, nil, classify("read topic "+name, kerr.TopicAuthorizationFailed)
		}
	}
	return found, missing, nil
}

func missingTopics(src *source, names []string) error {
	e := &brokers.Error{
		Class: brokers.Missing, Op: "look for " + src.String(), Err: kerr.UnknownTopicOrPartition,
		Wait: src.missing != supervisorv1.Missing_MISSING_FAIL,
	}
	what := "topic " + strings.Join(names, ", ")
	if src.pattern != nil {
		e.Err, what = errors.New("no topic has such a name"), "one"
	}
	e.Remedy = "create " + what
	if e.Wait {
		e.Remedy += "; it is looked for again until it is there"
	}
	return e
}

// check compares what a subscription was made on with what is there now.
func (s *subscription) check(all map[string]topicInfo) error {
	now := s.src.of(all)
	if len(now) == 0 {
		return missingTopics(s.src, nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, was := range s.topics {
		t, ok := now[name]
		switch {
		case !ok:
			delete(s.topics, name) // of a pattern, and the others go on
		case t.missing():
			return missingTopics(s.src, []string{name})
		case t.err == nil && t.unreadable:
			return classify("read topic "+name, kerr.TopicAuthorizationFailed)
		case errors.Is(t.err, kerr.TopicAuthorizationFailed):
			return classify("read topic "+name, t.err)
		case t.err == nil && t.id != was.id:
			e := recreated(s.src, name, was.id, t.id)
			s.losses("topic " + name + ": " + e.Err.Error())
			return e
		}
	}
	for name, t := range now {
		if _, ok := s.topics[name]; !ok && t.err == nil {
			s.topics[name] = t
		}
	}
	return nil
}

// recreated: with reset FAIL an operator decides where to go on.
func recreated(src *source, name string, was, is kadm.TopicID) *brokers.Error {
	e := &brokers.Error{
		Class: brokers.Lost, Op: "read topic " + name,
		Err:    fmt.Errorf("it was deleted and created again (its id was %s and is %s): what had not been handled is gone", was, is),
		Remedy: "it goes on as `reset` says",
	}
	if src.fails() {
		e.Class = brokers.Refused
		e.Remedy = "to go on, choose a position with `supctl seek`, then start the consumer"
	}
	return e
}
