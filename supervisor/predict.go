package supervisor

import (
	"fmt"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/lifecycle"
)

// predict says what a verb would do now, a sentence each.
func (c *consumer) predict(cmd Command, d lifecycle.Decision) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	say("%s is %s: %s %s", c.key, short(c.view.Load().state.Public()), verbName(cmd.Verb), d)
	if d != lifecycle.Acts && d != lifecycle.Overtakes && d != lifecycle.Cancels {
		return out
	}
	load := c.pool.load()
	caps := c.view.Load().caps
	switch cmd.Verb {
	case pb.Verb_VERB_PAUSE, pb.Verb_VERB_STOP, pb.Verb_VERB_RESTART:
		if caps.GetGiveBackCounts() {
			say("%d messages that have not started are finished until soft, because a give-back counts against them here", load.queued)
		} else {
			gaps := c.pool.gaps()
			if gaps > 0 {
				say("%d messages that have not started stand below one that has, and are finished", gaps)
			}
			say("%d messages that have not started are given back", load.queued-gaps)
		}
		say("%d messages in a handler are finished", load.running)
	case pb.Verb_VERB_DRAIN:
		say("%d messages in flight are handled until soft", load.messages)
	case pb.Verb_VERB_KILL, pb.Verb_VERB_DELETE:
		say("%d handlers are cancelled and have %s; %d messages are given back", load.running, killGrace, load.queued)
	}
	if p := caps.GetPause(); p != "" && (cmd.Verb == pb.Verb_VERB_PAUSE || cmd.Then == pb.DrainThen_DRAIN_THEN_PAUSED) {
		out = append(out, p)
	}
	return out
}
