package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
)

// staleAfter is when a figure is too old to be shown without its age.
const staleAfter = 30 * time.Second

// key names a consumer among those of all namespaces.
type key struct{ namespace, name string }

func (k key) String() string { return k.namespace + "/" + k.name }

func keyOf(c *pb.Consumer) key { return key{c.GetSpec().GetNamespace(), c.GetSpec().GetName()} }

// consumerColumns says which columns a table of consumers has.
type consumerColumns struct{ namespace, wide bool }

func (c consumerColumns) titles() []string {
	t := []string{"NAME", "BROKER", "DESIRED", "STATE", "INFLIGHT", "OLDEST", "LAG", "RATE", "NOTE"}
	if c.wide {
		t = slices.Insert(t, len(t)-1, "EPOCH", "LABELS", "SINCE")
	}
	if c.namespace {
		t = slices.Insert(t, 0, "NAMESPACE")
	}
	return t
}

func (c consumerColumns) row(x *pb.Consumer, now time.Time) []cell {
	s := x.GetStatus()
	row := []cell{
		text(x.GetSpec().GetName()), text(brokerOf(x)), text(desiredOf(x)), stateCell(s.GetState()),
		text(fmt.Sprintf("%d/%d", s.GetInFlight(), s.GetConcurrency())),
		text(oldestOf(s)), text(lagOf(s.GetLag(), now)), text(rateOf(s.GetRate())), text(note(x, now)),
	}
	if c.wide {
		row = slices.Insert(row, len(row)-1,
			text(strconv.FormatUint(s.GetEpoch(), 10)), text(orDash(labelsOf(x.GetSpec().GetLabels()))), text(age(s.GetSince().AsTime(), now)))
	}
	if c.namespace {
		row = slices.Insert(row, 0, text(x.GetSpec().GetNamespace()))
	}
	return row
}

// consumerTable is the table of list and get.
func consumerTable(list []*pb.Consumer, cols consumerColumns, now time.Time) table {
	t := table{titles: cols.titles()}
	for _, x := range list {
		t.add(cols.row(x, now)...)
	}
	return t
}

// consumersView shows consumers in every form.
func (a *app) consumersView(list []*pb.Consumer, namespace bool) view {
	return view{
		whole: &pb.ListResponse{Consumers: list},
		items: anys(list),
		names: names(list, func(c *pb.Consumer) string { return keyOf(c).String() }),
		table: func(wide bool) table {
			return consumerTable(list, consumerColumns{namespace: namespace, wide: wide}, a.env.now())
		},
	}
}

// brokerOf is the kind of the source: the member of its oneof that is set.
func brokerOf(c *pb.Consumer) string {
	m := c.GetSpec().GetSource().ProtoReflect()
	if f := m.WhichOneof(m.Descriptor().Oneofs().ByName("broker")); f != nil {
		return string(f.Name())
	}
	return "-"
}

func desiredOf(c *pb.Consumer) string {
	switch d := c.GetDesired(); {
	case d.GetState() != pb.DesiredState_DESIRED_STATE_RUNNING:
		return strings.ToLower(textform.ShortEnum(d.GetState()))
	case len(d.GetHolds()) > 0:
		return "paused"
	}
	return "running"
}

func stateCell(s pb.State) cell {
	p := cyan
	switch s {
	case pb.State_STATE_RUNNING:
		p = green
	case pb.State_STATE_PAUSED:
		p = yellow
	case pb.State_STATE_BACKOFF, pb.State_STATE_FAILED:
		p = red
	case pb.State_STATE_STOPPED:
		p = dim
	}
	return painted(p, textform.ShortEnum(s))
}

func oldestOf(s *pb.Status) string {
	if s.GetOldest() == nil {
		return "-"
	}
	return textform.FormatDuration(s.GetOldest().AsDuration())
}

// lagOf is "1.2k", "~77" when approximate, with its age when it is stale.
func lagOf(l *pb.Lag, now time.Time) string {
	if l == nil {
		return "-"
	}
	s := count(l.GetMessages())
	if l.GetApproximate() {
		s = "~" + s
	}
	if old := now.Sub(l.GetAt().AsTime()); l.GetAt() != nil && old > staleAfter {
		s += " (" + textform.FormatDuration(old) + " ago)"
	}
	return s
}

func rateOf(r float64) string {
	if r > 0 && r < 10 {
		return strconv.FormatFloat(r, 'f', 1, 64) + "/s"
	}
	return count(int64(math.Round(r))) + "/s"
}

// count is a number in at most four digits: 950, 1.2k, 34k, 5.6M.
func count(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10)
	}
	f, unit := float64(n), ""
	for _, u := range []string{"k", "M", "G", "T", "P"} {
		if f < 999.5 {
			break
		}
		f, unit = f/1000, u
	}
	if f < 9.95 {
		return strconv.FormatFloat(f, 'f', 1, 64) + unit
	}
	return strconv.FormatFloat(f, 'f', 0, 64) + unit
}

func labelsOf(m map[string]string) string {
	var pairs []string
	for k, v := range m {
		pairs = append(pairs, k+"="+v)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

// age is how long ago t was; "-" for no time.
func age(t, now time.Time) string {
	if t.Unix() <= 0 {
		return "-"
	}
	return textform.FormatDuration(max(0, now.Sub(t)))
}
