package rpc

import (
	"context"
	"strings"
	"testing"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// methods are the unary calls of the API, in the order of the proto file.
func methods(t testing.TB) []protoreflect.MethodDescriptor {
	t.Helper()
	var all []protoreflect.MethodDescriptor
	services := pb.File_supervisor_v1_service_proto.Services()
	for i := range services.Len() {
		for j := range services.Get(i).Methods().Len() {
			if m := services.Get(i).Methods().Get(j); !m.IsStreamingServer() {
				all = append(all, m)
			}
		}
	}
	return all
}

func newMessage(t testing.TB, d protoreflect.MessageDescriptor) proto.Message {
	t.Helper()
	mt, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return mt.New().Interface()
}

// seeds are requests that reach deep; the fuzzer bends them.
func seeds() []proto.Message {
	one, everyone := named("orders"), &pb.Target{Namespace: "*", All: true}
	options := &pb.VerbOptions{Reason: "r", RequestId: "id", DryRun: true, Etag: "e"}
	full := newSpec("orders")
	full.Labels = map[string]string{"team": "payments"}
	full.Ordering, full.Key = pb.Ordering_ORDERING_KEY, &pb.LaneKey{From: &pb.LaneKey_Header{Header: "h"}}
	full.MaxInFlight = &pb.MaxInFlight{Messages: proto.Int32(10), Bytes: proto.Int64(1 << 20)}
	full.Stop = &pb.Stop{Soft: durationpb.New(time.Second), Hard: durationpb.New(2 * time.Second)}
	full.DeadLetter = &pb.DeadLetter{Target: &pb.DeadLetter_Topic{Topic: "dead"}}
	return []proto.Message{
		&pb.ApplyRequest{Items: []*pb.ApplyItem{{Spec: full, Etag: "new"}, {Spec: newSpec("b")}}, ValidateOnly: true, RequestId: "a"},
		&pb.ApplyRequest{Items: []*pb.ApplyItem{{Spec: newSpec("orders")}, {}}},
		&pb.GetRequest{Name: "orders"}, &pb.ListRequest{Namespace: "*", Selector: "team=payments,!x", PageSize: 1, PageToken: "a/b"},
		&pb.DeleteRequest{Target: one, Force: true}, &pb.StartRequest{Target: one, Options: options},
		&pb.PauseRequest{Target: everyone, Hold: "night", End: &pb.PauseRequest_For{For: durationpb.New(-1)}},
		&pb.PauseRequest{Target: one, End: &pb.PauseRequest_Until{Until: &timestamppb.Timestamp{Seconds: 1 << 60, Nanos: -1}}},
		&pb.ResumeRequest{Target: one, AllHolds: true},
		&pb.DrainRequest{Target: one, Mode: pb.DrainMode_DRAIN_MODE_BACKLOG, BacklogTimeout: durationpb.New(1), Then: pb.DrainThen_DRAIN_THEN_PAUSED},
		&pb.StopRequest{Target: &pb.Target{Selector: "a in (b)"}, Soft: durationpb.New(time.Hour), Hard: durationpb.New(1)},
		&pb.RestartRequest{Target: one, Hard: &durationpb.Duration{Seconds: 1 << 62}}, &pb.KillRequest{Target: one},
		&pb.ScaleRequest{Target: one, To: &pb.ScaleRequest_Concurrency{Concurrency: 1 << 30}},
		&pb.ListInFlightRequest{Name: "orders", Limit: -1, OlderThan: durationpb.New(-1)},
		&pb.CancelInFlightRequest{Name: "orders", MessageId: "x"}, &pb.ListReceiptsRequest{Name: "orders", Id: "\x00"},
		&pb.ListTransitionsRequest{Name: "../orders", Limit: 1 << 30}, &pb.GetServerInfoRequest{},
	}
}

// FuzzRequests sends any bytes to any call of a running server. Whatever comes
// is answered in time with a result or an error that says why; nothing panics,
// and the server still moves consumers afterwards.
func FuzzRequests(f *testing.F) {
	all := methods(f)
	for _, m := range seeds() {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		for i, method := range all {
			if method.Input().FullName() == m.ProtoReflect().Descriptor().FullName() {
				f.Add(uint8(i), b)
			}
		}
	}
	f.Add(uint8(0), []byte("\x0a\xff\xff\xff\xff\x0f not protobuf"))
	r := newRig(f)
	r.apply("control")
	conn := r.dial()
	f.Fuzz(func(t *testing.T, which uint8, body []byte) {
		method := all[int(which)%len(all)]
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		reply := newMessage(t, method.Output())
		name := "/" + string(method.Parent().FullName()) + "/" + string(method.Name())
		err := conn.Invoke(ctx, name, &body, reply, grpc.ForceCodec(raw{}))
		switch c := status.Code(err); {
		case c == codes.OK:
		case c == codes.Internal && proto.Unmarshal(body, newMessage(t, method.Input())) != nil:
			// grpc's own answer to what is no message.
		case c == codes.Unknown, c == codes.Internal, c == codes.DeadlineExceeded, c == codes.Unavailable:
			t.Errorf("%s: %v\nthe log: %s", name, err, r.logged)
		default:
			if infoOf(t, err).GetReason() == "UNSPECIFIED" {
				t.Errorf("%s: no reason: %v", name, err)
			}
		}
		if l := r.logged.String(); strings.Contains(l, "panic") {
			t.Fatalf("%s: %s", name, l)
		}
	})
}

// raw sends bytes as they are, and reads protobuf.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) ([]byte, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, status.Errorf(codes.Internal, "no bytes but %T", v)
	}
	return *b, nil
}

func (raw) Unmarshal(b []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "no message but %T", v)
	}
	return proto.Unmarshal(b, m)
}
