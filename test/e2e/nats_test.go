package e2e

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/seed-111f5b8e/supervisord/test/node"
)

// serverEnv makes this test binary a NATS server: the port; the folder is in
// the variable of this name and _DIR.
const serverEnv = "E2E_NATS_SERVER"

// runServer is a JetStream server until it is killed. At SIGUSR1 it closes all
// connections of clients.
func runServer(port, dir string) {
	n, err := strconv.Atoi(port)
	if err != nil {
		panic(err)
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: n, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true,
	})
	if err != nil {
		panic(err)
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	s.Start()
	for range asked {
		all, err := s.Connz(nil)
		if err != nil {
			panic(err)
		}
		for _, c := range all.Conns {
			_ = s.DisconnectClientByID(c.Cid) // it may just have gone
		}
	}
}

// natsFixture is a server of the world's own, with one stream.
type natsFixture struct {
	port   int
	server *node.Process
	nc     *nats.Conn
	js     jetstream.JetStream
}

func (f *natsFixture) open(t *testing.T, _ []string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if f.port, err = node.FreePort(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f.server = node.New(node.Command{
		Path: self, Dir: dir, Ready: f.ready,
		Env: []string{fmt.Sprintf("%s=%d", serverEnv, f.port), serverEnv + "_DIR=" + filepath.Join(dir, "js")},
	})
	t.Cleanup(f.server.Kill)
	f.nc, err = nats.Connect(f.url(), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.nc.Close)
	if f.js, err = jetstream.New(f.nc); err != nil {
		t.Fatal(err)
	}
	if err := f.restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (*natsFixture) consumers() int { return 20 }

func (f *natsFixture) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", f.port) }

func (f *natsFixture) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := f.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "E2E", Subjects: []string{"e2e.>"}})
	return err
}

func (f *natsFixture) connection() string { return fmt.Sprintf("nats: {urls: [%q]}", f.url()) }

func (f *natsFixture) source(name string) string {
	return fmt.Sprintf(`source: {connection: main, nats: {stream: E2E, filter_subjects: ["e2e.%s"], ack_wait: 5s}}`, name)
}

func (f *natsFixture) publish(ctx context.Context, name, _, id string) error {
	_, err := f.js.Publish(ctx, "e2e."+name, []byte(id))
	return err
}

func (f *natsFixture) left(ctx context.Context, name string) (int, error) {
	c, err := f.js.Consumer(ctx, "E2E", "default_"+name)
	if err != nil {
		return 0, err
	}
	i := c.CachedInfo()
	return int(i.NumPending) + i.NumAckPending, nil
}

func (*natsFixture) messages() string { return "E2E:" }

func (f *natsFixture) kill() { f.server.Kill() }

func (f *natsFixture) restart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return f.server.Start(ctx)
}

func (f *natsFixture) freeze() { f.server.Freeze() }
func (f *natsFixture) thaw()   { f.server.Thaw() }

func (f *natsFixture) closeConnections(context.Context) error {
	return syscall.Kill(f.server.PID(), syscall.SIGUSR1)
}
