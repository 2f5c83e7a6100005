package kafka

import (
	"net"
	"strconv"
	"strings"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// CheckConnection reports the faults of a connection's kafka section.
func (Driver) CheckConnection(c *supervisorv1.Connection) []brokers.Fault {
	cfg := c.GetKafka()
	if cfg == nil {
		return []brokers.Fault{brokers.Faultf("kafka", "is missing; name at least one broker")}
	}
	var f faults
	f.checkBrokers(cfg.GetBrokers())
	f.checkAuth(cfg.GetAuth())
	if t := cfg.GetTls(); t != nil && (t.GetCertFile() == "") != (t.GetKeyFile() == "") {
		f.addf("kafka.tls", "has only one of cert_file and key_file; give both")
	}
	return f
}

type faults []brokers.Fault

func (f *faults) addf(path, format string, args ...any) {
	*f = append(*f, brokers.Faultf(path, format, args...))
}

func (f *faults) checkBrokers(list []string) {
	if len(list) == 0 {
		f.addf("kafka.brokers", "is empty; name at least one broker to start from (host:9092)")
	}
	for i, b := range list {
		path := "kafka.brokers[" + strconv.Itoa(i) + "]"
		host, port, err := net.SplitHostPort(b)
		n, portErr := strconv.ParseUint(port, 10, 16)
		switch {
		case strings.Contains(b, "://") || strings.Contains(b, "@"):
			// The text is not repeated: it may hold a password.
			f.addf(path, "is a URL; write host:9092, credentials go to kafka.auth")
		case err != nil || host == "":
			f.addf(path, "%q is no address with a port; write host:9092", b)
		case portErr != nil || n == 0:
			f.addf(path, "%q has no valid port; write host:9092", b)
		}
	}
}

func (f *faults) checkAuth(a *supervisorv1.KafkaAuth) {
	if a == nil {
		return
	}
	if a.GetUser() == "" || a.GetPassword() == "" {
		f.addf("kafka.auth", "has not both user and password; give both, or remove auth")
	}
	if p := a.GetPassword(); p != "" && !strings.HasPrefix(p, "env:") && !strings.HasPrefix(p, "file:") {
		f.addf("kafka.auth.password", "is written in clear; use env:NAME or file:PATH")
	}
}
