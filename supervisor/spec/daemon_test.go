package spec_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
	"github.com/seed-111f5b8e/supervisord/supervisor/spec"
)

func TestDaemonDefaults(t *testing.T) {
	d, faults := spec.CheckDaemon(nil, drivers())
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	want := &spec.Daemon{
		Connections: map[string]*pb.Connection{}, BytesInFlight: 1 << 30, BytesInFlightPerNamespace: 1 << 30, ConsumersPerNamespace: 10_000,
		Shutdown: spec.Shutdown{Mode: pb.ShutdownMode_SHUTDOWN_MODE_STOP, Soft: 15 * time.Second, Hard: 25 * time.Second},
		HTTP:     &pb.HttpLimits{}, LogLevel: slog.LevelInfo,
	}
	if !equal(d, want) {
		t.Errorf("got %+v, want %+v", d, want)
	}
}

func loadDaemon(yaml string) (*spec.Daemon, error) {
	return spec.LoadDaemon(spec.File{Name: "c", Data: []byte(yaml)}, drivers())
}

func TestDaemonWritten(t *testing.T) {
	t.Setenv("SPEC_TEST_PASSWORD", "x")
	d, err := loadDaemon(`
connections:
- {name: main, nats: {urls: ["nats://a:4222"], auth: {user: u, password: env:SPEC_TEST_PASSWORD}}}
- {name: local, namespaces: [shop], memory: {}}
limits: {bytes_in_flight: 1MiB, consumers_per_namespace: 5}
shutdown: {mode: DRAIN, soft: 1s, hard: 2s}
tls: {cert_file: c, key_file: k, client_ca_file: a}
handlers: {http: {allowed_hosts: [billing.internal, 10.0.0.1, "::1", "[::1]", "a_b."]}}
log: {format: json, level: warn}
`)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Connections) != 2 || d.Connections["main"].GetNats().GetAuth().GetPassword() != "env:SPEC_TEST_PASSWORD" ||
		spec.ConnectionKind(d.Connections["local"]) != "memory" {
		t.Errorf("connections %v", d.Connections)
	}
	if d.BytesInFlight != 1<<20 || d.BytesInFlightPerNamespace != 1<<20 || d.ConsumersPerNamespace != 5 {
		t.Errorf("limits %+v", d)
	}
	if want := (spec.Shutdown{Mode: pb.ShutdownMode_SHUTDOWN_MODE_DRAIN, Soft: time.Second, Hard: 2 * time.Second}); d.Shutdown != want {
		t.Errorf("shutdown %+v", d.Shutdown)
	}
	if *d.TLS != (spec.TLS{CertFile: "c", KeyFile: "k", ClientCAFile: "a"}) || len(d.HTTP.GetAllowedHosts()) != 5 || !d.LogJSON || d.LogLevel != slog.LevelWarn {
		t.Errorf("%+v", d)
	}
}

func TestDaemonFaults(t *testing.T) {
	_, err := loadDaemon(`connections:
- name: main
  nats: {embedded: true, urls: ["nats://a"]}
- name: main
  memory: {}
- name: A_b
  namespaces: [shop, "../x"]
- nats: {urls: []}
limits: {bytes_in_flight: 0, bytes_in_flight_per_namespace: 0, consumers_per_namespace: 0}
shutdown: {soft: 3s, hard: 2s}
tls: {cert_file: c}
handlers: {http: {allowed_hosts: ["http://a", "a:80", ""]}}
log: {format: xml, level: INFO}
conections: []
`)
	wantLines(t, err, []string{
		`c:3:26: connections[0].nats.urls: ...`,
		`c:4:9: connections[1].name: "main" is the name of connections[0] too: give each connection a name of its own`,
		`c:6:3: connections[2]: has no broker: add one of memory, nats`,
		`c:6:9: connections[2].name: "A_b" is no name: write a-z, 0-9 and -, beginning and ending with a letter or digit`,
		`c:7:22: connections[2].namespaces[1]: "../x" is no name: write a-z, 0-9 and -, beginning and ending with a letter or digit`,
		`c:8:3: connections[3].name: is missing: a-z, 0-9 and -, at most 63 characters`,
		`c:8:10: connections[3].nats.urls: ...`,
		`c:9:27: limits.bytes_in_flight: must be more than 0: leave it out for the default of 1GiB`,
		`c:9:61: limits.bytes_in_flight_per_namespace: must be more than 0: leave it out for the default of 1GiB`,
		`c:9:89: limits.consumers_per_namespace: 0 is too small: at least 1`,
		`c:10:18: shutdown.soft: 3s is longer than hard, which is 2s`,
		`c:11:1: tls.key_file: is missing: tls needs cert_file, key_file and client_ca_file, all three`,
		`c:11:1: tls.client_ca_file: is missing: tls needs cert_file, key_file and client_ca_file, all three`,
		`c:12:35: handlers.http.allowed_hosts[0]: "http://a" is no host: write a name or an address, without scheme, port and path`,
		`c:12:47: handlers.http.allowed_hosts[1]: "a:80" is no host: write a name or an address, without scheme, port and path`,
		`c:12:55: handlers.http.allowed_hosts[2]: "" is no host: write a name or an address, without scheme, port and path`,
		`c:13:15: log.format: "xml" is unknown; write text or json`,
		`c:13:27: log.level: "INFO" is unknown; write debug, info, warn or error`,
		`c:14:1: conections: unknown field; did you mean connections?`,
	})
}

func TestDaemonSecrets(t *testing.T) {
	const at = "connections: [{name: a, nats: {urls: [\"nats://a\"], auth: {user: u, password: "
	_, err := loadDaemon(at + "env:SPEC_TEST_UNSET}}}]")
	wantLines(t, err, []string{`c:1:78: connections[0].nats.auth.password: secret is not available: environment variable SPEC_TEST_UNSET is not set`})

	cfg := &pb.DaemonConfig{Connections: []*pb.Connection{{Name: "a", Broker: &pb.Connection_Nats{Nats: &pb.NatsConnection{
		Urls: []string{"nats://a"}, Auth: &pb.NatsAuth{User: "u", Password: "hunter2"},
	}}}}}
	_, faults := spec.CheckDaemon(cfg, drivers())
	wantFaults(t, faults, []string{"connections[0].nats.auth.password: holds a secret: write env:NAME or file:PATH, never the secret itself"})
}

// The examples are right, and stand for each other.
func TestExamples(t *testing.T) {
	dir := filepath.Join("..", "..", "examples", "nats")
	config, err := os.ReadFile(filepath.Join(dir, "supervisord.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := spec.LoadDaemon(spec.File{Name: "supervisord.yaml", Data: config}, drivers())
	if err != nil {
		t.Fatal(err)
	}
	e := env()
	e.Connections = d.Connections
	data, err := os.ReadFile(filepath.Join(dir, "consumer.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := spec.Load([]spec.File{{Name: "consumer.yaml", Data: data}}, e)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 || all[0].Name != "orders" || all[0].Plan.Origin != "stream ORDERS" || all[0].Ordering != pb.Ordering_ORDERING_KEY {
		t.Errorf("read %+v", all)
	}
	_, err = spec.Load([]spec.File{{Name: "f", Data: []byte(strings.Replace(string(data), "shop", "other", 1))}}, e)
	wantLines(t, err, []string{`f:8:15: source.connection: namespace "other" may not use connection "main": its namespaces in the daemon's configuration do not name it`})
}
