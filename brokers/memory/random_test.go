package memory_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/memory"
)

// world is a broker and consumers that do anything the contract allows, at random.
type world struct {
	*testing.T
	rng       *rand.Rand
	b         *memory.Broker
	conn      brokers.Conn
	clients   []*client
	published int
	seen      map[string]int
}

// client is one consumer and what it knows.
type client struct {
	sub brokers.Subscription
	id  uint64
	has []*brokers.Delivery
	// sent counts the acks and retries that Settle took.
	sent int
	// What the reports told.
	unconfirmed, ownershipLost int
}

// seeds are those to run: n random ones, or the one in the environment as SEED.
func seeds(t *testing.T, n int) []uint64 {
	if text, ok := os.LookupEnv("SEED"); ok {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("SEED: %v", err)
		}
		return []uint64{seed}
	}
	out := make([]uint64, n)
	for i := range out {
		out[i] = rand.Uint64()
	}
	return out
}

// TestRandomCalls does random calls under random faults, and checks that each
// message is with one consumer or the broker, that nothing of an epoch stands
// after its end, that nothing is lost, and that reports tell what did not arrive.
func TestRandomCalls(t *testing.T) {
	for name, o := range map[string]memory.QueueOptions{
		"acks":      {AckTimeout: 300 * time.Millisecond},
		"prefetch":  {Prefetch: 7},
		"single":    {SingleActive: true, LeaveOnHold: true, Prefetch: 3},
		"limit":     {DeliveryLimit: 4, GiveBackCounts: true, DeadLetter: "dead"},
		"buffered":  {Partitions: 2, Prefetch: 5, RevokeTimeout: 50 * time.Millisecond},
		"positions": {Partitions: 3, RevokeTimeout: 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			all := seeds(t, 60)
			seen := make(map[string]int)
			for _, seed := range all {
				synctest.Test(t, func(t *testing.T) { runWorld(t, o, seed, seen) })
				if t.Failed() {
					t.Fatalf("run it again with SEED=%d", seed)
				}
			}
			t.Logf("%v", seen)
			for _, what := range []string{"acked", "retried", "returned", "reclaimed", "ended", "unconfirmed", "late"} {
				if len(all) > 1 && seen[what] < 15 {
					t.Errorf("%s: only %d, so little was tested", what, seen[what])
				}
			}
		})
	}
}

