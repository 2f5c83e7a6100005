package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
)

// script feeds a waiter what a daemon's watch tells.
type script struct {
	t      *testing.T
	w      *waiter
	stderr bytes.Buffer
	// now is what a look finds.
	now *pb.Consumer
}

func newScript(t *testing.T, v pb.Verb, live bool, results ...*pb.VerbResult) *script {
	s := &script{t: t}
	p := &progress{w: &s.stderr, live: live, now: noon, size: func() (int, int) { return 40, 24 }}
	s.w = newWaiter(nil, v, results, p)
	s.w.look = func(context.Context, key) (*pb.Consumer, error) { return s.now, nil }
	return s
}

func (s *script) event(e *pb.WatchResponse) {
	s.t.Helper()
	if err := s.w.take(context.Background(), &update{event: e}); err != nil {
		s.t.Fatal(err)
	}
	s.w.progress.draw(s.w.left())
}

func (s *script) state(name string, state pb.State, revision uint64, operation string) {
	s.t.Helper()
	s.now = sample(name, state, func(c *pb.Consumer) {
		if operation != "" {
			c.Desired.Operation = &pb.Operation{Id: operation}
		}
	})
	s.event(&pb.WatchResponse{Revision: revision, Event: &pb.WatchResponse_Consumer{Consumer: s.now}})
}

func (s *script) receipt(name, operation string, o pb.ReceiptOutcome, revision uint64) {
	s.t.Helper()
	s.event(&pb.WatchResponse{Revision: revision, Event: &pb.WatchResponse_Receipt{Receipt: &pb.Receipt{Id: operation, Namespace: "shop", Name: name, Outcome: o, Duration: durationpb.New(time.Second)}}})
}

func (s *script) want(left int) {
	s.t.Helper()
	if got := len(s.w.left()); got != left {
		s.t.Fatalf("%d are waited for, want %d", got, left)
	}
}

func acted(name, operation string, revision uint64) *pb.VerbResult {
	return &pb.VerbResult{Namespace: "shop", Name: name, Effect: pb.Effect_EFFECT_ACTED, Operation: operation, Revision: revision}
}

const clean = pb.ReceiptOutcome_RECEIPT_OUTCOME_CLEAN

func TestWaitsForTheReceiptOfItsOwnOperation(t *testing.T) {
	s := newScript(t, pb.Verb_VERB_DRAIN, false, acted("a", "op-a", 7), acted("b", "op-b", 8),
		&pb.VerbResult{Namespace: "shop", Name: "c", Effect: pb.Effect_EFFECT_NO_OP},
		&pb.VerbResult{Namespace: "shop", Name: "d", Error: &pb.ItemError{}})
	s.want(2)
	if r := s.w.request(); r.GetSinceRevision() != 0 || r.GetNamespace() != "shop" || strings.Join(r.GetNames(), " ") != "a b" {
		t.Errorf("request %v", r)
	}
	s.state("a", pb.State_STATE_DRAINING, 7, "op-a")
	s.receipt("a", "op-of-another", clean, 9)
	s.state("b", pb.State_STATE_STOPPED, 10, "")
	s.want(2)
	s.receipt("a", "op-a", clean, 11)
	s.want(1)
	s.receipt("b", "op-b", clean, 12)
	s.want(0)
}

func TestRestartWaitsUntilItRunsAgain(t *testing.T) {
	s := newScript(t, pb.Verb_VERB_RESTART, false, acted("a", "op", 7))
	s.state("a", pb.State_STATE_RUNNING, 6, "") // Before it begins.
	s.state("a", pb.State_STATE_DRAINING, 7, "op")
	s.now = sample("a", pb.State_STATE_STOPPED, func(*pb.Consumer) {})
	s.receipt("a", "op", clean, 8)
	s.want(1)
	s.state("a", pb.State_STATE_STARTING, 9, "")
	s.state("a", pb.State_STATE_BACKOFF, 10, "")
	s.want(1)
	s.state("a", pb.State_STATE_RUNNING, 11, "")
	s.want(0)
	if s.w.items[0].result.GetState() != pb.State_STATE_RUNNING {
		t.Errorf("%v", s.w.items[0].result)
	}
}

func TestRestartThatWasOverBeforeItsReceiptCame(t *testing.T) {
	s := newScript(t, pb.Verb_VERB_RESTART, false, acted("a", "op", 7))
	s.state("a", pb.State_STATE_RUNNING, 9, "op") // Again, but the watch cannot tell.
	s.want(1)
	s.now = sample("a", pb.State_STATE_RUNNING, func(*pb.Consumer) {})
	s.receipt("a", "op", clean, 10)
	s.want(0)
}

func TestRestartOfAStoppedOneHasNoReceipt(t *testing.T) {
	s := newScript(t, pb.Verb_VERB_RESTART, false, acted("a", "", 7))
	s.state("a", pb.State_STATE_STARTING, 7, "")
	s.want(1)
	s.state("a", pb.State_STATE_PAUSED, 8, "")
	s.want(0)
}

func TestRestartThatFails(t *testing.T) {
	s := newScript(t, pb.Verb_VERB_RESTART, false, acted("a", "op", 7))
	s.now = sample("a", pb.State_STATE_STOPPED, func(*pb.Consumer) {})
	s.receipt("a", "op", clean, 8)
	s.state("a", pb.State_STATE_FAILED, 9, "")
	s.want(0)
	if exitOf(s.w.items[0].err) != exitState {
		t.Errorf("got %v", s.w.items[0].err)
	}
}

func TestRestartThatIsOvertaken(t *testing.T) {
	s := newScript(t, pb.Verb_VERB_RESTART, false, acted("a", "op", 7))
	s.receipt("a", "op", pb.ReceiptOutcome_RECEIPT_OUTCOME_OVERTAKEN, 8)
	s.want(0)
}

