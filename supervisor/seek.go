package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/lifecycle"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// seekTimeout bounds a seek, the wait for an earlier closing included.
const seekTimeout = 20 * time.Second

// Seek moves the positions of a consumer that is STOPPED or FAILED. It keeps the
// turn meanwhile, so that no start comes between; a pause, stop or kill cuts it.
func (s *Supervisor) Seek(ctx context.Context, actor string, r *pb.SeekRequest) (*pb.SeekResponse, error) {
	if s.closing.Load() {
		return nil, errorf(pb.ErrorReason_ERROR_REASON_SHUTTING_DOWN, "the daemon is shutting down")
	}
	id := r.GetOptions().GetRequestId()
	if len(id) > maxRequestID {
		return nil, invalid("options.request_id", "at most 128 bytes")
	}
	if err := checkSeek(r); err != nil {
		return nil, err
	}
	through, err := s.claim(ctx, id)
	if err != nil {
		return nil, err
	}
	defer through()
	mark := messagePrint("seek", actor, r)
	var old pb.SeekResponse
	if found, err := s.reply(id, mark, &old); found || err != nil {
		return &old, err
	}
	c, err := s.find(r.GetNamespace(), r.GetName())
	if err != nil {
		return nil, err
	}
	out, err := c.seek(ctx, actor, r)
	if err == nil && id != "" && !r.GetOptions().GetDryRun() {
		s.keepReply(ctx, id, mark, out)
	}
	return out, err
}

func checkSeek(r *pb.SeekRequest) error {
	switch to := r.GetTo().(type) {
	case nil:
		return invalid("to", "say where to: a place, a time, or positions")
	case *pb.SeekRequest_Place:
		if to.Place < pb.SeekTo_SEEK_TO_EARLIEST || to.Place > pb.SeekTo_SEEK_TO_PREVIOUS {
			return invalid("place", "EARLIEST, LATEST or PREVIOUS")
		}
	case *pb.SeekRequest_Time:
		if err := to.Time.CheckValid(); err != nil {
			return invalid("time", err.Error())
		}
	case *pb.SeekRequest_Positions:
		seen := map[string]bool{}
		for i, p := range to.Positions.GetPositions() {
			path := fmt.Sprintf("positions.positions[%d]", i)
			switch {
			case p.GetOrigin() == "":
				return invalid(path+".origin", "is required: name the partition")
			case p.GetPosition() < -1:
				return invalid(path+".position", "0 or more, or -1 for none")
			case seen[p.GetOrigin()]:
				return invalid(path+".origin", p.GetOrigin()+" is named twice")
			}
			seen[p.GetOrigin()] = true
		}
		if len(seen) == 0 {
			return invalid("positions", "name at least one partition")
		}
	}
	return nil
}

func (c *consumer) seek(ctx context.Context, actor string, r *pb.SeekRequest) (*pb.SeekResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, seekTimeout)
	defer cancel()
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	if err := c.turn.take(ctx, cut, false); err != nil {
		return nil, err
	}
	defer c.turn.give()
	rec := c.rec.Load()
	if want := r.GetOptions().GetEtag(); want != "" && want != rec.GetEtag() {
		return nil, etagMismatch(c.key, rec.GetEtag())
	}
	to, err := seekTo(r, rec)
	if err != nil {
		return nil, err
	}
	cfg, reaping, err := c.seekable()
	if err != nil {
		return nil, err
	}
	waitAll(ctx, seekTimeout, reaping)
	l := c.s.links[cfg.Connection]
	conn, err := l.join(ctx)
	if err != nil {
		return nil, c.seekError(ctx, err)
	}
	defer l.leave(conn)
	p, ok := conn.Conn.(brokers.Positioner)
	if !ok {
		return nil, &Error{
			Reason: pb.ErrorReason_ERROR_REASON_CAPABILITY_UNSUPPORTED,
			Message: fmt.Sprintf("%s keeps no position that could be moved: seek works where a broker keeps one position "+
				"per partition instead of single acknowledgements", cfg.Plan.Origin),
			Metadata: map[string]string{"broker": l.driver.Kind(), "capability": "seek"},
		}
	}
	return c.movePositions(ctx, actor, r.GetOptions(), p, cfg.Plan.Source, to)
}

