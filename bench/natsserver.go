package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// natsServer is a nats-server in a process of its own, so that what this
// process uses is the client's alone.
type natsServer struct {
	url string
	cmd *exec.Cmd
	in  io.Closer
	dir string
}

// startNATS runs this program as a server. It ends when this process does.
func startNATS(ctx context.Context) (*natsServer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "supervisord-bench-nats-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the streams: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, "nats-server", "-dir", dir)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the server: %w", err), os.RemoveAll(dir))
	}
	s := &natsServer{cmd: cmd, in: in, dir: dir}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the server did not come up: %w", err), s.stop())
	}
	s.url = strings.TrimSpace(line)
	return s, nil
}

func (s *natsServer) stop() error {
	err := s.in.Close()
	if e := s.cmd.Wait(); e != nil {
		err = errors.Join(err, fmt.Errorf("the server ended: %w", e))
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

func (s *natsServer) connection() *pb.Connection { return natsConnection(s.url) }

func natsConnection(url string) *pb.Connection {
	return &pb.Connection{Name: connection, Broker: &pb.Connection_Nats{Nats: &pb.NatsConnection{Urls: []string{url}}}}
}

// runNATSServer is the server's process: it prints its URL and serves until
// its input ends.
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
	if _, err := fmt.Fprintln(w, s.ClientURL()); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}
