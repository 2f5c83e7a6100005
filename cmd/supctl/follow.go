package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"google.golang.org/protobuf/proto"
)

const (
	// goneAfter is how long a lost daemon is looked for before a watch gives up.
	goneAfter = time.Minute
	// retryEvery spaces the attempts.
	retryEvery = 500 * time.Millisecond
)

// update is what a follower hears: an event, or a word about the stream.
type update struct {
	event *pb.WatchResponse
	// lost is why the connection was lost; it is tried again.
	lost string
	// resynced: the revision to resume from is gone or not to be trusted; a
	// snapshot and SYNCED follow.
	resynced bool
}

// follower is a watch that outlives its connection.
type follower struct {
	client  *client
	request *pb.WatchRequest
	// relist begins with a snapshot after each lost connection, for those who
	// need what is and not each step to it; else the watch resumes by revision
	// and does so only when the daemon no longer has that.
	relist bool
	// known: the daemon has answered before, so that also the first connection
	// is worth trying again.
	known bool
}

// run sends updates to out until ctx ends, a refusal, or goneAfter without a
// daemon; it never returns nil. out is closed by nobody.
func (f *follower) run(ctx context.Context, out chan<- update) error {
	req := proto.CloneOf(f.request)
	connected := f.known
	var since time.Time
	for {
		got, err := f.stream(ctx, req, out)
		connected = connected || got
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !connected:
			return err
		case got || since.IsZero():
			since = time.Now()
		case time.Since(since) > goneAfter:
			return fmt.Errorf("gave up after %s: %w", goneAfter, err)
		}
		u, err := f.next(req, err)
		if err != nil {
			return err
		}
		if !send(ctx, out, u) || !pause(ctx, retryEvery) {
			return context.Cause(ctx)
		}
	}
}

// next decides how to go on after err, and changes req to that.
func (f *follower) next(req *pb.WatchRequest, err error) (update, error) {
	e, ok := errors.AsType[*apiError](err)
	if !ok {
		return update{}, err
	}
	// A revision that the caller chose is to be refused, not replaced.
	chosen := !f.known && req.GetSinceRevision() == f.request.GetSinceRevision()
	switch {
	case e.reason == pb.ErrorReason_ERROR_REASON_REVISION_COMPACTED && !chosen:
		req.SinceRevision = 0
		return update{resynced: true}, nil
	case e.reason == pb.ErrorReason_ERROR_REASON_SLOW_WATCHER:
	case e.exit() != exitUnreachable:
		return update{}, err
	}
	if f.relist {
		req.SinceRevision = 0
	}
	return update{lost: err.Error(), resynced: f.relist}, nil
}

// stream runs one connection's watch and notes in req where to resume. It
// tells whether the daemon answered.
func (f *follower) stream(ctx context.Context, req *pb.WatchRequest, out chan<- update) (answered bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errors.New("the watch has ended"))
	explain := func(err error) error { return f.client.explain(ctx, pb.ConsumerService_Watch_FullMethodName, err) }
	s, err := f.client.consumers.Watch(ctx, req)
	if err != nil {
		return false, explain(err)
	}
	header, err := s.Header()
	answered = header != nil && err == nil
	synced := req.GetSinceRevision() != 0
	for {
		r, err := s.Recv()
		if err != nil {
			return answered, explain(err)
		}
		if r.GetSynced() != nil {
			synced = true
		}
		// Within a snapshot there is no revision to resume from.
		if synced {
			req.SinceRevision = r.GetRevision()
		}
		if !send(ctx, out, update{event: r}) {
			return answered, context.Cause(ctx)
		}
	}
}

func send(ctx context.Context, out chan<- update, u update) bool {
	select {
	case out <- u:
		return true
	case <-ctx.Done():
		return false
	}
}

// pause waits; false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// each hands every update, and nil at every tick, to call until that is done or
// fails or the follower ends. A tick of 0 never comes. When ctx ends, its cause
// is the error, whatever it cut off. call runs on the caller's goroutine.
func (f *follower) each(ctx context.Context, tick time.Duration, call func(*update) (done bool, err error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	updates, ended := make(chan update), make(chan error, 1)
	go func() { ended <- f.run(ctx, updates) }()
	running := true
	defer func() {
		cancel(errors.New("no longer followed"))
		if running {
			<-ended //nolint:errcheck // The caller has its own reason to end.
		}
	}()
	var ticks <-chan time.Time
	if tick > 0 {
		t := time.NewTicker(tick)
		defer t.Stop()
		ticks = t.C
	}
	for {
		var u *update
		select {
		case got := <-updates:
			u = &got
		case <-ticks:
		case err := <-ended:
			running = false
			return err
		}
		done, err := call(u)
		switch {
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case done || err != nil:
			return err
		}
	}
}
