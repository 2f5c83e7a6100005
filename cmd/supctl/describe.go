package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// lastTransitions is how much of the history describe shows.
const lastTransitions = 10

func newDescribe(a *app) *cobra.Command {
	var s selection
	cmd := &cobra.Command{
		Use:   "describe NAME...",
		Short: "Tell everything about consumers, for people",
		RunE: a.with(func(ctx context.Context, c *client, args []string) error {
			s.names = args
			list, missing := a.resolve(ctx, c, &s)
			if len(list) == 0 && (missing != nil || a.human()) {
				return a.noneOf(missing)
			}
			v := a.consumersView(list, false)
			if len(list) == 1 {
				v = v.single()
			}
			if !a.human() {
				return errors.Join(a.print(v), missing)
			}
			var found []description
			for _, x := range list {
				d, err := describe(ctx, c, x)
				if err != nil {
					return err
				}
				found = append(found, d)
			}
			v.lines = func(w io.Writer) {
				for i, d := range found {
					if i > 0 {
						fmt.Fprintln(w)
					}
					d.write(w, a)
				}
			}
			if err := a.print(v); err != nil {
				return err
			}
			return missing
		}),
		ValidArgsFunction: a.completeNames,
	}
	s.flags(cmd)
	return cmd
}

// description is a consumer with what else is shown of it.
type description struct {
	consumer    *pb.Consumer
	receipt     *pb.Receipt
	transitions []*pb.Transition
}

func describe(ctx context.Context, c *client, x *pb.Consumer) (description, error) {
	ns, name := x.GetSpec().GetNamespace(), x.GetSpec().GetName()
	d := description{consumer: x}
	receipts, err := c.consumers.ListReceipts(ctx, &pb.ListReceiptsRequest{Namespace: ns, Name: name, Limit: 1})
	if err != nil {
		return d, err
	}
	if len(receipts.GetReceipts()) > 0 {
		d.receipt = receipts.GetReceipts()[0]
	}
	transitions, err := c.consumers.ListTransitions(ctx, &pb.ListTransitionsRequest{Namespace: ns, Name: name, Limit: lastTransitions})
	d.transitions = transitions.GetTransitions()
	return d, err
}

func (d description) write(w io.Writer, a *app) {
	now, color := a.env.now(), a.color()
	section(w, color, "", d.summary(now))
	section(w, color, "Desired", d.desired(now))
	section(w, color, "Status", d.status(now))
	section(w, color, "Conditions", d.conditions(now))
	section(w, color, "Broker", d.capabilities())
	section(w, color, "Counters since the daemon started", d.counters())
	if d.receipt != nil {
		fmt.Fprintf(w, "\nLast receipt, %s, %s ago:\n", oneLine(d.receipt.GetId()), age(d.receipt.GetStarted().AsTime(), now))
		fmt.Fprintf(w, "  %s\n", oneLine(receiptLine(d.consumer.GetSpec().GetName(), d.receipt)))
		writeAbandoned(w, d.receipt)
	}
	if len(d.transitions) > 0 {
		fmt.Fprintln(w, "\nHistory:")
		t := transitionTable(d.transitions, now)
		t.titles = nil
		for i := range t.rows {
			t.rows[i][0].text = "  " + t.rows[i][0].text
		}
		t.write(w, color)
	}
}

// fields are lines of a name and a value.
type fields struct{ rows [][]cell }

func (f *fields) add(name, value string) {
	if value != "" {
		f.rows = append(f.rows, []cell{text(name + ":"), text(value)})
	}
}

func section(w io.Writer, color bool, title string, f fields) {
	if len(f.rows) == 0 {
		return
	}
	if title != "" {
		fmt.Fprintf(w, "\n%s:\n", title)
		for i := range f.rows {
			f.rows[i][0].text = "  " + f.rows[i][0].text
		}
	}
	t := table{rows: f.rows}
	t.write(w, color)
}

