package lifecycle

import pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"

// Decision is what a verb does in a state.
type Decision uint8

// The decisions.
const (
	Acts      Decision = iota + 1 // the consumer moves
	NoOp                          // it already is as asked
	Noted                         // desired changes, the state does not move now
	Updates                       // the verb under way gets new limits or words
	Refusal                       // FAILED_PRECONDITION
	Cancels                       // the drain under way ends, the consumer runs on
	Overtakes                     // the weaker verb under way ends with a receipt
)

func (d Decision) String() string {
	return [...]string{"", "acts", "no-op", "noted", "updates", "refused", "cancels", "overtakes"}[d]
}

// Columns lists the public states in the order of the matrix.
func Columns() []pb.State {
	return []pb.State{
		pb.State_STATE_STOPPED, pb.State_STATE_STARTING, pb.State_STATE_RUNNING, pb.State_STATE_BACKOFF,
		pb.State_STATE_PAUSING, pb.State_STATE_PAUSED, pb.State_STATE_DRAINING, pb.State_STATE_STOPPING,
		pb.State_STATE_FAILED,
	}
}

// Verbs lists the verbs in the order of the matrix.
func Verbs() []pb.Verb {
	return []pb.Verb{
		pb.Verb_VERB_START, pb.Verb_VERB_PAUSE, pb.Verb_VERB_RESUME, pb.Verb_VERB_DRAIN, pb.Verb_VERB_STOP,
		pb.Verb_VERB_KILL, pb.Verb_VERB_RESTART, pb.Verb_VERB_DELETE,
	}
}

// Matrix says what each verb does in each state of [Columns], in that order.
func Matrix() map[pb.Verb][]Decision {
	return map[pb.Verb][]Decision{
		//                      STOPPED STARTING RUNNING BACKOFF PAUSING PAUSED DRAINING STOPPING FAILED
		pb.Verb_VERB_START:   {Acts, NoOp, NoOp, Acts, NoOp, NoOp, Cancels, Noted, Acts},
		pb.Verb_VERB_PAUSE:   {Noted, Acts, Acts, Acts, Updates, Updates, Noted, Noted, Noted},
		pb.Verb_VERB_RESUME:  {Noted, NoOp, NoOp, Noted, Acts, Acts, Noted, Noted, Noted},
		pb.Verb_VERB_DRAIN:   {NoOp, Acts, Acts, Acts, Acts, Acts, Updates, NoOp, Acts},
		pb.Verb_VERB_STOP:    {NoOp, Acts, Acts, Acts, Acts, Acts, Overtakes, NoOp, Acts},
		pb.Verb_VERB_KILL:    {NoOp, Acts, Acts, Acts, Acts, Acts, Overtakes, Overtakes, Acts},
		pb.Verb_VERB_RESTART: {Acts, Acts, Acts, Acts, Acts, Acts, Overtakes, Noted, Acts},
		pb.Verb_VERB_DELETE:  {Acts, Refusal, Refusal, Refusal, Refusal, Refusal, Refusal, Refusal, Acts},
	}
}

// Decide looks a verb up.
func Decide(v pb.Verb, s pb.State) Decision {
	row := Matrix()[v]
	for i, c := range Columns() {
		if c == s && i < len(row) {
			return row[i]
		}
	}
	return Refusal
}

// Legal lists the verbs that are not refused in a state.
func Legal(s pb.State) []pb.Verb {
	var out []pb.Verb
	for _, v := range Verbs() {
		if Decide(v, s) != Refusal {
			out = append(out, v)
		}
	}
	return out
}

// Strength orders the verbs that end work: a stronger one overtakes a weaker.
// It is 0 for the others.
func Strength(v pb.Verb) int {
	switch v {
	case pb.Verb_VERB_PAUSE:
		return 1
	case pb.Verb_VERB_DRAIN:
		return 2
	case pb.Verb_VERB_STOP, pb.Verb_VERB_RESTART, pb.Verb_VERB_SHUTDOWN:
		return 3
	case pb.Verb_VERB_KILL, pb.Verb_VERB_DELETE:
		return 4
	}
	return 0
}
