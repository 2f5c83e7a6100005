package rpc

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
)

const (
	maxMessage = 4 << 20
	maxHeaders = 16 << 10
	// callsPerConnection counts streams too, which stay below it, so that a
	// client with many watches can still move consumers.
	callsPerConnection   = 64
	streamsPerConnection = 32
	handshake            = 5 * time.Second
	// idleLimit closes connections without calls; clients dial again by
	// themselves.
	idleLimit = 10 * time.Minute
	// unaryLimit bounds a call, also one whose caller set no deadline.
	unaryLimit = 30 * time.Second
	// sendLimit is how long one message to a watcher may wait for it to read.
	sendLimit = 30 * time.Second
	// stopLimit is how long calls under way may go on when the server ends.
	stopLimit = 2 * time.Second
)

// Server serves a supervisor on one listener.
type Server struct {
	grpc   *grpc.Server
	health *health.Server
	l      *Listener
	log    *slog.Logger
	// life ends before the server does: streams end with it.
	life context.Context //nolint:containedctx // the server's own lifetime
	end  context.CancelCauseFunc
}

// New makes a server for a listener, which it closes in the end; Serve runs it.
func New(s *supervisor.Supervisor, l *Listener, log *slog.Logger) *Server {
	srv := &Server{l: l, log: log, health: health.NewServer()}
	srv.life, srv.end = context.WithCancelCause(context.Background())
	srv.grpc = grpc.NewServer(
		grpc.Creds(l.creds), grpc.MaxRecvMsgSize(maxMessage), grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(callsPerConnection), grpc.ConnectionTimeout(handshake),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: idleLimit, Time: time.Minute, Timeout: 20 * time.Second,
		}),
		grpc.UnaryInterceptor(srv.unary), grpc.StreamInterceptor(srv.stream),
	)
	pb.RegisterConsumerServiceServer(srv.grpc, &consumers{s: s})
	pb.RegisterServerServiceServer(srv.grpc, &server{s: s})
	healthv1.RegisterHealthServer(srv.grpc, srv.health)
	for name := range srv.grpc.GetServiceInfo() {
		srv.health.SetServingStatus(name, healthv1.HealthCheckResponse_SERVING)
	}
	if l.reflection {
		reflection.Register(srv.grpc)
	}
	return srv
}

// Serve blocks until Stop.
func (s *Server) Serve() error {
	if err := s.grpc.Serve(s.l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Leaving tells health checkers to send nothing more; calls are still answered.
func (s *Server) Leaving() { s.health.Shutdown() }

// Stop ends streams, lets calls under way end for two seconds, and closes.
func (s *Server) Stop() {
	s.Leaving()
	s.end(&supervisor.Error{
		Reason: pb.ErrorReason_ERROR_REASON_SHUTTING_DOWN, Message: "the daemon is shutting down",
	})
	t := time.AfterFunc(stopLimit, s.grpc.Stop)
	defer t.Stop()
	s.grpc.GracefulStop()
}

// call runs one call and turns its end into a status.
func (s *Server) call(method string, f func() error) (err error) {
	defer func() { err = toStatus(s.log, method, err, recover()) }()
	return f()
}

func stackOf(panicked any) string {
	if panicked == nil {
		return ""
	}
	return string(debug.Stack())
}

func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (out any, err error) {
	ctx, cancel := context.WithTimeout(ctx, unaryLimit)
	defer cancel()
	err = s.call(info.FullMethod, func() (err error) {
		out, err = next(ctx, req)
		return err
	})
	return out, err
}

// stream runs a stream beside its own goroutine, so that it ends in time also
// when its handler waits for a client that does not read: the end of the
// stream frees that handler.
func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	places := callerOf(ss.Context()).streams
	select {
	case places <- struct{}{}:
		defer func() { <-places }()
	default:
		return detailed(&supervisor.Error{
			Reason:  pb.ErrorReason_ERROR_REASON_QUOTA_EXCEEDED,
			Message: "this connection has too many streams open: close some, or connect once more",
		})
	}
	ctx, cancel := context.WithCancelCause(ss.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(context.Cause(s.life)) })()
	bounded := &stream{ServerStream: ss, ctx: ctx, slow: time.AfterFunc(sendLimit, func() { cancel(slowWatcher()) })}
	bounded.slow.Stop()

	done := make(chan error, 1)
	go func() { done <- s.call(info.FullMethod, func() error { return next(srv, bounded) }) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return s.call(info.FullMethod, func() error { return context.Cause(ctx) })
	}
}

func slowWatcher() error {
	return &supervisor.Error{
		Reason:  pb.ErrorReason_ERROR_REASON_SLOW_WATCHER,
		Message: "the watcher did not read for " + sendLimit.String() + " and was closed: watch again from the last revision",
	}
}

// stream is one whose context ends with the server's life, and with a message
// that its client does not take.
type stream struct {
	grpc.ServerStream
	ctx  context.Context //nolint:containedctx // grpc's own way
	slow *time.Timer
}

func (s *stream) Context() context.Context { return s.ctx }

func (s *stream) SendMsg(m any) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	s.slow.Reset(sendLimit)
	defer s.slow.Stop()
	return s.ServerStream.SendMsg(m)
}