func (d description) summary(now time.Time) fields {
	s := d.consumer.GetSpec()
	var f fields
	f.add("Name", keyOf(d.consumer).String())
	f.add("Labels", labelsOf(s.GetLabels()))
	f.add("Source", s.GetSource().GetConnection()+": "+chosen(s.GetSource(), "broker"))
	f.add("Handler", handlerOf(s.GetHandler()))
	f.add("Concurrency", d.concurrency())
	f.add("Ordering", orElse(shortOrNone(s.GetOrdering()), "NONE"))
	f.add("Max in flight", brief(s.GetMaxInFlight()))
	f.add("Retry", brief(s.GetRetry()))
	f.add("Dead letters", orElse(brief(s.GetDeadLetter()), "none: a message whose attempts are used up is retried for ever"))
	f.add("Stop", brief(s.GetStop()))
	f.add("Generation", fmt.Sprintf("%d, etag %s", d.consumer.GetGeneration(), d.consumer.GetEtag()))
	f.add("Created", since(d.consumer.GetCreated(), now))
	f.add("Updated", since(d.consumer.GetUpdated(), now))
	if x := d.consumer.GetLastSeek(); x != nil {
		f.add("Last seek", fmt.Sprintf("%s by %s, %d partitions moved%s", since(x.GetAt(), now), x.GetActor(), len(x.GetChanges()), because(x.GetReason())))
	}
	return f
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func shortOrNone(o pb.Ordering) string {
	if o == pb.Ordering_ORDERING_UNSPECIFIED {
		return ""
	}
	return textform.ShortEnum(o)
}

// handlerOf is "http, url http://billing.internal/orders; timeout 10s".
func handlerOf(h *pb.Handler) string {
	s := chosen(h, "kind")
	if t := h.GetTimeout(); t != nil {
		s += "; timeout " + t.AsDuration().String()
	}
	return s
}

// chosen is the member of a oneof that is set, with its fields.
func chosen(m proto.Message, oneof protoreflect.Name) string {
	r := m.ProtoReflect()
	f := r.WhichOneof(r.Descriptor().Oneofs().ByName(oneof))
	if f == nil {
		return "of a kind that this supctl does not know"
	}
	return strings.TrimSuffix(f.TextName()+", "+brief(r.Get(f).Message().Interface()), ", ")
}

// brief is the fields of a message that are set: "subject orders.dead".
func brief(m proto.Message) string {
	r := m.ProtoReflect()
	var parts []string
	for i := range r.Descriptor().Fields().Len() {
		if f := r.Descriptor().Fields().Get(i); r.Has(f) {
			parts = append(parts, f.TextName()+" "+textform.FormatValue(f, r.Get(f)))
		}
	}
	return strings.Join(parts, ", ")
}

// concurrency tells slots in force and what they come from.
func (d description) concurrency() string {
	s := strconv.Itoa(int(d.consumer.GetStatus().GetConcurrency()))
	if over := d.consumer.GetDesired().GetScale(); over != nil {
		s += fmt.Sprintf(", scaled to %d by %s", over.GetConcurrency(), over.GetActor())
		if over.GetReason() != "" {
			s += ": " + over.GetReason()
		}
	}
	if n := d.consumer.GetStatus().GetLeakedHandlers(); n > 0 {
		s += fmt.Sprintf("; %d held by handlers that ignore their cancellation", n)
	}
	return s
}

func (d description) desired(now time.Time) fields {
	var f fields
	f.add("State", desiredOf(d.consumer))
	for _, h := range d.consumer.GetDesired().GetHolds() {
		f.add("Hold "+h.GetName(), fmt.Sprintf("by %s since %s%s", h.GetActor(), since(h.GetSince(), now), holdEnd(h, now)))
	}
	if op := d.consumer.GetDesired().GetOperation(); op != nil {
		f.add("Under way", joinReason(fmt.Sprintf("%s by %s since %s, soft %s, hard %s (%s)", verbWord(op.GetVerb()), op.GetActor(), since(op.GetStarted(), now),
			op.GetSoft().AsDuration(), op.GetHard().AsDuration(), op.GetId()), op.GetReason()))
	}
	return f
}

func holdEnd(h *pb.Hold, now time.Time) string {
	s := ", until a resume"
	if h.GetUntil() != nil {
		s = ", until " + clock(h.GetUntil().AsTime(), now)
	}
	return joinReason(s, h.GetReason())
}

func (d description) status(now time.Time) fields {
	s := d.consumer.GetStatus()
	var f fields
	f.add("State", joinReason(fmt.Sprintf("%s since %s", textform.ShortEnum(s.GetState()), since(s.GetSince(), now)), s.GetReason()))
	if movingState(s.GetState()) {
		f.add("Now", stateNote(d.consumer, now))
	}
	f.add("In flight", fmt.Sprintf("%d (%s), %d in a handler, oldest %s", s.GetInFlight(), textform.FormatSize(s.GetInFlightBytes()), s.GetRunning(), oldestOf(s)))
	f.add("Lag", lagOf(s.GetLag(), now)+positionsOf(s.GetLag()))
	f.add("Rate", rateOf(s.GetRate()))
	f.add("Epoch", strconv.FormatUint(s.GetEpoch(), 10))
	return f
}

// positionsOf tells what a lag means where the broker keeps positions.
func positionsOf(l *pb.Lag) string {
	if l == nil || l.Gap == nil {
		return ""
	}
	behind := "no position is committed in some partition"
	if l.Uncommitted != nil {
		behind = count(l.GetUncommitted()) + " from the committed positions on"
	}
	return fmt.Sprintf("; %s; up to %s taken above an unfinished one", behind, count(l.GetGap()))
}

func (d description) conditions(now time.Time) fields {
	var f fields
	for _, x := range d.consumer.GetStatus().GetConditions() {
		value := "no"
		if x.GetStatus() {
			value = "yes"
		}
		if x.GetSince() != nil {
			value += " since " + since(x.GetSince(), now)
		}
		f.add(textform.ShortEnum(x.GetType()), joinReason(value, x.GetReason()))
	}
	return f
}

// capabilities says in words what this broker does and does not.
func (d description) capabilities() fields {
	var f fields
	c := d.consumer.GetStatus().GetCapabilities()
	if c == nil {
		return f
	}
	either := func(b bool, yes, no string) string {
		if b {
			return yes
		}
		return no
	}
	bound := func(b bool) string {
		return either(b, "exact", "within what the client library buffers")
	}
	f.add("Pause", c.GetPause())
	f.add("Membership", either(c.GetKeepsMembership(), "kept while paused", "given up while paused"))
	f.add("Giving back", either(c.GetGiveBackCounts(), "counts towards a delivery limit: pause and stop finish what was taken, until soft", "is invisible to the broker"))
	f.add("Partitions", either(c.GetPartitions(), "yes", "none"))
	f.add("Bound on messages", bound(c.GetMessagesBoundHard()))
	f.add("Bound on bytes", bound(c.GetBytesBoundHard()))
	f.add("Lag", either(c.GetLag(), "known", "not known on this broker"))
	return f
}

func (d description) counters() fields {
	c := d.consumer.GetStatus().GetCounters()
	var f fields
	var parts []string
	for _, n := range []struct {
		n    int64
		what string
	}{
		{c.GetReceived(), "received"},
		{c.GetAcked(), "acked"},
		{c.GetRetried(), "retried"},
		{c.GetDeadLettered(), "dead-lettered"},
		{c.GetReturned(), "returned"},
		{c.GetAbandoned(), "abandoned"},
		{c.GetLate(), "late"},
		{c.GetPanics(), "panics"},
	} {
		parts = append(parts, fmt.Sprintf("%d %s", n.n, n.what))
	}
	f.add("Messages", strings.Join(parts, ", "))
	return f
}

// since is a time with how long ago it was.
func since(t *timestamppb.Timestamp, now time.Time) string {
	if t == nil {
		return ""
	}
	at := t.AsTime().In(now.Location())
	return fmt.Sprintf("%s (%s ago)", at.Format(time.RFC3339), age(at, now))
}