func TestDeletedWhileWaitedFor(t *testing.T) {
	s := newScript(t, pb.Verb_VERB_STOP, false, acted("a", "op", 7))
	s.event(&pb.WatchResponse{Revision: 8, Event: &pb.WatchResponse_Deleted{Deleted: &pb.Deleted{Namespace: "shop", Name: "a"}}})
	s.want(0)
	if exitOf(s.w.items[0].err) != exitConflict {
		t.Errorf("got %v", s.w.items[0].err)
	}
}

func TestDeletedWhileTheConnectionWasLost(t *testing.T) {
	s := newScript(t, pb.Verb_VERB_STOP, false, acted("a", "op-a", 7), acted("b", "op-b", 8))
	s.state("a", pb.State_STATE_STOPPING, 8, "op-a")
	s.state("b", pb.State_STATE_STOPPING, 9, "op-b")
	if err := s.w.take(t.Context(), &update{lost: "EOF", resynced: true}); err != nil {
		t.Fatal(err)
	}
	s.want(2)
	s.state("b", pb.State_STATE_STOPPING, 9, "op-b")
	s.event(&pb.WatchResponse{Event: &pb.WatchResponse_Synced{Synced: &pb.Synced{}}})
	s.want(1)
	if exitOf(s.w.items[0].err) != exitConflict {
		t.Errorf("got %v", s.w.items[0].err)
	}
}

func TestNamesOfSeveralNamespacesAreWatchedTogether(t *testing.T) {
	other := acted("b", "op-b", 3)
	other.Namespace = "billing"
	s := newScript(t, pb.Verb_VERB_STOP, false, acted("a", "op-a", 7), other)
	if r := s.w.request(); r.GetNamespace() != everywhere || r.GetNames() != nil {
		t.Errorf("request %v", r)
	}
	s.receipt("b", "op-b", clean, 9) // Of shop, where it is not waited for.
	s.want(2)
}

func TestProgressInALogIsALinePerChange(t *testing.T) {
	s := newScript(t, pb.Verb_VERB_DRAIN, false, acted("a", "op", 7))
	for range 3 {
		s.state("a", pb.State_STATE_DRAINING, 7, "op")
	}
	s.state("a", pb.State_STATE_STOPPED, 8, "")
	if got, want := s.stderr.String(), "a DRAINING\na STOPPED\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestProgressOnATerminalIsDrawnAgain(t *testing.T) {
	var results []*pb.VerbResult
	for n := range strings.SplitSeq("abcdefghijklmnop", "") {
		results = append(results, acted(n, "op-"+n, 7))
	}
	s := newScript(t, pb.Verb_VERB_DRAIN, true, results...)
	s.w.progress.draw(s.w.left())
	if lines := strings.Count(s.stderr.String(), "\n"); lines != maxLines+1 || !strings.Contains(s.stderr.String(), "and 4 more\n") {
		t.Errorf("%d lines:\n%s", lines, s.stderr.String())
	}
	s.stderr.Reset()
	s.state("a", pb.State_STATE_DRAINING, 7, "op-a")
	if got := s.stderr.String(); !strings.HasPrefix(got, "\x1b[13A\x1b[J") || strings.Count(got, "\n") != maxLines+1 {
		t.Errorf("got %q", got)
	}
	s.stderr.Reset()
	s.w.progress.say("connection lost")
	if got := s.stderr.String(); got != "\x1b[13A\x1b[Jconnection lost\n" {
		t.Errorf("got %q", got)
	}
}

func TestProgressKeepsToTheTerminal(t *testing.T) {
	for _, c := range []struct {
		in      string
		columns int
		want    string
	}{
		{"short", 40, "short"}, {"0123456789", 10, "01234567…"}, {"ääääääääää", 10, "ääääääää…"}, {"anything", 0, "anything"},
	} {
		if got := fit(c.in, c.columns); got != c.want {
			t.Errorf("fit(%q, %d) = %q, want %q", c.in, c.columns, got, c.want)
		}
	}
}

func TestHowAFollowerGoesOn(t *testing.T) {
	lost := &apiError{code: codes.Unavailable, message: "gone"}
	slow := &apiError{code: codes.ResourceExhausted, reason: pb.ErrorReason_ERROR_REASON_SLOW_WATCHER}
	compacted := &apiError{code: codes.OutOfRange, reason: pb.ErrorReason_ERROR_REASON_REVISION_COMPACTED}
	denied := &apiError{code: codes.PermissionDenied}
	for _, c := range []struct {
		name     string
		relist   bool
		known    bool
		chosen   uint64
		err      error
		since    uint64
		resynced bool
		ends     bool
	}{
		{"a lost connection is resumed", false, false, 0, lost, 9, false, false},
		{"or listed anew", true, false, 0, lost, 0, true, false},
		{"a slow watcher resumes", false, false, 0, slow, 9, false, false},
		{"what is gone is listed anew", false, false, 3, compacted, 0, true, false},
		{"also when it is a list's revision", false, true, 9, compacted, 0, true, false},
		{"but not when the user asked for it", false, false, 9, compacted, 9, false, true},
		{"a refusal is the end", false, true, 0, denied, 9, false, true},
		{"as is any other error", false, true, 0, errors.New("?"), 9, false, true},
	} {
		req := &pb.WatchRequest{SinceRevision: 9}
		f := &follower{relist: c.relist, known: c.known, request: &pb.WatchRequest{SinceRevision: c.chosen}}
		u, err := f.next(req, c.err)
		if req.GetSinceRevision() != c.since || u.resynced != c.resynced || (err != nil) != c.ends {
			t.Errorf("%s: since %d, %+v, %v", c.name, req.GetSinceRevision(), u, err)
		}
	}
}
