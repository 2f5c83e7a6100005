package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-111f5b8e/supervisord/brokers"
)

var _ brokers.Positioner = (*conn)(nil)

// Seek commits positions on behalf of a group that has no members.
func (c *conn) Seek(ctx context.Context, src any, to brokers.SeekTo, dry bool) ([]brokers.Moved, error) {
	k, ok := src.(*source)
	if !ok {
		return nil, &brokers.Error{Class: brokers.Refused, Op: "seek", Err: errForeign}
	}
	op := "seek group " + k.group
	if err := c.idle(ctx, k); err != nil {
		return nil, classify(op, within(ctx, err))
	}
	topics, err := c.look(ctx, k)
	if err != nil {
		return nil, err
	}
	wanted, err := c.targets(ctx, k, slices.Collect(maps.Keys(topics)), to)
	if err != nil {
		return nil, classify(op, within(ctx, err))
	}
	before, err := c.adm.FetchOffsets(ctx, k.group)
	if err != nil {
		return nil, classify(op, within(ctx, err))
	}
	planned := plan(before, wanted)
	if dry {
		return unkey(planned), nil
	}
	moved, err := c.move(ctx, k.group, topics, planned)
	return unkey(moved), classify(op, within(ctx, err))
}

// idle demands that the group has no members, and names those it has.
func (c *conn) idle(ctx context.Context, k *source) error {
	described, err := c.adm.DescribeGroups(ctx, k.group)
	if err != nil {
		return err
	}
	g := described[k.group]
	var members []string
	for _, m := range g.Members {
		members = append(members, describe(m.ClientID, m.ClientHost, m.InstanceID))
	}
	if g.Err != nil || len(members) == 0 && g.State != "Empty" && g.State != "Dead" {
		// A group of protocol CONSUMER answers to another question.
		if all, err := c.adm.DescribeConsumerGroups(ctx, k.group); err == nil {
			for _, m := range all[k.group].Members {
				members = append(members, describe(m.ClientID, m.ClientHost, m.InstanceID))
			}
		} else if g.Err != nil && !errors.Is(g.Err, kerr.GroupIDNotFound) {
			return g.Err
		}
	}
	if len(members) == 0 {
		return nil
	}
	return &brokers.Error{
		Class: brokers.Refused, Op: "seek group " + k.group,
		Err:    fmt.Errorf("the group has members: %s", strings.Join(members, ", ")),
		Remedy: "stop them first; one that has an instance_id or was killed stays until session_timeout is over",
	}
}

func describe(client, host string, instance *string) string {
	if instance != nil {
		client += " (" + *instance + ")"
	}
	return client + " at " + strings.TrimPrefix(host, "/")
}

// targets are the offsets to move to; unknown removes one.
func (c *conn) targets(ctx context.Context, k *source, topics []string, to brokers.SeekTo) (map[partitionKey]int64, error) {
	spans, err := c.spans(ctx, k.committedOnly, topics...)
	if err != nil {
		return nil, err
	}
	out := map[partitionKey]int64{}
	switch {
	case to.Earliest, to.Latest:
		for key, log := range spans {
			out[key] = log.first
			if to.Latest {
				out[key] = log.end
			}
		}
	case !to.Time.IsZero():
		listed, err := c.adm.ListOffsetsAfterMilli(ctx, to.Time.UnixMilli(), topics...)
		if err != nil {
			return nil, err
		}
		listed.Each(func(l kadm.ListedOffset) {
			err = errors.Join(err, l.Err)
			out[partitionKey{l.Topic, l.Partition}] = l.Offset
		})
		return out, err
	default:
		return named(k, topics, spans, to.Positions)
	}
	return out, nil
}

// named are positions by partition; where there is one topic, its name may be
// left out.
func named(k *source, topics []string, spans map[partitionKey]span, positions map[string]int64) (map[partitionKey]int64, error) {
	byName := map[string]partitionKey{}
	for key := range spans {
		byName[partitionName(key.topic, key.partition)] = key
		if len(topics) == 1 {
			byName[strconv.Itoa(int(key.partition))] = key
		}
	}
	out := map[partitionKey]int64{}
	for _, name := range slices.Sorted(maps.Keys(positions)) {
		key, ok := byName[name]
		at, log := positions[name], spans[key]
		switch {
		case !ok:
			return nil, &brokers.Error{
				Class: brokers.Missing, Op: "seek group " + k.group,
				Err: fmt.Errorf("%s has no partition %s", k, name), Remedy: "write TOPIC/PARTITION, as in orders/3",
			}
		case at != unknown && !log.has(at):
			return nil, &brokers.Error{
				Class: brokers.Refused, Op: "seek group " + k.group,
				Err: outOfRange(partitionName(key.topic, key.partition), at, log), Remedy: "choose an offset of the log, or its end",
			}
		}
		out[key] = at
	}
	return out, nil
}

// step is one position to move.
type step struct {
	key           partitionKey
	before, after int64
}

// plan leaves out what is there already, and sorts.
func plan(before kadm.OffsetResponses, wanted map[partitionKey]int64) []step {
	var out []step
	for key, at := range wanted {
		was := int64(unknown)
		if o, ok := before.Lookup(key.topic, key.partition); ok && o.Err == nil {
			was = o.At
		}
		if was != at {
			out = append(out, step{key, was, at})
		}
	}
	slices.SortFunc(out, func(a, b step) int {
		return cmp.Or(cmp.Compare(a.key.topic, b.key.topic), cmp.Compare(a.key.partition, b.key.partition))
	})
	return out
}

func unkey(steps []step) []brokers.Moved {
	out := make([]brokers.Moved, len(steps))
	for i, s := range steps {
		out[i] = brokers.Moved{Origin: partitionName(s.key.topic, s.key.partition), Before: s.before, After: s.after}
	}
	return out
}

// move commits and removes, and returns what it moved.
func (c *conn) move(ctx context.Context, group string, topics map[string]topicInfo, steps []step) ([]step, error) {
	set, removed := kadm.Offsets{}, kadm.TopicsSet{}
	for _, s := range steps {
		if s.after == unknown {
			removed.Add(s.key.topic, s.key.partition)
			continue
		}
		set.Add(kadm.Offset{
			Topic: s.key.topic, Partition: s.key.partition, At: s.after, LeaderEpoch: -1, Metadata: *noteOf(topics[s.key.topic].id),
		})
	}
	said := map[partitionKey]error{}
	if len(set) > 0 {
		done, err := c.adm.CommitOffsets(ctx, group, set)
		if err != nil {
			return nil, err
		}
		done.Each(func(o kadm.OffsetResponse) { said[partitionKey{o.Topic, o.Partition}] = o.Err })
	}
	var failed error
	if len(removed) > 0 {
		done, err := c.adm.DeleteOffsets(ctx, group, removed)
		failed = err
		for topic, parts := range done {
			for p, err := range parts {
				said[partitionKey{topic, p}] = err
			}
		}
	}
	var moved []step
	for _, s := range steps {
		switch err, ok := said[s.key]; {
		case !ok:
		case err != nil:
			failed = errors.Join(failed, fmt.Errorf("%s: %w", partitionName(s.key.topic, s.key.partition), err))
		default:
			moved = append(moved, s)
		}
	}
	return moved, failed
}
