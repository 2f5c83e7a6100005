package rpc

import (
	"context"
	"errors"
	"io"
	"os/user"
	"strings"
	"testing"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

func TestActorIsThePeerNotTheMessage(t *testing.T) {
	r := newRig(t)
	r.apply("orders")
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "actor", "mallory", "x-user", "mallory")
	out, err := r.client().Pause(ctx, &pb.PauseRequest{Target: named("orders"), Options: &pb.VerbOptions{Reason: "actor: mallory"}})
	if err != nil {
		t.Fatal(err)
	}
	if res := out.GetResults(); len(res) != 1 || res[0].GetEffect() != pb.Effect_EFFECT_ACTED || !res[0].GetDurable() {
		t.Errorf("results are %v", res)
	}
	got, err := r.client().Get(t.Context(), &pb.GetRequest{Name: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	if hold := got.GetConsumer().GetDesired().GetHolds()[0]; hold.GetActor() != me.Username {
		t.Errorf("the hold is by %q, not %q", hold.GetActor(), me.Username)
	}
}

// Each request's fields reach the core: what each call must leave behind.
func TestEachCallReachesTheCore(t *testing.T) {
	r := newRig(t)
	c, ctx := r.client(), t.Context()
	r.apply("a", "b")
	single := func(results []*pb.VerbResult, err error) *pb.VerbResult {
		t.Helper()
		if err != nil || len(results) != 1 || results[0].GetError() != nil {
			t.Fatalf("%v, %v", results, err)
		}
		return results[0]
	}
	paused, err := c.Pause(ctx, &pb.PauseRequest{Target: named("a"), Hold: "night", End: &pb.PauseRequest_For{For: durationpb.New(time.Hour)}})
	single(paused.GetResults(), err)
	got, err := c.Get(ctx, &pb.GetRequest{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	hold := got.GetConsumer().GetDesired().GetHolds()[0]
	if left := time.Until(hold.GetUntil().AsTime()); hold.GetName() != "night" || left < 50*time.Minute || left > time.Hour {
		t.Errorf("the hold is %v", hold)
	}
	resumed, err := c.Resume(ctx, &pb.ResumeRequest{Target: named("a"), AllHolds: true})
	single(resumed.GetResults(), err)
	scaled, err := c.Scale(ctx, &pb.ScaleRequest{Target: named("a"), To: &pb.ScaleRequest_Concurrency{Concurrency: 7}})
	single(scaled.GetResults(), err)
	if got, err = c.Get(ctx, &pb.GetRequest{Name: "a"}); err != nil || got.GetConsumer().GetDesired().GetScale().GetConcurrency() != 7 {
		t.Errorf("scaled to %v, %v", got.GetConsumer().GetDesired(), err)
	}
	scaled, err = c.Scale(ctx, &pb.ScaleRequest{Target: named("a"), To: &pb.ScaleRequest_Reset_{Reset_: true}})
	single(scaled.GetResults(), err)
	killed, err := c.Kill(ctx, &pb.KillRequest{Target: named("a")})
	if k := single(killed.GetResults(), err); k.GetReceipt().GetVerb() != pb.Verb_VERB_KILL {
		t.Errorf("the kill's receipt is %v", k.GetReceipt())
	}
	receipts, err := c.ListReceipts(ctx, &pb.ListReceiptsRequest{Name: "a"})
	if err != nil || len(receipts.GetReceipts()) == 0 {
		t.Errorf("receipts are %v, %v", receipts, err)
	}
	history, err := c.ListTransitions(ctx, &pb.ListTransitionsRequest{Name: "a"})
	if err != nil || len(history.GetTransitions()) == 0 {
		t.Errorf("the history is %v, %v", history, err)
	}
	started, err := c.Start(ctx, &pb.StartRequest{Target: named("a")})
	single(started.GetResults(), err)
	drained, err := c.Drain(ctx, &pb.DrainRequest{Target: named("a"), Soft: durationpb.New(time.Second), Hard: durationpb.New(2 * time.Second)})
	single(drained.GetResults(), err)
	restarted, err := c.Restart(ctx, &pb.RestartRequest{Target: named("b")})
	single(restarted.GetResults(), err)
	deleted, err := c.Delete(ctx, &pb.DeleteRequest{Target: named("b"), Force: true})
	single(deleted.GetResults(), err)
	list, err := c.List(ctx, &pb.ListRequest{})
	if err != nil || len(list.GetConsumers()) != 1 || list.GetRevision() == 0 {
		t.Errorf("the list is %v, %v", list, err)
	}
	inFlight, err := c.ListInFlight(ctx, &pb.ListInFlightRequest{Name: "a"})
	if err != nil || inFlight.GetTotal() != 0 {
		t.Errorf("in flight are %v, %v", inFlight, err)
	}
	info, err := pb.NewServerServiceClient(r.dial()).GetServerInfo(ctx, &pb.GetServerInfoRequest{})
	if err != nil || info.GetVersion() != "v-test" || info.GetConsumers() != 1 || !info.GetStoreWritable() {
		t.Errorf("the server is %v, %v", info, err)
	}
}

func TestErrorsOfCalls(t *testing.T) {
	r := newRig(t)
	r.apply("orders")
	c, ctx := r.client(), t.Context()
	_, err := c.Get(ctx, &pb.GetRequest{Name: "nobody"})
	wantError(t, err, codes.NotFound, "NOT_FOUND")
	_, err = c.CancelInFlight(ctx, &pb.CancelInFlightRequest{Name: "orders", MessageId: "none"})
	wantError(t, err, codes.NotFound, "NOT_FOUND")
	_, err = c.Stop(ctx, &pb.StopRequest{Target: named("orders"), Soft: durationpb.New(0)})
	wantError(t, err, codes.InvalidArgument, "INVALID_ARGUMENT")
	_, err = c.Scale(ctx, &pb.ScaleRequest{Target: named("orders")})
	wantError(t, err, codes.InvalidArgument, "INVALID_ARGUMENT")
	_, err = c.Delete(ctx, &pb.DeleteRequest{Target: named("orders")})
	wantError(t, err, codes.FailedPrecondition, "INVALID_STATE_TRANSITION")
	_, err = c.Stop(ctx, &pb.StopRequest{Target: named("orders"), Options: &pb.VerbOptions{Etag: "stale"}})
	wantError(t, err, codes.Aborted, "ETAG_MISMATCH")

	_, err = c.Apply(ctx, &pb.ApplyRequest{Items: []*pb.ApplyItem{{Spec: newSpec("ok")}, {Spec: &pb.ConsumerSpec{Name: "../x"}}}})
	wantError(t, err, codes.InvalidArgument, "INVALID_ARGUMENT")
	bad := details[*errdetails.BadRequest](err)
	if len(bad) != 1 || !strings.HasPrefix(bad[0].GetFieldViolations()[0].GetField(), "items[1].spec.") {
		t.Errorf("violations are %v", bad)
	}

	out, err := c.Stop(ctx, &pb.StopRequest{Target: named("orders", "nobody")})
	if err != nil {
		t.Fatal(err)
	}
	if e := out.GetResults()[1].GetError(); e.GetCode() != int32(codes.NotFound) || e.GetReason() != pb.ErrorReason_ERROR_REASON_NOT_FOUND {
		t.Errorf("the item's error is %v", e)
	}
}

func TestPanicIsInternalAndLogged(t *testing.T) {
	r := newRig(t, panicking{})
	s := newSpec("bomb")
	s.Handler = &pb.Handler{Kind: &pb.Handler_Log{Log: &pb.LogHandler{}}}
	_, err := r.client().Apply(t.Context(), &pb.ApplyRequest{Items: []*pb.ApplyItem{{Spec: s}}})
	wantError(t, err, codes.Internal, "INTERNAL")
	if strings.Contains(err.Error(), secretPanic) || strings.Contains(err.Error(), "goroutine") {
		t.Errorf("the caller sees %v", err)
	}
	if l := r.logged.String(); !strings.Contains(l, secretPanic) || !strings.Contains(l, "panicking") {
		t.Errorf("the log has no panic with its stack: %s", l)
	}
	r.apply("orders") // and the server goes on
}

func TestRequestsOverTheLimitsAreRefused(t *testing.T) {
	r := newRig(t)
	big := newSpec("big")
	big.Labels = map[string]string{"x": strings.Repeat("x", maxMessage)}
	_, err := r.client().Apply(t.Context(), &pb.ApplyRequest{Items: []*pb.ApplyItem{{Spec: big}}})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message too large gives %v", err)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("x", maxHeaders))
	if _, err = r.client().List(ctx, &pb.ListRequest{}); err == nil {
		t.Error("headers too large are accepted")
	}
	r.apply("orders")
}

func TestHealth(t *testing.T) {
	r := newRig(t)
	c := healthv1.NewHealthClient(r.dial())
	for _, service := range []string{"", "supervisor.v1.ConsumerService", "supervisor.v1.ServerService"} {
		check := func(want healthv1.HealthCheckResponse_ServingStatus) {
			t.Helper()
			if got, err := c.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service}); err != nil || got.GetStatus() != want {
				t.Errorf("%q is %v, %v", service, got, err)
			}
		}
		check(healthv1.HealthCheckResponse_SERVING)
		defer check(healthv1.HealthCheckResponse_NOT_SERVING)
	}
	r.server.Leaving()
	if _, err := r.client().List(t.Context(), &pb.ListRequest{}); err != nil {
		t.Errorf("a call while leaving gives %v", err)
	}
}

// services asks both versions of reflection what there is.
func services(t *testing.T, conn *grpc.ClientConn) ([]string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		return nil, err
	}
	err = s.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
	if err != nil && !errors.Is(err, io.EOF) { // EOF: it has ended, and Recv says how
		return nil, err
	}
	out, err := s.Recv()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range out.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	old, err := reflectionv1alpha.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		return nil, err
	}
	req := &reflectionv1alpha.ServerReflectionRequest{} //nolint:staticcheck // older clients ask it
	req.MessageRequest = &reflectionv1alpha.ServerReflectionRequest_ListServices{}
	err = old.Send(req)
	if err != nil {
		return nil, err
	}
	_, err = old.Recv()
	return names, err
}

func TestReflectionOnTheSocket(t *testing.T) {
	r := newRig(t)
	names, err := services(t, r.dial())
	if err != nil || !strings.Contains(strings.Join(names, " "), "supervisor.v1.ConsumerService") {
		t.Errorf("services are %v, %v", names, err)
	}
}
