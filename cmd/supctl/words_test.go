package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"google.golang.org/protobuf/types/known/durationpb"
)

func receipts() map[string]*pb.Receipt {
	base := func(v pb.Verb, o pb.ReceiptOutcome, d time.Duration, s pb.State) *pb.Receipt {
		return &pb.Receipt{
			Id: "op-9", Namespace: "shop", Name: "orders", Verb: v, Outcome: o, State: s, Actor: "alice", Reason: "deploy",
			Started: at(-30 * time.Second), Duration: durationpb.New(d), Completed: 132, Release: pb.Release_RELEASE_CONFIRMED,
		}
	}
	clean := base(pb.Verb_VERB_DRAIN, pb.ReceiptOutcome_RECEIPT_OUTCOME_CLEAN, 4240*time.Millisecond, pb.State_STATE_STOPPED)
	clean.Returned, clean.Retried, clean.DeadLettered = 3, 1, 2
	forced := base(pb.Verb_VERB_STOP, pb.ReceiptOutcome_RECEIPT_OUTCOME_UNCLEAN, 25*time.Second, pb.State_STATE_STOPPED)
	forced.SoftFired, forced.HardFired, forced.Release = true, true, pb.Release_RELEASE_PENDING
	forced.Abandoned = []*pb.AbandonedMessage{{Id: "ORDERS:17", Age: durationpb.New(31 * time.Second)}, {Id: "x\x1b[2J", Age: durationpb.New(26 * time.Second)}}
	killed := base(pb.Verb_VERB_KILL, pb.ReceiptOutcome_RECEIPT_OUTCOME_UNCLEAN, 500*time.Millisecond, pb.State_STATE_STOPPED)
	killed.Abandoned = forced.GetAbandoned()[:1]
	unproven := base(pb.Verb_VERB_PAUSE, pb.ReceiptOutcome_RECEIPT_OUTCOME_UNCLEAN, 80*time.Millisecond, pb.State_STATE_PAUSED)
	unproven.Unconfirmed, unproven.OwnershipLost, unproven.WillRepeat, unproven.SoftFired = 4, 1, 2, true
	return map[string]*pb.Receipt{
		"clean": clean, "forced": forced, "killed": killed, "unproven": unproven,
		"overtaken":   base(pb.Verb_VERB_DRAIN, pb.ReceiptOutcome_RECEIPT_OUTCOME_OVERTAKEN, time.Second, pb.State_STATE_STOPPING),
		"interrupted": base(pb.Verb_VERB_DRAIN, pb.ReceiptOutcome_RECEIPT_OUTCOME_INTERRUPTED, 0, pb.State_STATE_STOPPED),
	}
}

func TestReceipts(t *testing.T) {
	want := map[string]exit{
		"clean": exitOK, "forced": exitForced, "killed": exitOK, "unproven": exitOK, "overtaken": exitConflict, "interrupted": exitGeneral,
	}
	var b bytes.Buffer
	for _, name := range []string{"clean", "forced", "killed", "unproven", "overtaken", "interrupted"} {
		r := receipts()[name]
		err := receiptFailure("orders", r)
		if got := exitOf(err); got != want[name] {
			t.Errorf("%s: exit status %d, want %d", name, got, want[name])
		}
		fmt.Fprintf(&b, "%s\n", receiptLine("orders", r))
		writeAbandoned(&b, r)
		if err != nil {
			fmt.Fprintf(&b, "error: %v\n", err)
		}
	}
	golden(t, "receipts", b.String())
}

func TestAbandonedAreBounded(t *testing.T) {
	r := receipts()["forced"]
	for i := range 1000 {
		r.Abandoned = append(r.Abandoned, &pb.AbandonedMessage{Id: strconv.Itoa(i)})
	}
	var b bytes.Buffer
	writeAbandoned(&b, r)
	if n := strings.Count(b.String(), "\n"); n != maxNamed+1 || !strings.Contains(b.String(), "and 982 more: see 'supctl receipt shop/orders op-9 -o json'") {
		t.Errorf("%d lines:\n%s", n, b.String())
	}
}

func TestResultLine(t *testing.T) {
	var b bytes.Buffer
	for _, c := range []struct {
		verb   pb.Verb
		result *pb.VerbResult
		dryRun bool
	}{
		{pb.Verb_VERB_START, &pb.VerbResult{Effect: pb.Effect_EFFECT_ACTED, State: pb.State_STATE_STARTING}, false},
		{pb.Verb_VERB_RESUME, &pb.VerbResult{Effect: pb.Effect_EFFECT_ACTED, State: pb.State_STATE_PAUSED, Note: "still held by schedule"}, false},
		{pb.Verb_VERB_DRAIN, &pb.VerbResult{Effect: pb.Effect_EFFECT_ACTED, State: pb.State_STATE_DRAINING}, false},
		{pb.Verb_VERB_STOP, &pb.VerbResult{Effect: pb.Effect_EFFECT_NO_OP, State: pb.State_STATE_STOPPED}, false},
		{pb.Verb_VERB_PAUSE, &pb.VerbResult{Effect: pb.Effect_EFFECT_NOTED, State: pb.State_STATE_STOPPED, Note: "a start ends PAUSED"}, false},
		{pb.Verb_VERB_PAUSE, &pb.VerbResult{Effect: pb.Effect_EFFECT_ACTED, StateBefore: pb.State_STATE_RUNNING, State: pb.State_STATE_PAUSING}, true},
		{pb.Verb_VERB_SCALE, &pb.VerbResult{Effect: pb.Effect_EFFECT_ACTED, State: pb.State_STATE_RUNNING, Note: "8 -> 4"}, false},
		{pb.Verb_VERB_DELETE, &pb.VerbResult{Effect: pb.Effect_EFFECT_ACTED}, false},
		{pb.Verb_VERB_DELETE, &pb.VerbResult{Effect: pb.Effect_EFFECT_ACTED, Receipt: receipts()["killed"]}, false},
		{pb.Verb_VERB_KILL, &pb.VerbResult{Effect: pb.Effect_EFFECT_ACTED, Receipt: receipts()["killed"]}, false},
	} {
		fmt.Fprintln(&b, resultLine(c.verb, "orders", c.result, c.dryRun))
	}
	golden(t, "results", b.String())
}
