// Package lifecycle is the consumer's state machine as data: which moves there
// are ([Table]), and what each verb means in each state ([Decide]). It is pure:
// no clock, no goroutine, no I/O. A move that is not in the table is refused.
package lifecycle

import pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"

// State is where a consumer is. Finishing, Aborting and Closing are the phases
// of what users see as STOPPING.
type State uint8

// The states; the zero State is none.
const (
	Stopped State = iota + 1
	Starting
	Running
	Pausing
	Paused
	Draining
	Finishing // what runs may finish, until soft
	Aborting  // what runs is cancelled and has until hard
	Closing   // nothing runs; the subscription is being closed
	Backoff
	Failed
)

// States lists all of them.
func States() []State {
	return []State{Stopped, Starting, Running, Pausing, Paused, Draining, Finishing, Aborting, Closing, Backoff, Failed}
}

type stateName struct {
	public pb.State
	name   string
}

func (s State) names() stateName {
	return [...]stateName{
		{},
		{pb.State_STATE_STOPPED, "stopped"},
		{pb.State_STATE_STARTING, "starting"},
		{pb.State_STATE_RUNNING, "running"},
		{pb.State_STATE_PAUSING, "pausing"},
		{pb.State_STATE_PAUSED, "paused"},
		{pb.State_STATE_DRAINING, "draining"},
		{pb.State_STATE_STOPPING, "finishing"},
		{pb.State_STATE_STOPPING, "aborting"},
		{pb.State_STATE_STOPPING, "closing"},
		{pb.State_STATE_BACKOFF, "backoff"},
		{pb.State_STATE_FAILED, "failed"},
	}[s]
}

// Public is the state as users see it.
func (s State) Public() pb.State { return s.names().public }

func (s State) String() string { return s.names().name }

// Event is what makes a consumer move: what operators want, or what happened.
type Event uint8

// The events.
const (
	// Wanted.
	Start   Event = iota + 1 // run, and no hold stands
	Park                     // run, but a hold stands
	Drain                    // finish what was taken, then stop or park
	Consume                  // the same, but first consume to a mark
	Stop                     // finish what runs, then stop
	Kill                     // cancel what runs, then stop
	// Happened.
	Ready     // the subscription is open and flows
	Broke     // the subscription ended; trying again may help
	Refused   // the broker or the handler said no for good
	Exhausted // leaked handlers hold every slot
	Due       // the backoff is over
	Marked    // the backlog was consumed to the mark, or its time is up
	Idle      // nothing is in flight, and the goal is to stop
	Quiet     // nothing is in flight, and the goal is to pause
	Soft      // the soft limit fired, and the goal is to stop
	SoftQuiet // the soft limit fired, and the goal is to pause
	Hard      // the hard limit fired
	Released  // the subscription is closed, or a reaper has it
)

// Events lists all of them.
func Events() []Event {
	out := make([]Event, 0, Released)
	for e := Start; e <= Released; e++ {
		out = append(out, e)
	}
	return out
}

func (e Event) String() string {
	return [...]string{"", "start", "park", "drain", "consume", "stop", "kill",
		"ready", "broke", "refused", "exhausted", "due", "marked", "idle", "quiet",
		"soft", "soft-quiet", "hard", "released"}[e]
}

// Effect is what the actor does on a move, besides being in the new state.
type Effect uint8

// The effects.
const (
	None    Effect = iota
	Open           // subscribe if need be, let it flow
	Hold           // close intake and gate; give back what has not started
	Shut           // close the intake; what was taken is still handled
	Cancel         // close intake and gate, give back, cancel what runs
	Abandon        // fence what still runs and give it back
	Close          // close the subscription
	Reap           // fence what still runs, close the subscription
	Hurry          // the closing gets the killer's deadline
	Detach         // fence the epoch; a reaper closes the subscription
	Delay          // as Detach, and wait before the next attempt
	Finish         // write the receipt
)

func (e Effect) String() string {
	return [...]string{"-", "open", "hold", "shut", "cancel", "abandon", "close", "reap", "hurry",
		"detach", "delay", "finish"}[e]
}

