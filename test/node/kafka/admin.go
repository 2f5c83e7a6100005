package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreateTopic with so many partitions. It returns when each has a leader.
func (n *Node) CreateTopic(ctx context.Context, topic string, partitions int32) error {
	err := n.admin(func(a *kadm.Client) error {
		_, err := a.CreateTopic(ctx, partitions, 1, nil, topic)
		return err
	})
	if err != nil {
		return fmt.Errorf("create topic %s: %w", topic, err)
	}
	return nil
}

// DeleteTopic deletes a topic whoever consumes from it.
func (n *Node) DeleteTopic(ctx context.Context, topic string) error {
	err := n.admin(func(a *kadm.Client) error {
		_, err := a.DeleteTopic(ctx, topic)
		return err
	})
	if err != nil {
		return fmt.Errorf("delete topic %s: %w", topic, err)
	}
	return nil
}

// DeleteRecords deletes what is below an offset, so that a position before it is
// out of range.
func (n *Node) DeleteRecords(ctx context.Context, topic string, partition int32, below int64) error {
	err := n.admin(func(a *kadm.Client) error {
		var o kadm.Offsets
		o.AddOffset(topic, partition, below, -1)
		out, err := a.DeleteRecords(ctx, o)
		if err != nil {
			return err
		}
		return out.Error()
	})
	if err != nil {
		return fmt.Errorf("delete records of %s/%d: %w", topic, partition, err)
	}
	return nil
}

// Committed returns a group's position in each partition of a topic where it has
// one, as partition to offset.
func (n *Node) Committed(ctx context.Context, group, topic string) (map[int32]int64, error) {
	out := map[int32]int64{}
	err := n.admin(func(a *kadm.Client) error {
		all, err := a.FetchOffsets(ctx, group)
		if err != nil {
			return err
		}
		for partition, o := range all[topic] {
			if o.Err != nil {
				return o.Err
			}
			out[partition] = o.At
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("positions of %s: %w", group, err)
	}
	return out, nil
}

// Ends returns the offset behind the last record of each partition of a topic.
func (n *Node) Ends(ctx context.Context, topic string) (map[int32]int64, error) {
	out := map[int32]int64{}
	err := n.admin(func(a *kadm.Client) error {
		all, err := a.ListEndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		for partition, o := range all[topic] {
			if o.Err != nil {
				return o.Err
			}
			out[partition] = o.Offset
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("ends of %s: %w", topic, err)
	}
	return out, nil
}

// Forbid takes the right to read and write a topic from all who are no
// administrators.
func (n *Node) Forbid(ctx context.Context, topic string) error {
	return n.acl("forbid", topic, func(a *kadm.Client, b *kadm.ACLBuilder) error {
		out, err := a.CreateACLs(ctx, b)
		if err != nil {
			return err
		}
		for _, o := range out {
			if o.Err != nil {
				return o.Err
			}
		}
		return nil
	})
}

// Permit ends a Forbid.
func (n *Node) Permit(ctx context.Context, topic string) error {
	return n.acl("permit", topic, func(a *kadm.Client, b *kadm.ACLBuilder) error {
		out, err := a.DeleteACLs(ctx, b)
		if err != nil {
			return err
		}
		for _, o := range out {
			if o.Err != nil {
				return o.Err
			}
		}
		return nil
	})
}

func (n *Node) acl(verb, topic string, do func(*kadm.Client, *kadm.ACLBuilder) error) error {
	b := kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).
		Deny("User:*").DenyHosts("*").Operations(kmsg.ACLOperationAll)
	if err := n.admin(func(a *kadm.Client) error { return do(a, b) }); err != nil {
		return fmt.Errorf("%s topic %s: %w", verb, topic, err)
	}
	return nil
}

// SetPassword changes the password of User for SCRAM.
func (n *Node) SetPassword(ctx context.Context, password string) error {
	err := n.admin(func(a *kadm.Client) error {
		// One request may name a user once.
		for _, m := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
			one := kadm.UpsertSCRAM{User: User, Mechanism: m, Iterations: 4096, Password: password}
			out, err := a.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{one})
			if err := errors.Join(err, out.Error()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("password of %s: %w", User, err)
	}
	return nil
}
