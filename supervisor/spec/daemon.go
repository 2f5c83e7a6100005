package spec

import (
	"log/slog"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/seed-111f5b8e/supervisord/brokers"
	pb "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// Defaults and bounds of the daemon's configuration.
const (
	defaultBytesInFlight = 1 << 30
	defaultConsumers     = 10_000
	maxHost              = 253
)

// Daemon is a configuration that passed all checks, with its defaults.
type Daemon struct {
	// Connections by name, as written.
	Connections map[string]*pb.Connection
	// BytesInFlight of all consumers together, and of each namespace.
	BytesInFlight, BytesInFlightPerNamespace int64
	ConsumersPerNamespace                    int
	Shutdown                                 Shutdown
	// TLS of a TCP listen address; nil without.
	TLS *TLS
	// HTTP limits the http handlers; never nil.
	HTTP     *pb.HttpLimits
	LogJSON  bool
	LogLevel slog.Level
}

// Shutdown is the budget of the whole process after SIGTERM.
type Shutdown struct {
	Mode       pb.ShutdownMode
	Soft, Hard time.Duration
}

// TLS names PEM files.
type TLS struct{ CertFile, KeyFile, ClientCAFile string }

// CheckDaemon reports everything that is wrong with a configuration, what the
// drivers find in their connections and secrets that cannot be resolved
// included. It reads the environment and the files of secrets, and connects to
// nothing. nil is an empty configuration.
func CheckDaemon(cfg *pb.DaemonConfig, drivers map[string]brokers.Driver) (*Daemon, []brokers.Fault) {
	if cfg == nil {
		cfg = &pb.DaemonConfig{}
	}
	cfg = proto.CloneOf(cfg)
	c := &checker{}
	c.scrub(cfg.ProtoReflect(), "")
	out := &Daemon{HTTP: &pb.HttpLimits{}}
	out.Connections = c.connections(cfg.GetConnections(), drivers)
	c.limits(out, cfg.GetLimits())
	c.shutdown(out, cfg.GetShutdown())
	c.tls(out, cfg.GetTls())
	c.hosts(out, cfg.GetHandlers().GetHttp())
	c.logging(out, cfg.GetLog())
	c.faults = append(c.faults, Unresolved(cfg)...)
	if len(c.faults) > 0 {
		return nil, c.faults
	}
	return out, nil
}

func (c *checker) connections(all []*pb.Connection, drivers map[string]brokers.Driver) map[string]*pb.Connection {
	byName := make(map[string]*pb.Connection, len(all))
	first := make(map[string]int, len(all))
	for i, conn := range all {
		path := indexed("connections", i)
		c.name(path+".name", conn.GetName())
		if n, twice := first[conn.GetName()]; twice && conn.GetName() != "" {
			c.faultf(path+".name", "%q is the name of %s too: give each connection a name of its own", conn.GetName(), indexed("connections", n))
		} else {
			byName[conn.GetName()], first[conn.GetName()] = conn, i
		}
		for j, ns := range conn.GetNamespaces() {
			c.name(indexed(path+".namespaces", j), ns)
		}
		c.broker(path, conn, drivers)
	}
	return byName
}

// broker asks the driver about its part of a connection.
func (c *checker) broker(path string, conn *pb.Connection, drivers map[string]brokers.Driver) {
	kind := ConnectionKind(conn)
	if kind == "" {
		c.faultf(path, "has no broker: add one of %s", list(drivers))
		return
	}
	driver := drivers[kind]
	if driver == nil {
		c.faultf(path+"."+kind, "this program has no driver for it; it has %s", list(drivers))
		return
	}
	for _, f := range driver.CheckConnection(conn) {
		c.add([]brokers.Fault{{Path: path + "." + f.Path, Message: f.Message}})
	}
}

func (c *checker) limits(out *Daemon, l *pb.Limits) {
	if l == nil {
		l = &pb.Limits{}
	}
	out.BytesInFlight = c.bytes("limits.bytes_in_flight", l.BytesInFlight, defaultBytesInFlight)
	out.BytesInFlightPerNamespace = c.bytes("limits.bytes_in_flight_per_namespace", l.BytesInFlightPerNamespace, out.BytesInFlight)
	out.ConsumersPerNamespace = int(c.count("limits.consumers_per_namespace", l.ConsumersPerNamespace, defaultConsumers, math.MaxInt32))
}

func (c *checker) shutdown(out *Daemon, s *pb.Shutdown) {
	mode := s.GetMode()
	if mode == pb.ShutdownMode_SHUTDOWN_MODE_UNSPECIFIED {
		mode = pb.ShutdownMode_SHUTDOWN_MODE_STOP
	}
	soft, hard := stopSpan().check(c, "shutdown", s.GetSoft(), s.GetHard())
	out.Shutdown = Shutdown{Mode: mode, Soft: soft, Hard: hard}
}

func (c *checker) tls(out *Daemon, t *pb.ServerTls) {
	if t == nil {
		return
	}
	for _, file := range []struct{ path, value string }{
		{"tls.cert_file", t.GetCertFile()}, {"tls.key_file", t.GetKeyFile()}, {"tls.client_ca_file", t.GetClientCaFile()},
	} {
		if file.value == "" {
			c.faultf(file.path, "is missing: tls needs cert_file, key_file and client_ca_file, all three")
		}
	}
	out.TLS = &TLS{CertFile: t.GetCertFile(), KeyFile: t.GetKeyFile(), ClientCAFile: t.GetClientCaFile()}
}

var hostForm = regexp.MustCompile(`^[A-Za-z0-9_]([-A-Za-z0-9_.]*[A-Za-z0-9_.])?$`)

func (c *checker) hosts(out *Daemon, l *pb.HttpLimits) {
	if l == nil {
		return
	}
	for i, host := range l.GetAllowedHosts() {
		_, notAddress := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
		if notAddress != nil && (len(host) > maxHost || !hostForm.MatchString(host)) {
			c.faultf(indexed("handlers.http.allowed_hosts", i), "%q is no host: write a name or an address, without scheme, port and path", clip(host))
		}
	}
	out.HTTP = l
}

func (c *checker) logging(out *Daemon, l *pb.Logging) {
	formats := []string{"text", "json"}
	if f := l.GetFormat(); f != "" && !slices.Contains(formats, f) {
		c.faultf("log.format", "%q is unknown; write %s", clip(f), strings.Join(formats, " or "))
	}
	out.LogJSON = l.GetFormat() == "json"
	switch l.GetLevel() {
	case "debug":
		out.LogLevel = slog.LevelDebug
	case "", "info":
		out.LogLevel = slog.LevelInfo
	case "warn":
		out.LogLevel = slog.LevelWarn
	case "error":
		out.LogLevel = slog.LevelError
	default:
		c.faultf("log.level", "%q is unknown; write debug, info, warn or error", clip(l.GetLevel()))
	}
}
