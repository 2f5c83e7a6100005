package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/brokertest"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// patience bounds what must happen.
const patience = time.Minute

// rig is a cluster with one connection of the driver.
type rig struct {
	*testing.T
	*harness

	conn brokers.Conn
}

// inBubble runs f on a cluster of its own in virtual time.
func inBubble(t *testing.T, f func(*rig), more ...kfake.Opt) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newFake(nil, more...)
		t.Cleanup(h.Close)
		f(newRig(t, h))
	})
}

func newRig(t *testing.T, h *harness) *rig {
	t.Helper()
	r := &rig{T: t, harness: h}
	r.conn = r.open(h.gate)
	return r
}

// open makes a connection through a gate.
func (r *rig) open(g *gate) brokers.Conn {
	r.Helper()
	conn, err := Driver{dial: g.connect, probe: time.Second}.Open(r.within(patience), r.Connection(true), r.env())
	must(r, err)
	r.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		must(r, conn.Close(ctx))
	})
	return conn
}

func (r *rig) env() brokers.Env {
	return brokers.Env{Secret: func(ref string) (string, error) {
		if v, ok := r.Secrets()[ref]; ok {
			return v, nil
		}
		return "", errors.New("no such secret")
	}}
}

func must(t interface {
	Helper()
	Fatal(args ...any)
}, err error,
) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), d)
	r.Cleanup(cancel)
	return ctx
}

// topic makes one and returns a consumer's spec.
func (r *rig) topic(name string, partitions int32, change func(*supervisorv1.KafkaSource)) *supervisorv1.ConsumerSpec {
	r.Helper()
	must(r, r.create(r.within(patience), name, partitions))
	return r.specOf(name, change)
}

func (r *rig) specOf(name string, change func(*supervisorv1.KafkaSource)) *supervisorv1.ConsumerSpec {
	s := r.spec(name, supervisorv1.Missing_MISSING_UNSPECIFIED)
	s.GetSource().GetKafka().Reset_ = supervisorv1.KafkaReset_KAFKA_RESET_UNSPECIFIED
	if change != nil {
		change(s.GetSource().GetKafka())
	}
	return s
}

// member is a subscription and what its observer heard.
type member struct {
	brokers.Subscription
	r *rig

	mu         sync.Mutex
	onRevoke   func(context.Context, []*brokers.Origin)
	conditions map[supervisorv1.ConditionType]string
}

func (m *member) Revoke(ctx context.Context, origins []*brokers.Origin) {
	m.mu.Lock()
	f := m.onRevoke
	m.mu.Unlock()
	if f != nil {
		f(ctx, origins)
	}
}

func (m *member) Condition(t supervisorv1.ConditionType, on bool, reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conditions[t] = fmt.Sprintf("%v: %s", on, reason)
}

func (m *member) condition(t supervisorv1.ConditionType) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.conditions[t]
}

func (m *member) revokes(f func(context.Context, []*brokers.Origin)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.onRevoke = f
}

// join subscribes, and closes what the test leaves open.
func (r *rig) join(s *supervisorv1.ConsumerSpec) *member {
	r.Helper()
	m, err := r.tryJoin(r.conn, s)
	must(r, err)
	return m
}

func (r *rig) tryJoin(conn brokers.Conn, s *supervisorv1.ConsumerSpec) (*member, error) {
	r.Helper()
	plan, faults := Driver{}.Parse(s)
	if len(faults) > 0 {
		r.Fatal(faults)
	}
	m := &member{r: r, conditions: map[supervisorv1.ConditionType]string{}}
	sub, err := conn.Subscribe(r.within(patience), plan.Source, m)
	if err != nil {
		return nil, err
	}
	m.Subscription = sub
	r.Cleanup(func() { m.close() })
	return m, nil
}

func (m *member) close(ds ...*brokers.Delivery) brokers.Report {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	rep, err := m.Close(ctx, ds)
	if err != nil {
		m.r.Error(err)
	}
	return rep
}

// receive collects n deliveries.
func (m *member) receive(n int) []*brokers.Delivery {
	m.r.Helper()
	var out []*brokers.Delivery
	for len(out) < n {
		out = append(out, m.some(n-len(out), patience)...)
	}
	return out
}

