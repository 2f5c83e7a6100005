package main

import (
	"testing"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func TestParseSeek(t *testing.T) {
	now := time.Date(2026, 12, 24, 18, 0, 0, 0, time.UTC)
	place := func(p pb.SeekTo) *pb.SeekRequest { return &pb.SeekRequest{To: &pb.SeekRequest_Place{Place: p}} }
	at := func(t time.Time) *pb.SeekRequest {
		return &pb.SeekRequest{To: &pb.SeekRequest_Time{Time: timestamppb.New(t)}}
	}
	positions := func(ps ...*pb.Position) *pb.SeekRequest {
		return &pb.SeekRequest{To: &pb.SeekRequest_Positions{Positions: &pb.Positions{Positions: ps}}}
	}
	for in, want := range map[string]*pb.SeekRequest{
		"earliest":             place(pb.SeekTo_SEEK_TO_EARLIEST),
		"Latest":               place(pb.SeekTo_SEEK_TO_LATEST),
		"previous":             place(pb.SeekTo_SEEK_TO_PREVIOUS),
		"3:4711":               positions(&pb.Position{Origin: "3", Position: 4711}),
		"15:30":                positions(&pb.Position{Origin: "15", Position: 30}),
		"orders/3:0, 4:none":   positions(&pb.Position{Origin: "orders/3"}, &pb.Position{Origin: "4", Position: -1}),
		"-2h":                  at(now.Add(-2 * time.Hour)),
		"2026-12-24 17:30":     at(now.Add(-30 * time.Minute)),
		"2026-12-24T17:00:00Z": at(now.Add(-time.Hour)),
	} {
		got := &pb.SeekRequest{}
		if err := parseSeek(in, now, got); err != nil || !proto.Equal(got, want) {
			t.Errorf("%q: %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "yesterday", "3", "3:", ":3", "x:3", "3:-1", "3:4711,latest", "2h", "2026-12-25", "3:99999999999999999999"} {
		if err := parseSeek(in, now, &pb.SeekRequest{}); err == nil {
			t.Errorf("%q was taken", in)
		}
	}
}
