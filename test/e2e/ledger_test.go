package e2e

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// ledger is what the handlers did: an HTTP server outside the daemon, so that
// what it has written down survives the daemon.
type ledger struct {
	url string

	mu      sync.Mutex
	handled map[string]int
	by      map[string]int  // consumer -> calls that ended well
	closed  map[string]bool // consumers whose calls are a fault
	faults  []string
	delay   time.Duration
	hang    map[string]chan struct{} // ids whose calls wait
	hanging chan string
	gate    chan struct{} // all calls wait until it is closed
	conns   map[net.Conn]http.ConnState
	last    map[string]int // by key, the newest message handled; nil without order
}

func newLedger(t *testing.T, ordered bool) *ledger {
	t.Helper()
	l := &ledger{
		handled: map[string]int{}, by: map[string]int{}, closed: map[string]bool{}, hang: map[string]chan struct{}{},
		hanging: make(chan string, 100), delay: 2 * time.Millisecond, gate: make(chan struct{}),
		conns: map[net.Conn]http.ConnState{},
	}
	close(l.gate)
	if ordered {
		l.last = map[string]int{}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: l, ConnState: l.track, ReadHeaderTimeout: 10 * time.Second}
	go srv.Serve(listener) //nolint:errcheck // ends with Close
	t.Cleanup(func() { _ = srv.Close() })
	l.url = "http://" + listener.Addr().String()
	return l
}

// ServeHTTP is the handler's effect: it is done once the id is written down.
func (l *ledger) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	var b bytes.Buffer
	if _, err := b.ReadFrom(r.Body); err != nil {
		rw.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	id, name := b.String(), strings.TrimPrefix(r.URL.Path, "/")
	l.mu.Lock()
	if l.closed[name] {
		l.faults = append(l.faults, "call of "+name+", which is paused or stopped, with "+id)
	}
	hang, delay, gate := l.hang[id], l.delay, l.gate
	l.mu.Unlock()
	<-gate
	if hang != nil {
		l.hanging <- id
		<-hang
	}
	select {
	case <-time.After(delay * time.Duration(1+speed(id))):
	case <-r.Context().Done():
		return // cancelled before its effect
	}
	l.mu.Lock()
	l.inOrder(id)
	l.handled[id]++
	l.by[name]++
	l.mu.Unlock()
	rw.WriteHeader(http.StatusNoContent)
}

// speed is 0 to 4, by the message: some are handled faster than others.
func speed(id string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return h.Sum32() % 5
}

// keyOf is the key of the nth message to a consumer.
func keyOf(name string, n int) string { return fmt.Sprintf("%s-key%d", name, n%50) }

// inOrder notes that a message is handled for the first time only after all of
// its key that came before. Redeliveries may come whenever.
func (l *ledger) inOrder(id string) {
	if l.last == nil || l.handled[id] > 0 {
		return
	}
	name, number, _ := strings.Cut(id, "-")
	n, err := strconv.Atoi(number)
	if err != nil {
		return // no message of a publisher
	}
	key := keyOf(name, n)
	if last, ok := l.last[key]; ok && n < last {
		l.faults = append(l.faults, fmt.Sprintf("%s was handled after %d of the same key", id, last))
	}
	l.last[key] = n
}

// hold lets every call wait until release.
func (l *ledger) hold() (release func()) {
	gate := make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate = gate
	return func() { close(gate) }
}

func (l *ledger) setClosed(name string, on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed[name] = on
}

func (l *ledger) calls() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[string]int, len(l.by))
	maps.Copy(out, l.by)
	return out
}

func (l *ledger) count(id string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.handled[id]
}

// publisher publishes to every consumer in turn until it is stopped, and
// keeps the ids that the broker confirmed.
type publisher struct {
	w      *world
	cancel context.CancelCauseFunc
	done   chan struct{}

	mu        sync.Mutex
	confirmed []string
	per       map[string]int
}

// gentle gives each consumer its share of 400 messages a second, where all
// brokers are tested at once.
func (w *world) gentle() *publisher {
	return w.load(time.Duration(len(w.names)) * 2500 * time.Microsecond)
}

func (w *world) load(every time.Duration) *publisher {
	ctx, cancel := context.WithCancelCause(w.ctx)
	p := &publisher{w: w, cancel: cancel, done: make(chan struct{}), per: map[string]int{}}
	go p.run(ctx, every)
	return p
}

// run publishes the messages of each consumer one after another, and those of
// different consumers at once.
func (p *publisher) run(ctx context.Context, every time.Duration) {
	defer close(p.done)
	var all sync.WaitGroup
	for _, name := range p.w.names {
		all.Go(func() {
			t := time.NewTicker(every)
			defer t.Stop()
			for n := 0; ; n++ {
				select {
				case <-t.C:
					p.one(context.WithoutCancel(ctx), name, n)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	all.Wait()
}

// one is not to be cancelled by stop: what it publishes is there, or not, when
// stop returns.
func (p *publisher) one(ctx context.Context, name string, n int) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	id := fmt.Sprintf("%s-%d", name, n)
	if err := p.w.publish(ctx, name, keyOf(name, n), id); err != nil {
		return // not confirmed: it may be there or not
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.confirmed = append(p.confirmed, id)
	p.per[name]++
}

func (p *publisher) published() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string]int, len(p.per))
	maps.Copy(out, p.per)
	return out
}

// stop ends the publishing and returns what was confirmed.
func (p *publisher) stop() []string {
	p.cancel(nil)
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.confirmed
}

// account waits until all that was confirmed is handled, and counts lost and
// repeated.
func (w *world) account(confirmed []string, limit time.Duration) (repeated int) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("all %d confirmed messages are handled", len(confirmed)), limit, func() bool {
		for _, id := range confirmed {
			if w.ledger.count(id) == 0 {
				return false
			}
		}
		return true
	})
	for _, id := range confirmed {
		repeated += w.ledger.count(id) - 1
	}
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	for _, f := range w.ledger.faults {
		w.t.Error(f)
	}
	if len(confirmed) < 1000 {
		w.t.Errorf("only %d messages went through: too few to prove anything", len(confirmed))
	}
	w.t.Logf("tally: %d confirmed, lost 0, repeated %d", len(confirmed), repeated)
	return repeated
}

// dropIdle closes the connections that no call uses.
func (l *ledger) dropIdle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c, state := range l.conns {
		if state == http.StateIdle {
			_ = c.Close()
		}
	}
}

func (l *ledger) track(c net.Conn, s http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns[c] = s; s == http.StateClosed || s == http.StateHijacked {
		delete(l.conns, c)
	}
}
