package rpc

import (
	"context"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
)

// consumers answers ConsumerService; each call is one of the supervisor's.
type consumers struct {
	pb.UnimplementedConsumerServiceServer
	s *supervisor.Supervisor
}

// verb is what all verbs' requests have.
type verb interface {
	GetTarget() *pb.Target
	GetOptions() *pb.VerbOptions
}

func (c *consumers) do(ctx context.Context, v pb.Verb, r verb, more func(*supervisor.Command)) ([]*pb.VerbResult, error) {
	cmd := supervisor.Command{Verb: v, Actor: actor(ctx), Target: r.GetTarget(), Options: r.GetOptions()}
	if more != nil {
		more(&cmd)
	}
	out, err := c.s.Do(ctx, cmd)
	for _, res := range out {
		if e := res.GetError(); e != nil {
			e.Code = int32(code(e.GetReason()))
		}
	}
	return out, err
}

// limit is a duration that the caller may leave out; a zero or negative one
// that was given is not left out.
func limit(d *durationpb.Duration) time.Duration {
	if d != nil && d.AsDuration() <= 0 {
		return -1
	}
	return d.AsDuration()
}

func (c *consumers) Start(ctx context.Context, r *pb.StartRequest) (*pb.StartResponse, error) {
	out, err := c.do(ctx, pb.Verb_VERB_START, r, nil)
	return &pb.StartResponse{Results: out}, err
}

func (c *consumers) Pause(ctx context.Context, r *pb.PauseRequest) (*pb.PauseResponse, error) {
	out, err := c.do(ctx, pb.Verb_VERB_PAUSE, r, func(cmd *supervisor.Command) {
		cmd.Hold = r.GetHold()
		switch end := r.GetEnd().(type) {
		case *pb.PauseRequest_For:
			cmd.For = limit(end.For)
		case *pb.PauseRequest_Until:
			cmd.Until = end.Until.AsTime()
		}
	})
	return &pb.PauseResponse{Results: out}, err
}

func (c *consumers) Resume(ctx context.Context, r *pb.ResumeRequest) (*pb.ResumeResponse, error) {
	out, err := c.do(ctx, pb.Verb_VERB_RESUME, r, func(cmd *supervisor.Command) {
		cmd.Hold, cmd.AllHolds = r.GetHold(), r.GetAllHolds()
	})
	return &pb.ResumeResponse{Results: out}, err
}

func (c *consumers) Drain(ctx context.Context, r *pb.DrainRequest) (*pb.DrainResponse, error) {
	out, err := c.do(ctx, pb.Verb_VERB_DRAIN, r, func(cmd *supervisor.Command) {
		cmd.Soft, cmd.Hard, cmd.BacklogTimeout = limit(r.GetSoft()), limit(r.GetHard()), limit(r.GetBacklogTimeout())
		cmd.Mode, cmd.Then = r.GetMode(), r.GetThen()
	})
	return &pb.DrainResponse{Results: out}, err
}

func (c *consumers) Stop(ctx context.Context, r *pb.StopRequest) (*pb.StopResponse, error) {
	out, err := c.do(ctx, pb.Verb_VERB_STOP, r, func(cmd *supervisor.Command) {
		cmd.Soft, cmd.Hard = limit(r.GetSoft()), limit(r.GetHard())
	})
	return &pb.StopResponse{Results: out}, err
}

func (c *consumers) Restart(ctx context.Context, r *pb.RestartRequest) (*pb.RestartResponse, error) {
	out, err := c.do(ctx, pb.Verb_VERB_RESTART, r, func(cmd *supervisor.Command) {
		cmd.Soft, cmd.Hard = limit(r.GetSoft()), limit(r.GetHard())
	})
	return &pb.RestartResponse{Results: out}, err
}

func (c *consumers) Kill(ctx context.Context, r *pb.KillRequest) (*pb.KillResponse, error) {
	out, err := c.do(ctx, pb.Verb_VERB_KILL, r, nil)
	return &pb.KillResponse{Results: out}, err
}

func (c *consumers) Scale(ctx context.Context, r *pb.ScaleRequest) (*pb.ScaleResponse, error) {
	out, err := c.do(ctx, pb.Verb_VERB_SCALE, r, func(cmd *supervisor.Command) {
		cmd.Concurrency = -1 // refused: neither was said
		switch to := r.GetTo().(type) {
		case *pb.ScaleRequest_Concurrency:
			cmd.Concurrency = to.Concurrency
			if to.Concurrency == 0 {
				cmd.Concurrency = -1
			}
		case *pb.ScaleRequest_Reset_:
			if to.Reset_ {
				cmd.Concurrency = 0
			}
		}
	})
	return &pb.ScaleResponse{Results: out}, err
}

func (c *consumers) Delete(ctx context.Context, r *pb.DeleteRequest) (*pb.DeleteResponse, error) {
	out, err := c.do(ctx, pb.Verb_VERB_DELETE, r, func(cmd *supervisor.Command) { cmd.Force = r.GetForce() })
	return &pb.DeleteResponse{Results: out}, err
}

func (c *consumers) Apply(ctx context.Context, r *pb.ApplyRequest) (*pb.ApplyResponse, error) {
	return c.s.Apply(ctx, actor(ctx), r)
}

func (c *consumers) Get(_ context.Context, r *pb.GetRequest) (*pb.GetResponse, error) {
	out, err := c.s.Get(r.GetNamespace(), r.GetName())
	return &pb.GetResponse{Consumer: out}, err
}

func (c *consumers) List(_ context.Context, r *pb.ListRequest) (*pb.ListResponse, error) {
	return c.s.List(r)
}

func (c *consumers) ListInFlight(_ context.Context, r *pb.ListInFlightRequest) (*pb.ListInFlightResponse, error) {
	return c.s.InFlight(r)
}

func (c *consumers) CancelInFlight(ctx context.Context, r *pb.CancelInFlightRequest) (*pb.CancelInFlightResponse, error) {
	return c.s.CancelInFlight(ctx, actor(ctx), r)
}

func (c *consumers) Seek(ctx context.Context, r *pb.SeekRequest) (*pb.SeekResponse, error) {
	return c.s.Seek(ctx, actor(ctx), r)
}

func (c *consumers) ListReceipts(_ context.Context, r *pb.ListReceiptsRequest) (*pb.ListReceiptsResponse, error) {
	return c.s.Receipts(r)
}

func (c *consumers) ListTransitions(_ context.Context, r *pb.ListTransitionsRequest) (*pb.ListTransitionsResponse, error) {
	return c.s.Transitions(r)
}

func (c *consumers) Watch(r *pb.WatchRequest, stream grpc.ServerStreamingServer[pb.WatchResponse]) error {
	// At once, so that a quiet watch is known to have been taken.
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	return c.s.Watch(stream.Context(), r, stream.Send)
}

// server answers ServerService.
type server struct {
	pb.UnimplementedServerServiceServer
	s *supervisor.Supervisor
}

func (s *server) GetServerInfo(context.Context, *pb.GetServerInfoRequest) (*pb.GetServerInfoResponse, error) {
	return s.s.Info(), nil
}
