package main

import (
	"bytes"
	"testing"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// at is a time relative to noon.
func at(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(noon().Add(d)) }

func sample(name string, state pb.State, change func(*pb.Consumer)) *pb.Consumer {
	c := &pb.Consumer{
		Spec: &pb.ConsumerSpec{
			Namespace: "shop", Name: name, Labels: map[string]string{"team": "payments", "eu": ""},
			Source:  &pb.Source{Connection: "main", Broker: &pb.Source_Nats{Nats: &pb.NatsSource{Stream: "ORDERS"}}},
			Handler: &pb.Handler{Timeout: durationpb.New(10 * time.Second), Kind: &pb.Handler_Http{Http: &pb.HttpHandler{Url: "http://billing.internal/orders"}}},
		},
		Desired: &pb.Desired{State: pb.DesiredState_DESIRED_STATE_RUNNING},
		Status:  &pb.Status{State: state, Since: at(-90 * time.Minute), Concurrency: 8, Epoch: 3},
		Etag:    "9f", Uid: "u1", Generation: 2, Created: at(-48 * time.Hour), Updated: at(-2 * time.Hour),
	}
	change(c)
	return c
}

func hold(name, actor, reason string, until *timestamppb.Timestamp) *pb.Hold {
	return &pb.Hold{Name: name, Actor: actor, Reason: reason, Since: at(-time.Hour), Until: until}
}

func samples() []*pb.Consumer {
	return []*pb.Consumer{
		sample("orders", pb.State_STATE_RUNNING, func(c *pb.Consumer) {
			c.Status.InFlight, c.Status.Running, c.Status.Concurrency = 12, 12, 16
			c.Status.Oldest, c.Status.Rate = durationpb.New(4*time.Second), 340.4
			c.Status.Lag = &pb.Lag{Messages: 1234, At: at(-5 * time.Second)}
		}),
		sample("invoices", pb.State_STATE_PAUSED, func(c *pb.Consumer) {
			c.Desired.Holds = []*pb.Hold{hold("operator", "alice", "ERP down", at(42*time.Minute))}
			c.Status.Lag = &pb.Lag{Messages: 9800, Approximate: true, At: at(-2 * time.Minute)}
		}),
		sample("emails", pb.State_STATE_DRAINING, func(c *pb.Consumer) {
			c.Desired.State = pb.DesiredState_DESIRED_STATE_STOPPED
			c.Status.InFlight, c.Status.Oldest = 3, durationpb.New(11*time.Minute)
			c.Status.Lag = &pb.Lag{At: at(0)}
			c.Status.SoftDeadline, c.Status.HardDeadline = at(108*time.Second), at(3*time.Minute)
		}),
		sample("fraud", pb.State_STATE_BACKOFF, func(c *pb.Consumer) {
			c.Status.Reason, c.Status.Attempt, c.Status.NextAttempt = "NOAUTH", 5, at(8*time.Second)
			c.Status.Conditions = []*pb.Condition{{Type: pb.ConditionType_CONDITION_TYPE_CONNECTED, Reason: "dial tcp", Since: at(-time.Minute)}}
		}),
		sample("audit", pb.State_STATE_FAILED, func(c *pb.Consumer) { c.Status.Reason = "stream \x1b[31mAUDIT\x1b[0m not found\nsecond line" }),
		sample("stuck", pb.State_STATE_STOPPING, func(c *pb.Consumer) {
			c.Status.Phase, c.Status.InFlight = "aborting", 1
			c.Status.SoftDeadline, c.Status.HardDeadline = at(-time.Second), at(9*time.Second)
		}),
		sample("held", pb.State_STATE_PAUSED, func(c *pb.Consumer) {
			c.Desired.Holds = []*pb.Hold{hold("operator", "bob", "", at(time.Hour)), hold("schedule", "cron", "night", nil)}
		}),
		sample("leaky", pb.State_STATE_RUNNING, func(c *pb.Consumer) {
			c.Status.Rate, c.Status.LeakedHandlers = 2.34, 2
			c.Status.Conditions = []*pb.Condition{
				{Type: pb.ConditionType_CONDITION_TYPE_CONNECTED, Status: true},
				{Type: pb.ConditionType_CONDITION_TYPE_HEAD_BLOCKED, Status: true, Reason: "ORDERS:7 attempt 9"},
				{Type: pb.ConditionType_CONDITION_TYPE_HANDLERS_LEAKED, Status: true},
				{Type: pb.ConditionType_CONDITION_TYPE_THROTTLED, Status: false, Reason: "was"},
			}
		}),
		sample("scaled", pb.State_STATE_RUNNING, func(c *pb.Consumer) { c.Desired.Scale = &pb.ScaleOverride{Concurrency: 2, Actor: "carol"} }),
		sample("off", pb.State_STATE_STOPPED, func(c *pb.Consumer) { c.Desired.State = pb.DesiredState_DESIRED_STATE_STOPPED }),
	}
}

func TestConsumerTable(t *testing.T) {
	for name, cols := range map[string]consumerColumns{"list": {}, "list-wide": {namespace: true, wide: true}} {
		var b bytes.Buffer
		table := consumerTable(samples(), cols, noon())
		table.write(&b, false)
		golden(t, name, b.String())
	}
}

func TestConsumerTableInColour(t *testing.T) {
	var b bytes.Buffer
	table := consumerTable(samples(), consumerColumns{}, noon())
	table.write(&b, true)
	golden(t, "list-colour", b.String())
}

func TestDescribe(t *testing.T) {
	c := samples()[0]
	c.Desired.Holds = []*pb.Hold{hold("operator", "alice", "ERP down", at(42*time.Minute)), hold("quota", "daemon", "", nil)}
	c.Desired.Operation = &pb.Operation{Id: "op-1", Verb: pb.Verb_VERB_PAUSE, Actor: "alice", Reason: "ERP down", Started: at(-time.Second), Soft: durationpb.New(15 * time.Second), Hard: durationpb.New(25 * time.Second)}
	c.Desired.Scale = &pb.ScaleOverride{Concurrency: 4, Actor: "bob", Reason: "night"}
	c.Status.Conditions = samples()[7].GetStatus().GetConditions()
	c.Status.LeakedHandlers, c.Status.InFlightBytes = 1, 1536
	c.Status.Counters = &pb.Counters{Received: 100, Acked: 90, Retried: 3, DeadLettered: 1, Returned: 5, Abandoned: 1}
	c.Status.Capabilities = &pb.Capabilities{Pause: "The pull ends; other members go on.", KeepsMembership: true, GiveBackCounts: true, MessagesBoundHard: true, Lag: true}
	d := description{
		consumer: c, receipt: receipts()["forced"],
		transitions: []*pb.Transition{
			{Sequence: 1, At: at(-time.Hour), From: pb.State_STATE_STOPPED, To: pb.State_STATE_STARTING, Event: "START", Actor: "alice"},
			{Sequence: 2, At: at(-time.Minute), From: pb.State_STATE_STARTING, To: pb.State_STATE_RUNNING, Event: "SUBSCRIBED", Reason: "epoch 3"},
		},
	}
	var b bytes.Buffer
	d.write(&b, &app{env: newConsole(t, nil).environment})
	golden(t, "describe", b.String())
}

func TestCount(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 999: "999", 1000: "1.0k", 1234: "1.2k", 9949: "9.9k", 9950: "10k", 34_400: "34k", 999_499: "999k", 999_500: "1.0M", 5_600_000: "5.6M", 1 << 62: "4612P",
	} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %s, want %s", n, got, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain ä 世":        "plain ä 世",
		"\x1b[2Jgone":      `\x1b[2Jgone`,
		"nul\x00, bell\a":  `nul\x00, bell\a`,
		"two\nlines":       "two\nlines",
		"bad\xff\xfe":      `bad\xff\xfe`,
		"\ufffd stays":     "\ufffd stays",
		"\u202egnp.exe":    `\u202egnp.exe`,
		"tab\there\r":      `tab\there\r`,
		"soft\u00adhyphen": `soft\u00adhyphen`,
	} {
		if got := printable(in); got != want {
			t.Errorf("printable(%q) = %q, want %q", in, got, want)
		}
	}
	if got := oneLine("a\nb\r\nc"); got != "a; b; c" {
		t.Errorf("got %q", got)
	}
}