// runWorld runs one seed, and adds to seen what happened.
func runWorld(t *testing.T, o memory.QueueOptions, seed uint64, seen map[string]int) {
	w := &world{T: t, seen: seen, rng: rand.New(rand.NewPCG(seed, 0)), b: memory.NewBroker(memory.Options{})}
	if err := w.b.Create("dead", memory.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	fill(t, w.b, o, 0)
	w.conn = open(t, w.b, "main")
	steps := []func(){
		w.publish, w.publish, w.subscribe, w.receive, w.receive, w.receive, w.receive, w.settle, w.settle, w.settle,
		w.hold, w.flow, w.flow, w.close, w.sleep, w.fault,
	}
	for range 250 {
		steps[w.rng.IntN(len(steps))]()
		d := w.b.Depth("q")
		if d.Waiting < 0 || d.Unacked < 0 || d.Waiting+d.Unacked > int64(w.published) {
			t.Fatalf("depth %+v of %d messages", d, w.published)
		}
	}
	w.finish(o)
}

func (w *world) publish() {
	for range w.rng.IntN(6) {
		m := memory.Message{ID: fmt.Sprintf("m%d", w.published), Body: make([]byte, w.rng.IntN(30))}
		if err := w.b.Publish("q", m); err != nil {
			w.Fatal(err)
		}
		w.published++
	}
}

func (w *world) subscribe() {
	if len(w.clients) == 4 {
		return
	}
	ctx, cancel := within(5 * time.Millisecond)
	defer cancel()
	p, _ := (&memory.Driver{Broker: w.b}).Parse(specOf("main", "q"))
	if sub, err := w.conn.Subscribe(ctx, p.Source, silent{}); err == nil {
		var id uint64
		for _, e := range w.b.History("q") {
			if e.Kind == memory.Subscribed {
				id = e.Subscription
			}
		}
		w.clients = append(w.clients, &client{sub: sub, id: id})
	}
}

// one picks a client; nil without any.
func (w *world) one() *client {
	if len(w.clients) == 0 {
		return nil
	}
	return w.clients[w.rng.IntN(len(w.clients))]
}

func (w *world) receive() {
	c := w.one()
	if c == nil {
		return
	}
	ctx, cancel := within(time.Duration(w.rng.IntN(10)) * time.Millisecond)
	defer cancel()
	limit := brokers.Credit{Messages: 1 + w.rng.IntN(8), Bytes: 1 + w.rng.Int64N(100)}
	batch, err := c.sub.Receive(ctx, limit)
	var bytes int64
	for i := range batch {
		c.has = append(c.has, &batch[i])
		bytes += batch[i].Size
	}
	if (err == nil) != (len(batch) > 0) || len(batch) > limit.Messages || bytes > limit.Bytes && len(batch) > 1 {
		w.Fatalf("%d messages, %d bytes, error %v for %+v", len(batch), bytes, err, limit)
	}
}

// some takes some of what a client has out of its hands.
func (w *world) some(c *client) []*brokers.Delivery {
	w.rng.Shuffle(len(c.has), func(i, j int) { c.has[i], c.has[j] = c.has[j], c.has[i] })
	n := w.rng.IntN(len(c.has) + 1)
	taken := slices.Clone(c.has[:n])
	c.has = c.has[n:]
	return taken
}

func (w *world) settle() {
	c := w.one()
	if c == nil {
		return
	}
	st := settlements(brokers.Ack, w.some(c)...)
	counted := len(st)
	for i := range st {
		switch w.rng.IntN(8) {
		case 0:
			st[i].Outcome, st[i].AfterMillis = brokers.Retry, w.rng.Int64N(20)
		case 1:
			st[i].Outcome = brokers.Release
			counted--
		}
	}
	if err := c.sub.Settle(context.Background(), st); err == nil {
		c.sent += counted
	}
}

func (w *world) hold() {
	if c := w.one(); c != nil {
		ctx, cancel := within(time.Duration(w.rng.IntN(10)) * time.Millisecond)
		defer cancel()
		rep, _ := c.sub.Hold(ctx, w.some(c))
		c.heard(rep)
	}
}

func (w *world) flow() {
	if c := w.one(); c != nil {
		ctx, cancel := within(time.Duration(w.rng.IntN(10)) * time.Millisecond)
		defer cancel()
		_ = c.sub.Flow(ctx) // broken or frozen: as it may be
	}
}

func (w *world) close() {
	if c := w.one(); c != nil {
		ctx, cancel := within(time.Duration(w.rng.IntN(10)) * time.Millisecond)
		defer cancel()
		rep, _ := c.sub.Close(ctx, w.some(c))
		c.heard(rep)
		w.clients = slices.DeleteFunc(w.clients, func(o *client) bool { return o == c })
		w.check(c)
	}
}

func (c *client) heard(rep brokers.Report) {
	c.unconfirmed += rep.Unconfirmed
	c.ownershipLost += rep.OwnershipLost
}

// check demands that the reports told of every settlement that did not arrive.
func (w *world) check(c *client) {
	w.Helper()
	w.seen["unconfirmed"] += c.unconfirmed
	w.seen["late"] += c.ownershipLost
	arrived := 0
	for _, e := range w.b.History("q") {
		if e.Subscription == c.id && (e.Kind == memory.Acked || e.Kind == memory.Retried) {
			arrived++
		}
	}
	if c.sent > arrived+c.unconfirmed+c.ownershipLost {
		w.Fatalf("%d settlements were sent, %d arrived, and reports told of %d unconfirmed and %d late ones",
			c.sent, arrived, c.unconfirmed, c.ownershipLost)
	}
}

func (w *world) sleep() {
	time.Sleep(time.Duration(w.rng.IntN(200)) * time.Millisecond) //nolint:forbidigo // virtual time
}

func (w *world) fault() {
	switch w.rng.IntN(8) {
	case 0, 1:
		w.b.Freeze()
	case 2, 3:
		w.b.Thaw()
	case 4:
		w.b.CutAfter(w.rng.IntN(3))
		w.b.Heal()
	case 5:
		w.b.Delay(memory.Op(w.rng.IntN(int(memory.OpPublish)+1)), time.Duration(w.rng.IntN(10))*time.Millisecond)
	case 6:
		if err := w.b.Redeliver("q"); err != nil {
			w.Fatal(err)
		}
	case 7:
		_ = w.b.Rebalance("q") // where there are partitions
	}
}

// finish ends the trouble, handles what is left, and checks the history.
func (w *world) finish(o memory.QueueOptions) {
	w.b.Thaw()
	w.b.DelayNoMore()
	for len(w.clients) > 0 {
		w.close()
	}
	time.Sleep(time.Second) //nolint:forbidigo // virtual time, in which all that is under way arrives
	if d := w.b.Depth("q"); d.Unacked != 0 || d.Members != 0 {
		w.Fatalf("all is closed, but the depth is %+v", d)
	}
	w.drain()
	if err := w.b.Misuse(); err != nil {
		w.Fatal(err)
	}
	events := w.b.History("q")
	for _, e := range events {
		w.seen[e.Kind.String()]++
	}
	acked := checkHistory(w.T, events, o)
	dead := len(w.b.Waiting("dead"))
	if acked+dead != w.published {
		w.Fatalf("%d published, %d acked, %d dead-lettered", w.published, acked, dead)
	}
}

func (w *world) drain() {
	p, _ := (&memory.Driver{Broker: w.b}).Parse(specOf("main", "q"))
	sub, err := w.conn.Subscribe(context.Background(), p.Source, silent{})
	if err != nil {
		w.Fatal(err)
	}
	for {
		ctx, cancel := within(time.Second)
		batch, err := sub.Receive(ctx, brokers.Credit{Messages: 100, Bytes: 1 << 20})
		cancel()
		if err != nil {
			break
		}
		for i := range batch {
			settle(w.T, sub, brokers.Ack, &batch[i])
		}
	}
	if rep, err := sub.Close(context.Background(), nil); err != nil || rep != (brokers.Report{Released: true}) {
		w.Fatalf("the last close reports %+v, %v", rep, err)
	}
}

// checkHistory replays a history, and returns how many messages were acked.
func checkHistory(t *testing.T, events []memory.Event, o memory.QueueOptions) int {
	t.Helper()
	holder, acked := make(map[string]uint64), make(map[string]bool) // by id
	open := make(map[uint64]bool)
	for i, e := range events {
		if e.Subscription != 0 && e.Kind != memory.Subscribed && !open[e.Subscription] {
			t.Fatalf("event %d: subscription %d %v %s after its end", i, e.Subscription, e.Kind, e.ID)
		}
		switch e.Kind {
		case memory.Subscribed:
			open[e.Subscription] = true
		case memory.Ended:
			for id, sub := range holder {
				if sub == e.Subscription {
					t.Fatalf("event %d: subscription %d ended with %s", i, sub, id)
				}
			}
			delete(open, e.Subscription)
		case memory.Delivered:
			if holder[e.ID] != 0 || acked[e.ID] && o.Partitions == 0 {
				t.Fatalf("event %d: %s is delivered, but is with %d, acked %v", i, e.ID, holder[e.ID], acked[e.ID])
			}
			holder[e.ID] = e.Subscription
		case memory.Acked, memory.Retried, memory.Returned, memory.Reclaimed:
			if holder[e.ID] != e.Subscription {
				t.Fatalf("event %d: %s %v by %d, but is with %d", i, e.ID, e.Kind, e.Subscription, holder[e.ID])
			}
			delete(holder, e.ID)
			if e.Kind == memory.Acked {
				acked[e.ID] = true
			}
		}
	}
	if len(holder) > 0 {
		t.Fatalf("still with consumers: %v", holder)
	}
	return len(acked)
}