// Row is one fact: in From, On moves to To and does Do.
type Row struct {
	From State
	On   Event
	To   State
	Do   Effect
}

// Table is the whole machine. Callers must not change it.
func Table() []Row {
	return []Row{
		{Stopped, Start, Starting, Open},
		{Stopped, Park, Paused, None},

		{Starting, Ready, Running, None},
		{Starting, Broke, Backoff, Delay},
		{Starting, Refused, Failed, Detach},
		{Starting, Exhausted, Failed, Detach},
		{Starting, Park, Pausing, Hold},
		{Starting, Drain, Draining, Shut},
		{Starting, Consume, Draining, None},
		{Starting, Stop, Finishing, Hold},
		{Starting, Kill, Aborting, Cancel},

		{Running, Broke, Backoff, Delay},
		{Running, Refused, Failed, Detach},
		{Running, Exhausted, Failed, Detach},
		{Running, Park, Pausing, Hold},
		{Running, Drain, Draining, Shut},
		{Running, Consume, Draining, None},
		{Running, Stop, Finishing, Hold},
		{Running, Kill, Aborting, Cancel},

		{Pausing, Start, Starting, Open},
		{Pausing, Quiet, Paused, Finish},
		{Pausing, SoftQuiet, Pausing, Hold},
		{Pausing, Hard, Pausing, Abandon},
		{Pausing, Broke, Pausing, Detach},
		{Pausing, Refused, Pausing, Detach},
		{Pausing, Drain, Draining, Shut},
		{Pausing, Stop, Finishing, Hold},
		{Pausing, Kill, Aborting, Cancel},

		{Paused, Start, Starting, Open},
		{Paused, Broke, Paused, Detach},
		{Paused, Refused, Paused, Detach},
		{Paused, Drain, Draining, Shut},
		{Paused, Stop, Finishing, Hold},
		{Paused, Kill, Aborting, Cancel},

		{Draining, Start, Starting, Open},
		{Draining, Marked, Draining, Shut},
		{Draining, Idle, Closing, Close},
		{Draining, Quiet, Paused, Finish},
		{Draining, Soft, Aborting, Cancel},
		{Draining, SoftQuiet, Pausing, Cancel},
		{Draining, Broke, Draining, Detach},
		{Draining, Refused, Draining, Detach},
		{Draining, Stop, Finishing, Hold},
		{Draining, Kill, Aborting, Cancel},

		{Finishing, Idle, Closing, Close},
		{Finishing, Soft, Aborting, Cancel},
		{Finishing, Broke, Finishing, Detach},
		{Finishing, Refused, Finishing, Detach},
		{Finishing, Kill, Aborting, Cancel},

		{Aborting, Idle, Closing, Close},
		{Aborting, Hard, Closing, Reap},
		{Aborting, Broke, Aborting, Detach},
		{Aborting, Refused, Aborting, Detach},
		{Aborting, Kill, Aborting, Cancel},

		{Closing, Released, Stopped, Finish},
		{Closing, Kill, Closing, Hurry},

		{Backoff, Due, Starting, Open},
		{Backoff, Start, Starting, Open},
		{Backoff, Exhausted, Failed, Detach},
		{Backoff, Park, Pausing, Hold},
		{Backoff, Drain, Draining, Shut},
		{Backoff, Consume, Draining, Shut},
		{Backoff, Stop, Finishing, Hold},
		{Backoff, Kill, Aborting, Cancel},

		{Failed, Start, Starting, Open},
		{Failed, Park, Paused, None},
		{Failed, Drain, Finishing, Hold},
		{Failed, Stop, Finishing, Hold},
		{Failed, Kill, Aborting, Cancel},
	}
}

// Machine answers from the table in constant time.
type Machine [Failed + 1][Released + 1]Row

// NewMachine indexes the table.
func NewMachine() *Machine {
	m := &Machine{}
	for _, r := range Table() {
		m[r.From][r.On] = r
	}
	return m
}

// Next is the row for an event in a state, and whether there is one.
func (m *Machine) Next(s State, e Event) (Row, bool) {
	r := m[s][e]
	return r, r.From != 0
}
