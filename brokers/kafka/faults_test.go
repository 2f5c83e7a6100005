package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-111f5b8e/supervisord/brokers/brokertest"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

func (h *harness) Disturb(ctx context.Context, f brokertest.Fault, s *supervisorv1.ConsumerSpec) error {
	switch f {
	case brokertest.Cut:
		h.gate.cut()
	case brokertest.Freeze:
		h.freeze()
	case brokertest.Thaw:
		h.thaw()
	case brokertest.Kill:
		h.kill()
	case brokertest.Restart:
		return h.restart(ctx)
	case brokertest.Delete:
		return h.with(func(_ *kgo.Client, a *kadm.Client) error {
			if _, err := a.DeleteTopic(ctx, topicOf(s)); err != nil {
				return err
			}
			return h.visible(ctx, a, topicOf(s), false)
		})
	case brokertest.Recreate:
		return h.create(ctx, topicOf(s), 1)
	case brokertest.Forbid:
		return h.forbid(ctx, topicOf(s))
	case brokertest.Permit:
		return h.permit(ctx, topicOf(s))
	case brokertest.Redeliver:
		return h.expel(ctx, groupOf(s))
	case brokertest.Block:
		h.block()
	case brokertest.Unblock:
		h.mu.Lock()
		defer h.mu.Unlock()
		close(h.unblock)
	case brokertest.Lose:
	}
	return nil
}

func (h *harness) freeze() {
	if h.real != nil {
		h.real.Freeze()
		return
	}
	h.gate.freeze()
}

func (h *harness) thaw() {
	if h.real != nil {
		h.real.Thaw()
		return
	}
	h.gate.thaw()
}

func (h *harness) kill() {
	if h.real != nil {
		h.real.Kill()
		return
	}
	h.gate.kill()
}

func (h *harness) restart(ctx context.Context) error {
	if h.real != nil {
		return h.real.Restart(ctx)
	}
	h.gate.revive()
	return nil
}

func denied(topic string) *kadm.ACLBuilder {
	return kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).
		Deny("User:" + appUser).DenyHosts("*").Operations(kmsg.ACLOperationRead)
}

func (h *harness) forbid(ctx context.Context, topic string) error {
	if h.real != nil {
		return h.real.Forbid(ctx, topic)
	}
	return h.with(func(_ *kgo.Client, a *kadm.Client) error {
		_, err := a.CreateACLs(ctx, denied(topic))
		return err
	})
}

func (h *harness) permit(ctx context.Context, topic string) error {
	if h.real != nil {
		return h.real.Permit(ctx, topic)
	}
	return h.with(func(_ *kgo.Client, a *kadm.Client) error {
		_, err := a.DeleteACLs(ctx, denied(topic))
		return err
	})
}

// expel takes a group's members out, who learn of it at their next heartbeat.
func (h *harness) expel(ctx context.Context, group string) error {
	return h.with(func(c *kgo.Client, a *kadm.Client) error {
		all, err := a.DescribeGroups(ctx, group)
		if err != nil {
			return err
		}
		consumers, err := a.DescribeConsumerGroups(ctx, group)
		if err == nil && len(all[group].Members) == 0 {
			for _, m := range consumers[group].Members {
				req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
				req.Group, req.MemberID, req.MemberEpoch = group, m.MemberID, -1
				if _, err := req.RequestWith(ctx, c); err != nil {
					return err
				}
			}
			return nil
		}
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Group = group
		for _, m := range all[group].Members {
			member := kmsg.NewLeaveGroupRequestMember()
			member.MemberID, member.InstanceID = m.MemberID, m.InstanceID
			req.Members = append(req.Members, member)
		}
		resp, err := req.RequestWith(ctx, c)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.ErrorCode)
	})
}

// block lets publications wait.
func (h *harness) block() {
	h.mu.Lock()
	h.unblock = make(chan struct{})
	gate := h.unblock
	h.mu.Unlock()
	h.fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		select {
		case <-gate:
			h.fake.DropControl()
		default:
			h.fake.KeepControl()
			h.fake.SleepControl(func() { <-gate })
		}
		return nil, nil, false
	})
}
