package supervisor

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// patience is how long an urgent verb lets another wait for the store while it
// has the turn; then it cuts that wait short.
const patience = 200 * time.Millisecond

var errUrgent = errors.New("a pause, stop or kill did not wait for it")

// turn serialises changes of what is desired of one consumer. Whoever has it may
// be waiting for a store that hangs; an urgent verb waits for that no longer
// than its patience, and goes before all that are not urgent.
type turn struct {
	mu    sync.Mutex
	taken bool
	cut   context.CancelCauseFunc // of the one who has it
	queue []*waiter               // the urgent ones first
}

// waiter waits for the turn; it has it when granted is closed.
type waiter struct {
	granted   chan struct{}
	cut       context.CancelCauseFunc
	urgent    bool
	impatient bool
}

// take waits for the turn, or until ctx ends. cut is called, at most while the
// caller has the turn, to end the caller's wait for the store.
func (t *turn) take(ctx context.Context, cut context.CancelCauseFunc, urgent bool) error {
	t.mu.Lock()
	if !t.taken {
		t.taken, t.cut = true, cut
		t.mu.Unlock()
		return nil
	}
	w := &waiter{granted: make(chan struct{}), cut: cut, urgent: urgent}
	at := len(t.queue)
	if urgent {
		at = t.firstPatient()
		impatient := time.AfterFunc(patience, func() { t.hurry(w) })
		defer impatient.Stop()
	}
	t.queue = slices.Insert(t.queue, at, w)
	t.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.queue, w); i >= 0 {
		t.queue = slices.Delete(t.queue, i, i+1)
		return context.Cause(ctx)
	}
	return nil // granted meanwhile
}

// firstPatient is where the queue's waiters begin that are not urgent.
func (t *turn) firstPatient() int {
	if i := slices.IndexFunc(t.queue, func(w *waiter) bool { return !w.urgent }); i >= 0 {
		return i
	}
	return len(t.queue)
}

// hurry cuts the one who has the turn, and those who get it before w does.
func (t *turn) hurry(w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.Contains(t.queue, w) {
		w.impatient = true
		t.cut(errUrgent)
	}
}

// give hands the turn on.
func (t *turn) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken, t.cut = false, nil
	if len(t.queue) == 0 {
		t.queue = nil
		return
	}
	w := t.queue[0]
	t.queue = slices.Delete(t.queue, 0, 1)
	t.taken, t.cut = true, w.cut
	close(w.granted)
	if slices.ContainsFunc(t.queue, func(w *waiter) bool { return w.impatient }) {
		w.cut(errUrgent)
	}
}
