package supervisor

import (
	"slices"
	"strings"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/lifecycle"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// desire is what will be desired after the verb, and what to tell about it.
func desire(old *pb.Desired, cmd Command, now time.Time) (*pb.Desired, string) {
	d := proto.CloneOf(old)
	d.Holds = standing(d.GetHolds(), now)
	switch cmd.Verb {
	case pb.Verb_VERB_START, pb.Verb_VERB_RESTART:
		d.State = pb.DesiredState_DESIRED_STATE_RUNNING
	case pb.Verb_VERB_STOP, pb.Verb_VERB_KILL:
		d.State = pb.DesiredState_DESIRED_STATE_STOPPED
	case pb.Verb_VERB_DRAIN:
		if cmd.Then == pb.DrainThen_DRAIN_THEN_PAUSED {
			addHold(d, cmd, now)
		} else {
			d.State = pb.DesiredState_DESIRED_STATE_STOPPED
		}
	case pb.Verb_VERB_PAUSE:
		addHold(d, cmd, now)
	case pb.Verb_VERB_RESUME:
		name := holdName(cmd)
		d.Holds = slices.DeleteFunc(d.GetHolds(), func(h *pb.Hold) bool { return cmd.AllHolds || h.GetName() == name })
	case pb.Verb_VERB_SCALE:
		d.Scale = nil
		if cmd.Concurrency > 0 {
			d.Scale = &pb.ScaleOverride{
				Concurrency: cmd.Concurrency, Actor: cmd.Actor, Reason: cmd.Options.GetReason(), Since: timestamppb.New(now),
			}
		}
	}
	return d, noteOf(d, cmd.Verb)
}

func holdName(cmd Command) string {
	if cmd.Hold != "" {
		return cmd.Hold
	}
	return defaultHold
}

func addHold(d *pb.Desired, cmd Command, now time.Time) {
	h := &pb.Hold{Name: holdName(cmd), Actor: cmd.Actor, Reason: cmd.Options.GetReason(), Since: timestamppb.New(now)}
	if !cmd.Until.IsZero() {
		h.Until = timestamppb.New(cmd.Until)
	}
	for i, old := range d.GetHolds() {
		if old.GetName() == h.GetName() {
			h.Since = old.GetSince()
			d.Holds[i] = h
			return
		}
	}
	d.Holds = append(d.Holds, h)
}

// noteOf says what still holds, where that decides what follows.
func noteOf(d *pb.Desired, v pb.Verb) string {
	var names []string
	for _, h := range d.GetHolds() {
		s := h.GetName()
		if h.GetActor() != "" {
			s += " by " + h.GetActor()
		}
		if h.GetReason() != "" {
			s += ": " + h.GetReason()
		}
		names = append(names, s)
	}
	switch {
	case len(names) == 0 || v == pb.Verb_VERB_STOP || v == pb.Verb_VERB_KILL:
		return ""
	case v == pb.Verb_VERB_PAUSE && d.GetState() == pb.DesiredState_DESIRED_STATE_RUNNING:
		return ""
	case v == pb.Verb_VERB_PAUSE:
		return "held (" + strings.Join(names, "; ") + "): a start ends PAUSED"
	}
	return "still held (" + strings.Join(names, "; ") + ")"
}

func effectOf(d lifecycle.Decision, same bool) pb.Effect {
	switch d {
	case lifecycle.Acts, lifecycle.Cancels, lifecycle.Overtakes:
		return pb.Effect_EFFECT_ACTED
	case lifecycle.Noted, lifecycle.Updates:
		if same {
			return pb.Effect_EFFECT_NO_OP
		}
		return pb.Effect_EFFECT_NOTED
	}
	if same {
		return pb.Effect_EFFECT_NO_OP
	}
	return pb.Effect_EFFECT_NOTED
}

// armHold sets the timer for the next hold that ends by itself.
func (c *consumer) armHold() {
	c.at.hold = time.Time{}
	for _, h := range c.rec.Load().GetDesired().GetHolds() {
		if u := h.GetUntil(); u != nil && (c.at.hold.IsZero() || u.AsTime().Before(c.at.hold)) {
			c.at.hold = u.AsTime()
		}
	}
}
