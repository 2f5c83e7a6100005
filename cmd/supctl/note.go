package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// note says in a line what matters most about a consumer now.
func note(c *pb.Consumer, now time.Time) string {
	var parts []string
	if s := stateNote(c, now); s != "" {
		parts = append(parts, s)
	}
	for _, x := range c.GetStatus().GetConditions() {
		if s := conditionNote(x, c.GetStatus()); s != "" {
			parts = append(parts, s)
		}
	}
	if s := c.GetDesired().GetScale(); s != nil && len(parts) == 0 {
		parts = append(parts, fmt.Sprintf("scaled to %d by %s", s.GetConcurrency(), s.GetActor()))
	}
	return strings.Join(parts, "; ")
}

func stateNote(c *pb.Consumer, now time.Time) string {
	s := c.GetStatus()
	switch s.GetState() {
	case pb.State_STATE_FAILED, pb.State_STATE_STOPPED, pb.State_STATE_STARTING:
		return s.GetReason()
	case pb.State_STATE_BACKOFF:
		return joinReason(retryNote(s, now), s.GetReason())
	case pb.State_STATE_DRAINING, pb.State_STATE_STOPPING, pb.State_STATE_PAUSING:
		return joinReason(limitNote(s, now), pausingNote(c, now))
	}
	return holdsNote(c.GetDesired().GetHolds(), now)
}

// pausingNote is the hold that a consumer is on its way to.
func pausingNote(c *pb.Consumer, now time.Time) string {
	if c.GetStatus().GetState() != pb.State_STATE_PAUSING {
		return ""
	}
	return holdsNote(c.GetDesired().GetHolds(), now)
}

func joinReason(what, why string) string {
	if what == "" || why == "" {
		return what + why
	}
	return what + ": " + why
}

// retryNote is "retry 5 in 8s".
func retryNote(s *pb.Status, now time.Time) string {
	if s.GetNextAttempt() == nil {
		return fmt.Sprintf("retry %d now", s.GetAttempt())
	}
	return fmt.Sprintf("retry %d in %s", s.GetAttempt(), textform.FormatDuration(max(0, s.GetNextAttempt().AsTime().Sub(now))))
}

// limitNote is "1m48s left" until the soft limit, then what the hard one
// leaves.
func limitNote(s *pb.Status, now time.Time) string {
	left := func(t *timestamppb.Timestamp) (time.Duration, bool) {
		d := t.AsTime().Sub(now)
		return d, t != nil && d > 0
	}
	phase := ""
	if s.GetPhase() != "" && s.GetState() == pb.State_STATE_STOPPING {
		phase = strings.ToLower(s.GetPhase()) + ", "
	}
	if d, ok := left(s.GetSoftDeadline()); ok {
		return phase + textform.FormatDuration(d) + " left"
	}
	if d, ok := left(s.GetHardDeadline()); ok {
		return phase + "cancelled, " + textform.FormatDuration(d) + " to the hard limit"
	}
	return strings.TrimSuffix(phase, ", ")
}

// holdsNote tells the hold that lasts longest, and how many more there are.
func holdsNote(holds []*pb.Hold, now time.Time) string {
	if len(holds) == 0 {
		return ""
	}
	s := holdText(longest(holds), now)
	if n := len(holds) - 1; n > 0 {
		s += fmt.Sprintf(" (and %d more)", n)
	}
	return s
}

// longest picks the hold that decides when processing goes on.
func longest(holds []*pb.Hold) *pb.Hold {
	return slices.MaxFunc(holds, func(a, b *pb.Hold) int {
		if a.GetUntil() == nil || b.GetUntil() == nil {
			return cmp.Compare(open(a), open(b))
		}
		return a.GetUntil().AsTime().Compare(b.GetUntil().AsTime())
	})
}

// open is 1 for a hold without an end.
func open(h *pb.Hold) int {
	if h.GetUntil() == nil {
		return 1
	}
	return 0
}

// holdText is "until 15:30 (42m) alice: ERP down", or "held by alice" without
// an end; with the hold's name when it is not the operators' own.
func holdText(h *pb.Hold, now time.Time) string {
	var words []string
	if h.GetName() != "operator" {
		words = append(words, h.GetName())
	}
	switch {
	case h.GetUntil() != nil:
		words = append(words, "until "+clock(h.GetUntil().AsTime(), now))
	case len(words) == 0:
		words = append(words, "held by")
	default:
		words = append(words, "by")
	}
	words = append(words, h.GetActor())
	return joinReason(strings.Join(words, " "), h.GetReason())
}

// clock is a time to come as people say it: "15:30 (42m)".
func clock(t, now time.Time) string {
	t = t.In(now.Location())
	layout := "2006-01-02 15:04"
	if y, m, d := t.Date(); y == now.Year() && m == now.Month() && d == now.Day() {
		layout = "15:04"
	}
	return fmt.Sprintf("%s (%s)", t.Format(layout), textform.FormatDuration(max(0, t.Sub(now))))
}

// conditionNote is the name of a condition that is to be looked at, with why.
func conditionNote(x *pb.Condition, s *pb.Status) string {
	name := textform.ShortEnum(x.GetType())
	switch x.GetType() {
	case pb.ConditionType_CONDITION_TYPE_CONNECTED:
		if x.GetStatus() || notRunning(s.GetState()) {
			return ""
		}
		name = "NOT_CONNECTED"
	case pb.ConditionType_CONDITION_TYPE_ASSIGNED:
		return ""
	case pb.ConditionType_CONDITION_TYPE_HANDLERS_LEAKED:
		if n := s.GetLeakedHandlers(); n > 0 && x.GetReason() == "" {
			name = fmt.Sprintf("HANDLERS_LEAKED %d", n)
		}
	}
	if !x.GetStatus() && x.GetType() != pb.ConditionType_CONDITION_TYPE_CONNECTED {
		return ""
	}
	return joinReason(name, x.GetReason())
}

// notRunning: in these states no connection is to be expected, or its loss is
// the state's own reason.
func notRunning(s pb.State) bool {
	switch s {
	case pb.State_STATE_STOPPED, pb.State_STATE_FAILED, pb.State_STATE_BACKOFF, pb.State_STATE_STARTING:
		return true
	}
	return false
}

// movingState: the consumer is on its way to another state.
func movingState(s pb.State) bool {
	switch s {
	case pb.State_STATE_PAUSING, pb.State_STATE_DRAINING, pb.State_STATE_STOPPING, pb.State_STATE_BACKOFF:
		return true
	}
	return false
}
