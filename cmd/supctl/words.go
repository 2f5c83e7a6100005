package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
)

// verbWord is a verb in a sentence: "drain".
func verbWord(v pb.Verb) string { return strings.ToLower(textform.ShortEnum(v)) }

// done is what a verb has done when it is done: "drained".
func done(v pb.Verb) string {
	switch v {
	case pb.Verb_VERB_STOP:
		return "stopped"
	case pb.Verb_VERB_SHUTDOWN:
		return "shut down"
	case pb.Verb_VERB_START, pb.Verb_VERB_RESTART, pb.Verb_VERB_KILL, pb.Verb_VERB_DRAIN:
		return verbWord(v) + "ed"
	}
	return verbWord(v) + "d"
}

// resultLine says what a verb did to one consumer.
func resultLine(v pb.Verb, name string, r *pb.VerbResult, dryRun bool) string {
	state := textform.ShortEnum(r.GetState())
	var s string
	switch {
	case r.GetReceipt() != nil && v == pb.Verb_VERB_DELETE:
		return name + " deleted, killed before: " + strings.Join(tally(r.GetReceipt()), ", ")
	case r.GetReceipt() != nil:
		return receiptLine(name, r.GetReceipt())
	case r.GetEffect() == pb.Effect_EFFECT_NO_OP:
		s = fmt.Sprintf("%s unchanged, %s", name, state)
	case r.GetEffect() == pb.Effect_EFFECT_NOTED:
		s = fmt.Sprintf("%s stays %s, noted", name, state)
	case dryRun:
		s = fmt.Sprintf("%s would be %s, now %s", name, done(v), textform.ShortEnum(r.GetStateBefore()))
	case v == pb.Verb_VERB_DELETE, v == pb.Verb_VERB_SCALE:
		s = name + " " + done(v)
	default:
		s = fmt.Sprintf("%s %s, now %s", name, accepted(v), state)
	}
	return printable(joinReason(s, oneLine(r.GetNote())))
}

// accepted is what can be said of a verb before it is done.
func accepted(v pb.Verb) string {
	switch v {
	case pb.Verb_VERB_START, pb.Verb_VERB_RESUME, pb.Verb_VERB_KILL:
		return done(v)
	}
	return verbWord(v) + " accepted"
}

// receiptLine is a receipt in a line: "orders drained in 4.2s, STOPPED: 132
// completed, 3 returned".
func receiptLine(name string, r *pb.Receipt) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", name, receiptVerb(r))
	if r.GetOutcome() == pb.ReceiptOutcome_RECEIPT_OUTCOME_INTERRUPTED {
		b.WriteString(": the daemon died meanwhile, what became of the work is not known")
		return printable(b.String())
	}
	fmt.Fprintf(&b, " in %s, %s", seconds(r.GetDuration().AsDuration()), textform.ShortEnum(r.GetState()))
	fmt.Fprintf(&b, ": %s", strings.Join(tally(r), ", "))
	return printable(b.String())
}

func receiptVerb(r *pb.Receipt) string {
	switch {
	case r.GetOutcome() == pb.ReceiptOutcome_RECEIPT_OUTCOME_OVERTAKEN:
		return verbWord(r.GetVerb()) + " overtaken by another verb"
	case r.GetOutcome() == pb.ReceiptOutcome_RECEIPT_OUTCOME_INTERRUPTED:
		return verbWord(r.GetVerb()) + " interrupted"
	case forced(r) && r.GetVerb() != pb.Verb_VERB_KILL:
		return done(r.GetVerb()) + " by force"
	}
	return done(r.GetVerb())
}

// tally lists the numbers of a receipt that are not 0; completed always.
func tally(r *pb.Receipt) []string {
	parts := []string{fmt.Sprintf("%d completed", r.GetCompleted())}
	for _, n := range []struct {
		n    int64
		what string
	}{
		{r.GetRetried(), "retried"},
		{r.GetDeadLettered(), "dead-lettered"},
		{r.GetReturned(), "returned"},
		{int64(len(r.GetAbandoned())), "abandoned"},
		{r.GetUnconfirmed(), "unconfirmed"},
		{r.GetOwnershipLost(), "taken away by the broker"},
		{r.GetWillRepeat(), "will repeat"},
	} {
		if n.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n.n, n.what))
		}
	}
	if r.GetHardFired() {
		parts = append(parts, "hard limit fired")
	} else if r.GetSoftFired() {
		parts = append(parts, "soft limit fired")
	}
	if r.GetBacklogTimedOut() {
		parts = append(parts, "the mark was not reached in time")
	}
	if r.GetRelease() == pb.Release_RELEASE_PENDING {
		parts = append(parts, "release pending")
	}
	return parts
}

// maxNamed bounds how many abandoned messages a text names.
const maxNamed = 20

// writeAbandoned names the messages that were still in a handler.
func writeAbandoned(w io.Writer, r *pb.Receipt) {
	for i, m := range r.GetAbandoned() {
		if i == maxNamed {
			fmt.Fprintf(w, "  and %d more: see 'supctl receipt %s/%s %s -o json'\n",
				len(r.GetAbandoned())-i, oneLine(r.GetNamespace()), oneLine(r.GetName()), oneLine(r.GetId()))
			return
		}
		fmt.Fprintf(w, "  abandoned %s, taken %s before; it will be delivered again\n", oneLine(m.GetId()), textform.FormatDuration(m.GetAge().AsDuration()))
	}
}

// forced: handlers were cut off, so the verb did not end as it should.
func forced(r *pb.Receipt) bool {
	return r.GetOutcome() == pb.ReceiptOutcome_RECEIPT_OUTCOME_UNCLEAN && (r.GetHardFired() || len(r.GetAbandoned()) > 0)
}

// receiptFailure is the error that a receipt stands for; nil when the verb
// ended as it should.
func receiptFailure(name string, r *pb.Receipt) error {
	switch {
	case r.GetOutcome() == pb.ReceiptOutcome_RECEIPT_OUTCOME_INTERRUPTED:
		return failf(exitGeneral, "%s: the daemon died during the %s: look with 'supctl get %s'", name, verbWord(r.GetVerb()), name)
	case r.GetOutcome() == pb.ReceiptOutcome_RECEIPT_OUTCOME_OVERTAKEN:
		return failf(exitConflict, "%s: another verb overtook the %s: see 'supctl events %s'", name, verbWord(r.GetVerb()), name)
	case r.GetBacklogTimedOut() && !forced(r):
		return failf(exitState, "%s: the backlog was not consumed within --backlog-timeout; the %s went on with what was taken", name, verbWord(r.GetVerb()))
	case forced(r) && r.GetVerb() != pb.Verb_VERB_KILL:
		return failf(exitForced, "%s: the %s ended by force", name, verbWord(r.GetVerb()))
	}
	return nil
}

// seconds is a duration to a tenth of a second, in people's form above ten.
func seconds(d time.Duration) string {
	if d < 10*time.Second && d >= time.Second {
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	}
	return textform.FormatDuration(d)
}
