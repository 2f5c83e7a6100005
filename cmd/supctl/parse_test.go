package main

import (
	"strings"
	"testing"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func TestParseUntil(t *testing.T) {
	for in, want := range map[string]string{
		"15:30":                "2026-12-01T15:30:00+01:00",
		"11:59":                "2026-12-02T11:59:00+01:00",
		"12:00":                "2026-12-02T12:00:00+01:00",
		"2026-12-24":           "2026-12-24T00:00:00+01:00",
		"2026-12-24 18:00":     "2026-12-24T18:00:00+01:00",
		"2026-12-24T18:00:05":  "2026-12-24T18:00:05+01:00",
		"2026-12-24T18:00:00Z": "2026-12-24T18:00:00Z",
	} {
		got, err := parseUntil(in, noon())
		if err != nil || got.Format(time.RFC3339) != want {
			t.Errorf("parseUntil(%q) = %s, %v; want %s", in, got.Format(time.RFC3339), err, want)
		}
	}
	for in, want := range map[string]string{
		"2026-11-30": "in the past", "2026-12-01T10:59:59Z": "in the past", "tomorrow": "is not a time", "": "is not a time", "25:00": "is not a time",
	} {
		if at, err := parseUntil(in, noon()); err == nil || !strings.Contains(err.Error(), want) || exitOf(err) != exitUsage {
			t.Errorf("parseUntil(%q) = %v, %v; want %q", in, at, err, want)
		}
	}
}

// The clock is set forward in this night: 02:30 is not there, and 03:30 is
// still the next 03:30 that the clock shows.
func TestParseUntilOverAChangeOfTheClock(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	before := time.Date(2027, 3, 27, 23, 0, 0, 0, berlin)
	got, err := parseUntil("03:30", before)
	if want := time.Date(2027, 3, 28, 3, 30, 0, 0, berlin); err != nil || !got.Equal(want) || got.Sub(before) != 3*time.Hour+30*time.Minute {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestCondition(t *testing.T) {
	state := func(s pb.State, inFlight int32) *pb.Consumer {
		return &pb.Consumer{Status: &pb.Status{State: s, InFlight: inFlight, Reason: "no stream"}}
	}
	lag := func(n int64, at time.Duration) *pb.Consumer {
		return &pb.Consumer{Status: &pb.Status{State: pb.State_STATE_RUNNING, Lag: &pb.Lag{Messages: n, At: timestamppb.New(noon().Add(at))}}}
	}
	for _, c := range []struct {
		cond       string
		first, now *pb.Consumer
		done       bool
		status     exit
	}{
		{"state=PAUSED", nil, state(pb.State_STATE_PAUSING, 0), false, exitOK},
		{"state=PAUSED", nil, state(pb.State_STATE_PAUSED, 3), true, exitOK},
		{"state=paused,STOPPED", nil, state(pb.State_STATE_STOPPED, 0), true, exitOK},
		{"state=RUNNING", nil, state(pb.State_STATE_FAILED, 0), false, exitState},
		{"state=FAILED", nil, state(pb.State_STATE_FAILED, 0), true, exitOK},
		{"drained", nil, state(pb.State_STATE_PAUSED, 1), false, exitOK},
		{"drained", nil, state(pb.State_STATE_PAUSED, 0), true, exitOK},
		{"drained", nil, state(pb.State_STATE_RUNNING, 0), false, exitOK},
		{"drained", nil, state(pb.State_STATE_FAILED, 0), false, exitState},
		{"inflight=0", nil, state(pb.State_STATE_RUNNING, 1), false, exitOK},
		{"inflight=0", nil, state(pb.State_STATE_RUNNING, 0), true, exitOK},
		{"inflight<3", nil, state(pb.State_STATE_RUNNING, 3), false, exitOK},
		{"inflight<3", nil, state(pb.State_STATE_RUNNING, 2), true, exitOK},
		{"inflight=0", nil, state(pb.State_STATE_FAILED, 0), true, exitOK},
		{"lag<10", lag(0, 0), lag(0, 0), false, exitOK},
		{"lag<10", lag(0, 0), lag(9, time.Second), true, exitOK},
		{"lag<10", lag(0, 0), lag(10, time.Second), false, exitOK},
		{"lag=0", state(pb.State_STATE_RUNNING, 0), lag(0, time.Second), true, exitOK},
		{"lag=0", lag(0, 0), state(pb.State_STATE_RUNNING, 0), false, exitOK},
	} {
		cond, err := parseCondition(c.cond)
		if err != nil {
			t.Fatal(err)
		}
		done, err := judged(cond, c.first, c.now)
		if done != c.done || exitOf(err) != c.status {
			t.Errorf("%s of %v: done %t, %v; want %t, status %d", c.cond, c.now, done, err, c.done, c.status)
		}
	}
	for _, bad := range []string{"", "state=", "state=BUSY", "inflight", "inflight=3", "inflight<0", "inflight<-1", "lag>3", "lag<x", "rate<3", "=0", "drained=1"} {
		if c, err := parseCondition(bad); exitOf(err) != exitUsage {
			t.Errorf("parseCondition(%q) = %+v, %v; want a usage error", bad, c, err)
		}
	}
}

// Else a broker that cannot tell its lag would be waited for without end.
func TestConditionNeedsTheCapability(t *testing.T) {
	cond, err := parseCondition("lag=0")
	if err != nil {
		t.Fatal(err)
	}
	_, err = judged(cond, nil, &pb.Consumer{Status: &pb.Status{State: pb.State_STATE_RUNNING, Capabilities: &pb.Capabilities{}}})
	if exitOf(err) != exitConflict {
		t.Errorf("got %v", err)
	}
}

func judged(cond *condition, first, now *pb.Consumer) (done bool, err error) {
	w := &stateWaiter{cond: cond, open: map[key]*waited{keyOf(now): {first: first, now: now}}, met: map[key]*pb.Consumer{}}
	err = w.judge(w.open[keyOf(now)])
	return len(w.open) == 0, err
}

func TestNearest(t *testing.T) {
	words := []string{"orders", "invoices", "emails", "fraud"}
	for in, want := range map[string]string{
		"order": "orders", "odrers": "orders", "invoice": "invoices", "mail": "", "xyz": "", "orders": "orders", "": "", "f": "",
	} {
		if got := nearest(in, words); got != want {
			t.Errorf("nearest(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"", "abc", 3}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"kitten", "sitting", 3}, {"ca", "abc", 3},
	} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestItemPath(t *testing.T) {
	for in, want := range map[string]struct {
		i    int
		path string
		ok   bool
	}{
		"items[0].spec.handler.timeout": {0, "handler.timeout", true},
		"items[12].spec":                {12, "", true},
		"items[3].etag":                 {3, "etag", true},
		`items[1].spec.labels["a.b"]`:   {1, `labels["a.b"]`, true},
		"target.names[0]":               {0, "", false},
		"items[x].spec":                 {0, "", false},
		"items[1":                       {0, "", false},
		"items[-1].spec":                {0, "", false},
	} {
		i, path, ok := itemPath(in)
		if i != want.i || path != want.path || ok != want.ok {
			t.Errorf("itemPath(%q) = %d, %q, %t", in, i, path, ok)
		}
	}
}
