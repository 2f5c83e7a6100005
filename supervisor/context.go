package supervisor

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Why a handler's context ended; see [CauseOf].
var (
	// ErrTimeout: the call took longer than handler.timeout.
	ErrTimeout = errors.New("the handler timeout of the spec is over")
	// ErrStopping: a stop or a drain reached its soft limit.
	ErrStopping = errors.New("the consumer is being stopped")
	// ErrKilled: an operator killed the consumer.
	ErrKilled = errors.New("the consumer was killed")
	// ErrCancelled: an operator cancelled this message.
	ErrCancelled = errors.New("an operator cancelled this message")
	// ErrReturned: the handler had already returned.
	ErrReturned = errors.New("the handler returned")
)

// CauseOf says why a handler's context, or one derived from it, ended: one of
// the errors above when the handler's did, nil while neither has.
func CauseOf(ctx context.Context) error {
	h, ok := ctx.Value(causeKey{}).(*handlerCtx)
	if !ok {
		return context.Cause(ctx)
	}
	if why := h.ended(); why != nil {
		return why
	}
	return context.Cause(ctx)
}

type causeKey struct{}

// handlerCtx is the context of one handler call. It lives inside the item, so
// that it costs no allocation until somebody asks for Done; it is never used
// for a second message, because what kept it would see the other's end.
type handlerCtx struct {
	clock    *clock
	deadline int64
	state    atomic.Pointer[ctxState]
}

// ctxState is made when somebody asks for Done, or when the context ends.
type ctxState struct {
	done chan struct{}

	mu         sync.Mutex
	err, cause error
	funcs      map[*func()]struct{}
}

// returned is the state that all contexts share whose handler returned
// without having asked for Done.
func newReturned() *ctxState {
	s := &ctxState{done: make(chan struct{}), err: context.Canceled, cause: ErrReturned}
	close(s.done)
	return s
}

func (h *handlerCtx) Deadline() (time.Time, bool) { return h.clock.at(h.deadline), true }

func (h *handlerCtx) Done() <-chan struct{} { return h.ensure().done }

func (h *handlerCtx) Err() error {
	if s := h.state.Load(); s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.err
	}
	return nil
}

func (h *handlerCtx) Value(key any) any {
	if _, ok := key.(causeKey); ok {
		return h
	}
	return nil
}

// AfterFunc is what package context looks for, so that a context derived from
// this one needs no goroutine to follow it.
func (h *handlerCtx) AfterFunc(f func()) func() bool {
	s := h.ensure()
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		go f()
		return func() bool { return false }
	}
	defer s.mu.Unlock()
	if s.funcs == nil {
		s.funcs = map[*func()]struct{}{}
	}
	key := &f
	s.funcs[key] = struct{}{}
	return func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		_, had := s.funcs[key]
		delete(s.funcs, key)
		return had
	}
}

func (h *handlerCtx) ensure() *ctxState {
	if s := h.state.Load(); s != nil {
		return s
	}
	s := &ctxState{done: make(chan struct{})}
	if h.state.CompareAndSwap(nil, s) {
		return s
	}
	return h.state.Load()
}

// cancel ends the context; the first end counts.
func (h *handlerCtx) cancel(err, cause error) { h.ensure().end(err, cause) }

// finish ends it after the handler returned.
func (h *handlerCtx) finish(returned *ctxState) {
	if !h.state.CompareAndSwap(nil, returned) {
		h.state.Load().end(context.Canceled, ErrReturned)
	}
}

// ended is why the context ended before its handler returned, if it did.
func (h *handlerCtx) ended() error {
	if s := h.state.Load(); s != nil {
		return s.why()
	}
	return nil
}

func (s *ctxState) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

func (s *ctxState) end(err, cause error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err, s.cause = err, cause
	funcs := s.funcs
	s.funcs = nil
	close(s.done)
	s.mu.Unlock()
	for f := range funcs {
		go (*f)()
	}
}
