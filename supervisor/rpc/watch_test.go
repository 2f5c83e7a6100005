package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers/memory"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

type watch = grpc.ServerStreamingClient[pb.WatchResponse]

// synced begins a watch and reads it up to SYNCED.
func synced(t *testing.T, c pb.ConsumerServiceClient, r *pb.WatchRequest) (watch, []*pb.WatchResponse) {
	t.Helper()
	w, err := c.Watch(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	var seen []*pb.WatchResponse
	for {
		m, err := w.Recv()
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, m)
		if m.GetSynced() != nil {
			return w, seen
		}
	}
}

func TestWatchTellsWhatIsAndWhatChanges(t *testing.T) {
	r := newRig(t)
	r.apply("a", "b")
	w, seen := synced(t, r.client(), &pb.WatchRequest{Names: []string{"a"}})
	if len(seen) != 2 || seen[0].GetConsumer().GetSpec().GetName() != "a" {
		t.Errorf("the snapshot is %v", seen)
	}
	if _, err := r.client().Pause(t.Context(), &pb.PauseRequest{Target: named("a")}); err != nil {
		t.Fatal(err)
	}
	last := seen[1].GetRevision()
	for paused := false; !paused; {
		m, err := w.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.GetRevision() <= last {
			t.Errorf("revision %d after %d", m.GetRevision(), last)
		}
		last = m.GetRevision()
		paused = m.GetConsumer().GetStatus().GetState() == pb.State_STATE_PAUSED
	}
	_, err := first(r.client().Watch(t.Context(), &pb.WatchRequest{SinceRevision: 1}))
	wantError(t, err, codes.OutOfRange, "REVISION_COMPACTED")
}

func first(w watch, err error) (*pb.WatchResponse, error) {
	if err != nil {
		return nil, err
	}
	return w.Recv()
}

func TestWatchesOfAConnectionAreBounded(t *testing.T) {
	r := newRig(t)
	r.apply("a")
	conn := r.dial()
	c := pb.NewConsumerServiceClient(conn)
	for range streamsPerConnection {
		synced(t, c, &pb.WatchRequest{})
	}
	_, err := first(c.Watch(t.Context(), &pb.WatchRequest{}))
	wantError(t, err, codes.ResourceExhausted, "QUOTA_EXCEEDED")
	// Calls on this connection, and watches on another, still work.
	if _, err := c.Pause(t.Context(), &pb.PauseRequest{Target: named("a")}); err != nil {
		t.Errorf("a pause beside many watches gives %v", err)
	}
	w, _ := synced(t, r.client(), &pb.WatchRequest{})
	if err := w.CloseSend(); err != nil {
		t.Error(err)
	}
}

func TestStopEndsStreamsAtOnce(t *testing.T) {
	r := newRig(t)
	r.apply("a")
	w, _ := synced(t, r.client(), &pb.WatchRequest{})
	health, err := healthv1.NewHealthClient(r.dial()).Watch(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := health.Recv(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	r.stop()
	if took := time.Since(begin); took >= stopLimit {
		t.Errorf("stop took %v: something had to be cut off", took)
	}
	err = drain(w)
	wantError(t, err, codes.Unavailable, "SHUTTING_DOWN")
	if len(details[*errdetails.RetryInfo](err)) != 1 {
		t.Errorf("no RetryInfo in %v", err)
	}
	for err == nil || errors.Is(err, io.EOF) {
		_, err = health.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("the health watch ends with %v", err)
	}
}

func drain(w watch) error {
	for {
		if _, err := w.Recv(); err != nil {
			return err
		}
	}
}

// inBubble runs a test in virtual time, over one connection in memory.
func inBubble(t *testing.T, f func(t *testing.T, r *rig, c pb.ConsumerServiceClient, creds plain)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p, creds := newPipe(), plain{serverOnly{"plain"}, make(chan *caller, 1)}
		r := &rig{t: t, logged: &logs{}, broker: memory.NewBroker(memory.Options{CreateTargets: true})}
		r.s = r.supervise(dir)
		r.serve(&Listener{Listener: p, creds: creds})
		conn, err := grpc.NewClient("passthrough:pipe", grpc.WithContextDialer(p.dial),
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		f(t, r, pb.NewConsumerServiceClient(conn), creds)
	})
}

// plain are credentials that let everyone in, and hand out who came.
type plain struct {
	serverOnly
	came chan *caller
}

func (p plain) Clone() credentials.TransportCredentials { return p }

func (p plain) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c := newCaller("test")
	p.came <- c
	return conn, c, nil
}

func TestEndedWatchesMakeRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *rig, c pb.ConsumerServiceClient, creds plain) {
		for range 3 * streamsPerConnection {
			ctx, cancel := context.WithCancelCause(t.Context())
			if _, err := first(c.Watch(ctx, &pb.WatchRequest{})); err != nil {
				t.Fatal(err)
			}
			cancel(nil)
			synctest.Wait()
		}
		if n := len((<-creds.came).streams); n != 0 {
			t.Errorf("%d streams are still counted", n)
		}
	})
}

func TestWatcherThatDoesNotReadIsClosed(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, c pb.ConsumerServiceClient, creds plain) {
		if _, err := r.s.Apply(t.Context(), "test", manyConsumers(500)); err != nil {
			t.Fatal(err)
		}
		w, err := c.Watch(t.Context(), &pb.WatchRequest{})
		if err != nil {
			t.Fatal(err)
		}
		streams := (<-creds.came).streams
		time.Sleep(sendLimit - time.Second) //nolint:forbidigo // virtual time
		if n := len(streams); n != 1 {
			t.Fatalf("%d streams are counted while it waits: what it sends fits the buffers, or it gave up too soon", n)
		}
		time.Sleep(2 * time.Second) //nolint:forbidigo // virtual time
		synctest.Wait()
		if n := len(streams); n != 0 {
			t.Errorf("%d streams are counted after %v", n, sendLimit+time.Second)
		}
		wantError(t, drain(w), codes.ResourceExhausted, "SLOW_WATCHER")
	})
}

// A watcher that reads is not slow, however quiet it is around it.
func TestQuietWatcherStays(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *rig, c pb.ConsumerServiceClient, _ plain) {
		w, _ := synced(t, c, &pb.WatchRequest{})
		begin := time.Now()
		for time.Since(begin) < 10*sendLimit {
			if m, err := w.Recv(); err != nil || m.GetBookmark() == nil {
				t.Fatalf("after %v: %v, %v", time.Since(begin), m, err)
			}
		}
	})
}

func TestCallThatTakesTooLongIsEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, _ pb.ConsumerServiceClient, _ plain) {
		begin := time.Now()
		_, err := r.server.unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "m"}, func(ctx context.Context, _ any) (any, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		})
		if status.Code(err) != codes.DeadlineExceeded || time.Since(begin) != unaryLimit {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
	})
}

func manyConsumers(n int) *pb.ApplyRequest {
	req := &pb.ApplyRequest{}
	for i := range n {
		s := newSpec(fmt.Sprint("c", i))
		s.Labels = map[string]string{"note": strings.Repeat("x", 60)}
		req.Items = append(req.Items, &pb.ApplyItem{Spec: s})
	}
	return req
}