// movePositions asks first what there is to move and makes that durable, so that
// it can be undone whatever happens then.
func (c *consumer) movePositions(
	ctx context.Context, actor string, o *pb.VerbOptions, p brokers.Positioner, source any, to brokers.SeekTo,
) (*pb.SeekResponse, error) {
	plan, err := p.Seek(ctx, source, to, true)
	if err != nil {
		return nil, c.seekError(ctx, err)
	}
	rec := c.rec.Load()
	out := &pb.SeekResponse{Etag: rec.GetEtag()}
	exact := brokers.SeekTo{Positions: make(map[string]int64, len(plan))}
	for _, m := range plan {
		exact.Positions[m.Origin] = m.After
		out.Changes = append(out.Changes, &pb.PositionChange{Origin: m.Origin, Before: m.Before, After: m.After})
	}
	if o.GetDryRun() || len(plan) == 0 {
		return out, nil
	}
	next := proto.CloneOf(rec)
	next.LastSeek = &pb.Seek{Actor: actor, Reason: o.GetReason(), At: timestamppb.Now(), Changes: out.GetChanges()}
	next.Updated, next.Etag = timestamppb.Now(), newEtag()
	if err := c.s.putConsumer(ctx, next); err != nil {
		if uncertain(err) {
			c.s.recorder.owes(c)
		}
		return nil, storeError(err)
	}
	c.rec.Store(next)
	c.tell(func() {
		c.changed = true
		delete(c.conds, pb.ConditionType_CONDITION_TYPE_DATA_LOSS)
	})
	if _, err := p.Seek(ctx, source, exact, false); err != nil {
		e := c.seekError(ctx, err)
		e.Message = fmt.Sprintf("some positions of %s may have been moved: seek again, or take it back by a seek to PREVIOUS: %v", c.key, err)
		return nil, e
	}
	c.log.Info("positions were moved", "actor", actor, "reason", o.GetReason(), "partitions", len(plan))
	out.Etag = next.GetEtag()
	return out, nil
}

// seekTo is where to, in the driver's terms.
func seekTo(r *pb.SeekRequest, rec *pb.Consumer) (brokers.SeekTo, error) {
	positions := map[string]int64{}
	switch to := r.GetTo().(type) {
	case *pb.SeekRequest_Time:
		return brokers.SeekTo{Time: to.Time.AsTime()}, nil
	case *pb.SeekRequest_Place:
		switch to.Place {
		case pb.SeekTo_SEEK_TO_EARLIEST:
			return brokers.SeekTo{Earliest: true}, nil
		case pb.SeekTo_SEEK_TO_LATEST:
			return brokers.SeekTo{Latest: true}, nil
		}
		if rec.GetLastSeek() == nil {
			return brokers.SeekTo{}, invalid("place", "there was no seek that could be taken back")
		}
		for _, ch := range rec.GetLastSeek().GetChanges() {
			positions[ch.GetOrigin()] = ch.GetBefore()
		}
	case *pb.SeekRequest_Positions:
		for _, p := range to.Positions.GetPositions() {
			positions[p.GetOrigin()] = p.GetPosition()
		}
	}
	return brokers.SeekTo{Positions: positions}, nil
}

// seekable tells whether the consumer is at rest, and stays so: its turn is the
// caller's.
func (c *consumer) seekable() (cfg *spec.Consumer, reaping []reap, err error) {
	st, at := pb.State_STATE_UNSPECIFIED, false
	if c.deleted.Load() || !c.post(func() {
		st, reaping = c.state.Public(), c.reaping
		at = c.state == lifecycle.Failed || c.state == lifecycle.Stopped && c.goal() == goalStop && c.next == nil
	}) {
		return nil, nil, c.over()
	}
	if !at {
		return nil, nil, &Error{
			Reason:   pb.ErrorReason_ERROR_REASON_INVALID_STATE_TRANSITION,
			Message:  fmt.Sprintf("%s is %s: its positions can be moved while it is STOPPED or FAILED; stop it first", c.key, short(st)),
			Metadata: map[string]string{"state": short(st), "allowed": allowedVerbs(st)},
		}
	}
	if cfg = c.config.Load(); cfg == nil {
		return nil, nil, errorf(pb.ErrorReason_ERROR_REASON_INVALID_STATE_TRANSITION,
			"%s has a spec that does not fit this daemon: apply a right one first", c.key)
	}
	return cfg, reaping, nil
}

// seekError says what a broker's error means to who asked.
func (c *consumer) seekError(ctx context.Context, err error) *Error {
	reason := pb.ErrorReason_ERROR_REASON_BROKER_UNAVAILABLE
	switch brokers.ClassOf(err) {
	case brokers.Refused, brokers.Missing, brokers.Fenced, brokers.Lost:
		reason = pb.ErrorReason_ERROR_REASON_BROKER_REFUSED
	}
	if cause := context.Cause(ctx); errors.Is(cause, errUrgent) {
		err = cause
	}
	return errorf(reason, "the positions of %s were not moved: %v", c.key, err)
}
