package rpc

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
)

const (
	maxMessage = 4 << 20
	maxHeaders = 16 << 10
	maxStreams = 64
	handshake  = 5 * time.Second
	// unaryLimit bounds a call whose caller set no deadline.
	unaryLimit = 30 * time.Second
	// watchesAtOnce bounds the watches of all callers together.
	watchesAtOnce = 1000
	// stopLimit is how long calls under way may go on when the server ends.
	stopLimit = 2 * time.Second
)

// Server serves a supervisor on one listener.
type Server struct {
	grpc    *grpc.Server
	health  *health.Server
	l       *Listener
	log     *slog.Logger
	ending  chan struct{}
	endOnce sync.Once
	watches chan struct{}
}

// New makes a server for a listener; Serve runs it.
func New(s *supervisor.Supervisor, l *Listener, log *slog.Logger) *Server {
	srv := &Server{
		l: l, log: log, ending: make(chan struct{}), health: health.NewServer(), watches: make(chan struct{}, watchesAtOnce),
	}
	srv.grpc = grpc.NewServer(
		grpc.Creds(l.creds), grpc.MaxRecvMsgSize(maxMessage), grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams), grpc.ConnectionTimeout(handshake),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
		grpc.ChainUnaryInterceptor(srv.unary), grpc.ChainStreamInterceptor(srv.stream),
	)
	pb.RegisterConsumerServiceServer(srv.grpc, &consumers{s: s, ending: srv.ending})
	pb.RegisterServerServiceServer(srv.grpc, &server{s: s})
	healthv1.RegisterHealthServer(srv.grpc, srv.health)
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

// Stop ends streams, lets calls under way end for a moment, and closes.
func (s *Server) Stop() {
	s.Leaving()
	s.endOnce.Do(func() { close(s.ending) })
	t := time.AfterFunc(stopLimit, s.grpc.Stop)
	defer t.Stop()
	s.grpc.GracefulStop()
}

func (s *Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (out any, err error) {
	defer s.recovered(info.FullMethod, &err)
	ctx, cancel := context.WithTimeout(ctx, unaryLimit)
	defer cancel()
	return next(ctx, req)
}

func (s *Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer s.recovered(info.FullMethod, &err)
	select {
	case s.watches <- struct{}{}:
		defer func() { <-s.watches }()
	default:
		return detailed(&supervisor.Error{
			Reason: pb.ErrorReason_ERROR_REASON_QUOTA_EXCEEDED, Message: "too many streams are open: close some",
		})
	}
	return next(srv, ss)
}

// recovered turns a panic into INTERNAL; the stack goes to the log only.
func (s *Server) recovered(method string, err *error) {
	if r := recover(); r != nil {
		s.log.Error("a call panicked", "method", method, "panic", r, "stack", string(debug.Stack()))
		*err = status.Error(codes.Internal, "a fault of the server; its log has the details")
	}
}