// some is one Receive; none when nothing comes.
func (m *member) some(n int, d time.Duration) []*brokers.Delivery {
	m.r.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.r.Context()), d)
	defer cancel()
	ds, err := m.Receive(ctx, brokers.Credit{Messages: n, Bytes: 1 << 30})
	if err != nil && (!errors.Is(err, context.DeadlineExceeded) || d == patience) {
		m.r.Fatalf("receive: %v", err)
	}
	out := make([]*brokers.Delivery, len(ds))
	for i := range ds {
		out[i] = &ds[i]
	}
	return out
}

// fails waits until the subscription ends, and returns why.
func (m *member) fails(class brokers.Class) *brokers.Error {
	m.r.Helper()
	for {
		_, err := m.Receive(m.r.within(patience), brokers.Credit{Messages: 1, Bytes: 1 << 30})
		if err == nil {
			continue
		}
		e, ok := errors.AsType[*brokers.Error](err)
		if !ok || e.Class != class {
			m.r.Fatalf("class %v, want %v: %v", brokers.ClassOf(err), class, err)
		}
		return e
	}
}

func (m *member) ack(ds ...*brokers.Delivery) { m.r.Helper(); m.settle(brokers.Ack, ds...) }

func (m *member) settle(o brokers.Outcome, ds ...*brokers.Delivery) {
	m.r.Helper()
	list := make([]brokers.Settlement, len(ds))
	for i, d := range ds {
		list[i] = brokers.Settlement{Delivery: d, Outcome: o}
	}
	must(m.r, m.Settle(m.r.within(patience), list))
}

func (m *member) hold(ds ...*brokers.Delivery) brokers.Report {
	m.r.Helper()
	rep, err := m.Hold(m.r.within(patience), ds)
	must(m.r, err)
	return rep
}

func (m *member) flow() { m.r.Helper(); must(m.r, m.Flow(m.r.within(patience))) }

// put publishes bodies first to first+n-1, spread over the partitions.
func (r *rig) put(s *supervisorv1.ConsumerSpec, first, n int) {
	r.Helper()
	ms := make([]brokertest.Message, n)
	for i := range ms {
		ms[i] = brokertest.Message{Key: fmt.Appendf(nil, "k%d", i), Body: fmt.Appendf(nil, "m%04d", first+i)}
	}
	must(r, r.publish(r.within(patience), topicOf(s), ms))
}

func bodiesOf(ds []*brokers.Delivery) []string {
	out := make([]string, len(ds))
	for i, d := range ds {
		out[i] = string(d.Body)
	}
	slices.Sort(out)
	return out
}

func numbered(first, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("m%04d", first+i)
	}
	return out
}

// committed are a group's positions by partition.
func (r *rig) committed(s *supervisorv1.ConsumerSpec) map[string]int64 {
	r.Helper()
	out := map[string]int64{}
	must(r, r.with(func(_ *kgo.Client, a *kadm.Client) error {
		all, err := a.FetchOffsets(r.within(patience), groupOf(s))
		all.Each(func(o kadm.OffsetResponse) { out[partitionName(o.Topic, o.Partition)] = o.At })
		return err
	}))
	return out
}

// partitionsOf are those that deliveries come from.
func partitionsOf(ds []*brokers.Delivery) []string {
	set := map[string]bool{}
	for _, d := range ds {
		set[d.Origin.Name] = true
	}
	return slices.Sorted(maps.Keys(set))
}

func of(ds []*brokers.Delivery, origins []*brokers.Origin) []*brokers.Delivery {
	return slices.DeleteFunc(slices.Clone(ds), func(d *brokers.Delivery) bool { return !slices.Contains(origins, d.Origin) })
}

// same demands the same bodies, each as often.
func (r *rig) same(what string, got []*brokers.Delivery, want []string) {
	r.Helper()
	if g := bodiesOf(got); !slices.Equal(g, want) {
		r.Fatalf("%s: %v, want %v", what, g, want)
	}
}

// says demands that an error's words have all of these.
func (r *rig) says(err error, words ...string) {
	r.Helper()
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			r.Errorf("%q does not say %q", err, w)
		}
	}
}

// settles waits in virtual time until a condition holds.
func (r *rig) eventually(what string, f func() bool) {
	r.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if f() {
			return
		}
		must(r, pause(r.Context(), 20*time.Millisecond))
	}
	r.Fatalf("%s: not within %v", what, patience)
}
