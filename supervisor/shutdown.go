package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/lifecycle"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// linkClose bounds the end of a connection, an embedded server's included.
const linkClose = time.Second

// ErrHardLimit: the shutdown's hard limit fired; the receipts name what was
// abandoned.
var ErrHardLimit = errors.New("the hard limit fired while handlers were still running")

// shutdown is what Shutdown returns.
type shutdown struct {
	receipts []*pb.Receipt
	err      error
}

// Shutdown ends all consumers under the one budget of the configuration: all
// intakes closed first, then all stopped in parallel; what is desired stays.
// It returns the receipts of those that were not stopped already, and
// ErrHardLimit when work had to be abandoned. It returns within the hard limit
// and two seconds. When ctx ends it kills what is left. Called again it waits
// for the first call and returns the same.
func (s *Supervisor) Shutdown(ctx context.Context) ([]*pb.Receipt, error) {
	if s.closing.CompareAndSwap(false, true) {
		s.outcome.receipts, s.outcome.err = s.shutDown(ctx)
		close(s.ended)
	}
	<-s.ended
	return s.outcome.receipts, s.outcome.err
}

func (s *Supervisor) shutDown(ctx context.Context) ([]*pb.Receipt, error) {
	began, fired := time.Now(), s.hardLimits.Load()
	d := s.o.Daemon.Shutdown
	s.stopAccepting(errors.New("the process is shutting down"))
	for _, c := range s.unsorted() {
		c.closeIntake(d.Mode)
	}
	s.applying <- struct{}{} // nothing is added any more
	defer func() { <-s.applying }()
	s.stopMeters(errors.New("shutting down"))
	all := s.all()
	ops := make([]*operation, 0, len(all))
	for _, c := range all {
		o := newOperation(d.Soft, d.Hard)
		o.pb = &pb.Operation{
			Id: newID(), Verb: pb.Verb_VERB_SHUTDOWN, Actor: itself, Reason: "the process is shutting down",
			Started: timestamppb.New(began), Soft: durationpb.New(d.Soft), Hard: durationpb.New(d.Hard),
		}
		if c.post(func() { o = c.shutDown(o, d.Mode) }) && o != nil {
			ops = append(ops, o)
		}
	}
	forced := s.awaitStopped(ctx, all, began.Add(d.Hard+2*killClose))
	s.meters.Wait()
	s.clock.stop()
	s.recorder.close()
	err := s.closeLinks(ctx, began.Add(d.Hard+2*time.Second-reportGrace))
	if forced || s.hardLimits.Load() > fired {
		err = errors.Join(err, ErrHardLimit)
	}
	receipts := make([]*pb.Receipt, 0, len(ops))
	for _, o := range ops {
		select {
		case <-o.ended:
		default:
			continue // its actor did not end
		}
		receipts = append(receipts, o.receipt)
		if o.receipt.GetHardFired() {
			err = errors.Join(err, fmt.Errorf("%s/%s: %w", o.receipt.GetNamespace(), o.receipt.GetName(), ErrHardLimit))
		}
	}
	return receipts, err
}

// closeIntake stops the taking before the actor is asked: all first.
func (c *consumer) closeIntake(m pb.ShutdownMode) {
	if m == pb.ShutdownMode_SHUTDOWN_MODE_DRAIN {
		c.pool.shut()
		return
	}
	c.pool.stopStarting(true)
}

// shutDown stops the consumer for good, on its actor, and returns the operation
// whose receipt tells of it: o, or the one under way; nil when it is at rest.
func (c *consumer) shutDown(o *operation, m pb.ShutdownMode) *operation {
	c.final, c.by = true, itself
	defer func() { c.by = "" }()
	c.next = nil
	e := lifecycle.Stop
	if m == pb.ShutdownMode_SHUTDOWN_MODE_DRAIN {
		e = lifecycle.Drain
	}
	if _, ok := c.s.machine.Next(c.state, e); !ok {
		c.tighten(o)
		return c.op
	}
	c.startOp(o)
	c.fire(e, o.pb.GetReason())
	return o
}

// tighten lets the shutdown's limits cut those of the verb under way.
func (c *consumer) tighten(o *operation) {
	if c.op != nil && c.op.consuming {
		c.missMark()
	}
	earlier := func(t *time.Time, limit time.Duration) {
		if at := time.Now().Add(limit); t.IsZero() || at.Before(*t) {
			*t = at
		}
	}
	switch c.state {
	case lifecycle.Draining, lifecycle.Finishing:
		earlier(&c.at.soft, o.soft)
		earlier(&c.at.hard, o.hard)
	case lifecycle.Aborting:
		earlier(&c.at.hard, o.hard)
	}
}

// awaitStopped waits for all actors to end; when ctx ends, or time is up, it
// kills what is left, and says so.
func (s *Supervisor) awaitStopped(ctx context.Context, all []*consumer, until time.Time) (forced bool) {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	for _, c := range all {
		select {
		case <-c.stopped:
			continue
		case <-ctx.Done():
		case <-t.C:
		}
		forced = true
		for _, c := range all {
			c.tell(c.killAtEnd)
		}
		break
	}
	last := time.NewTimer(killGrace + killClose + time.Second)
	defer last.Stop()
	for _, c := range all {
		select {
		case <-c.stopped:
		case <-last.C:
			return forced
		}
	}
	return forced
}

// killAtEnd kills, on the actor, what the shutdown's time did not suffice for.
func (c *consumer) killAtEnd() {
	if _, ok := c.s.machine.Next(c.state, lifecycle.Kill); !ok {
		return
	}
	o := newOperation(0, killGrace)
	o.kill = true
	o.pb = &pb.Operation{Id: newID(), Verb: pb.Verb_VERB_KILL, Actor: itself, Started: timestamppb.Now()}
	c.startOp(o)
	c.fire(lifecycle.Kill, "the shutdown's time is up")
}

// closeLinks waits for closings that are under way, but not for ever, then
// ends the connections. It takes until the time given, or a little longer.
func (s *Supervisor) closeLinks(ctx context.Context, until time.Time) error {
	ctx = context.WithoutCancel(ctx)
	limit := min(killClose, max(reportGrace, time.Until(until)/3))
	var reaping []reap
	for _, c := range s.all() {
		select {
		case <-c.stopped:
			reaping = append(reaping, c.reaping...)
		default:
		}
	}
	waitAll(ctx, limit, reaping)
	s.stopReaping(errors.New("the process ends"))
	waitAll(ctx, limit, reaping) // each returns with its context
	errs := make(chan error)
	for _, l := range s.links {
		go func() {
			bounded, cancel := context.WithTimeout(ctx, min(linkClose, max(reportGrace, time.Until(until))))
			defer cancel()
			errs <- l.close(bounded)
		}()
	}
	var all []error
	for range s.links {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}
