package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// natsServer is a nats-server in a process of its own.
type natsServer struct {
	*part

	url, dir string
}

func startNATS(ctx context.Context) (*natsServer, error) {
	dir, err := os.MkdirTemp("", "supervisord-bench-nats-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the streams: %w", err)
	}
	p, err := startPart(ctx, "nats-server", "-dir", dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &natsServer{p, p.line, dir}, nil
}

func (s *natsServer) stop() error { return errors.Join(s.part.stop(), os.RemoveAll(s.dir)) }

func (s *natsServer) connection() *pb.Connection { return natsConnection(s.url) }

func natsConnection(url string) *pb.Connection {
	return &pb.Connection{Name: connection, Broker: &pb.Connection_Nats{Nats: &pb.NatsConnection{Urls: []string{url}}}}
}

// runNATSServer is the server's process: it says its URL.
func runNATSServer(ctx context.Context, fs *flag.FlagSet, args []string, w io.Writer) error {
	dir := fs.String("dir", "", "where to keep the streams")
	if err := fs.Parse(args); err != nil {
		return err
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: *dir,
		JetStreamMaxMemory: 8 << 30,
	})
	if err != nil {
		return fmt.Errorf("make a server: %w", err)
	}
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	if !s.ReadyForConnections(10 * time.Second) {
		return errors.New("the server did not come up within 10 s")
	}
	return serve(ctx, w, s.ClientURL())
}
