package textform_test

import (
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/proto/textform"
)

func TestEncode(t *testing.T) {
	m := &supervisorv1.Consumer{
		Spec: &supervisorv1.ConsumerSpec{
			Name:        "orders",
			Labels:      map[string]string{"z": "1.10", "a": "yes", "m": "<&>\n"},
			Handler:     &supervisorv1.Handler{Timeout: durationpb.New(2 * time.Hour), Kind: &supervisorv1.Handler_Log{Log: &supervisorv1.LogHandler{}}},
			Concurrency: proto.Int32(0),
			Ordering:    supervisorv1.Ordering_ORDERING_KEY,
			MaxInFlight: &supervisorv1.MaxInFlight{Bytes: proto.Int64(64 << 20)},
			Source:      &supervisorv1.Source{Broker: &supervisorv1.Source_Nats{Nats: &supervisorv1.NatsSource{FilterSubjects: []string{"a.>", "*"}}}},
		},
		Status:     &supervisorv1.Status{Rate: 340, InFlightBytes: 1000, State: supervisorv1.State(77)},
		Generation: 1 << 60,
		Created:    timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 600e6, time.UTC)),
	}
	wantEncoded(t, must(textform.EncodeYAML(m)), `spec:
  name: orders
  labels:
    a: "yes"
    m: "<&>\n"
    z: "1.10"
  source:
    nats:
      filter_subjects:
        - a.>
        - '*'
  handler:
    timeout: 2h
    log: {}
  concurrency: 0
  ordering: KEY
  max_in_flight:
    bytes: 64MiB
status:
  state: 77
  in_flight_bytes: 1000
  rate: 340
generation: 1152921504606846976
created: "2026-01-02T03:04:05.6Z"
`)
	wantEncoded(t, must(textform.EncodeJSON(m, textform.Compact)), `{"spec":{"name":"orders","labels":{"a":"yes","m":"<&>\n","z":"1.10"},`+
		`"source":{"nats":{"filter_subjects":["a.>","*"]}},"handler":{"timeout":"2h","log":{}},"concurrency":0,"ordering":"KEY",`+
		`"max_in_flight":{"bytes":"64MiB"}},"status":{"state":77,"in_flight_bytes":1000,"rate":340},"generation":1152921504606846976,`+
		`"created":"2026-01-02T03:04:05.6Z"}`+"\n")
	wantEncoded(t, must(textform.EncodeJSON(&supervisorv1.Lag{Messages: 3})), "{\n  \"messages\": 3\n}\n")
	wantEncoded(t, must(textform.EncodeYAML(&supervisorv1.Lag{})), "{}\n")
}

func TestEncodeUnpopulated(t *testing.T) {
	m := &supervisorv1.Status{Rate: math.NaN(), Oldest: &durationpb.Duration{Seconds: 300_000_000_000}}
	wantEncoded(t, must(textform.EncodeJSON(m, textform.Unpopulated, textform.Compact)), `{"state":"UNSPECIFIED","phase":"","reason":"","since":null,"conditions":[],`+
		`"in_flight":0,"in_flight_bytes":0,"running":0,"concurrency":0,"oldest":"300000000000s0ns","lag":null,"rate":"NaN","counters":null,"epoch":0,`+
		`"attempt":0,"next_attempt":null,"soft_deadline":null,"hard_deadline":null,"leaked_handlers":0,"capabilities":null,"last_receipt":"","revision":0}`+"\n")
	wantEncoded(t, must(textform.EncodeYAML(&supervisorv1.LaneKey{}, textform.Unpopulated)), "{}\n")
}

func TestFormatValue(t *testing.T) {
	m := (&supervisorv1.NatsSource{
		Stream: "", FilterSubjects: []string{"a", "b"}, Manage: supervisorv1.NatsManage_NATS_MANAGE_VERIFY,
		PullMaxBytes: proto.Int64(1 << 20), AckWait: durationpb.New(90 * time.Second), MaxAckPending: proto.Int32(7),
	}).ProtoReflect()
	for field, want := range map[string]string{
		"stream": `""`, "filter_subjects": "[a, b]", "manage": "VERIFY", "pull_max_bytes": "1MiB", "ack_wait": "1m30s", "max_ack_pending": "7",
	} {
		fd := m.Descriptor().Fields().ByTextName(field)
		if got := textform.FormatValue(fd, m.Get(fd)); got != want {
			t.Errorf("%s is %s, want %s", field, got, want)
		}
	}
}

func wantEncoded(t *testing.T, encoded func(fatal) []byte, want string) {
	t.Helper()
	if got := string(encoded(t)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
