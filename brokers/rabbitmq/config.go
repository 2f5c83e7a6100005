package rabbitmq

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// Defaults and bounds of a RabbitmqConnection; the schema's comments promise them.
const (
	defaultVhost     = "/"
	defaultHeartbeat = 10 * time.Second
	minHeartbeat     = time.Second
	maxHeartbeat     = 10 * time.Minute
	defaultConsumers = 50
	maxConsumers     = 2000
)

// CheckConnection reports the faults of a connection's rabbitmq section.
func (Driver) CheckConnection(c *supervisorv1.Connection) []brokers.Fault {
	cfg := c.GetRabbitmq()
	if cfg == nil {
		return []brokers.Fault{brokers.Faultf("rabbitmq", "is missing; name at least urls")}
	}
	var f faults
	f.checkURLs(cfg)
	f.checkAuth(cfg)
	f.checkTLS(cfg.GetTls())
	if h := cfg.GetHeartbeat(); h != nil {
		d := h.AsDuration()
		if d < minHeartbeat || d > maxHeartbeat || d%time.Second != 0 {
			f.addf("rabbitmq.heartbeat", "is %s; use whole seconds from %s to %s", d, minHeartbeat, maxHeartbeat)
		}
	}
	if n := cfg.GetMaxConsumersPerConnection(); cfg.MaxConsumersPerConnection != nil && (n < 1 || n > maxConsumers) {
		f.addf("rabbitmq.max_consumers_per_connection", "is %d; use 1 to %d", n, maxConsumers)
	}
	return f
}

type faults []brokers.Fault

func (f *faults) addf(path, format string, args ...any) {
	*f = append(*f, brokers.Faultf(path, format, args...))
}

func (f *faults) checkURLs(cfg *supervisorv1.RabbitmqConnection) {
	if len(cfg.GetUrls()) == 0 {
		f.addf("rabbitmq.urls", "is empty; name at least one server (amqp://host:5672)")
	}
	plain := false
	for i, raw := range cfg.GetUrls() {
		path := "rabbitmq.urls[" + strconv.Itoa(i) + "]"
		u, err := url.Parse(raw)
		switch {
		case err != nil || u.Hostname() == "" || u.Opaque != "":
			// The text is not repeated: it may hold a password.
			f.addf(path, "is no URL; write amqp://host:5672 or amqps://host:5671")
		case u.User != nil:
			f.addf(path, "holds credentials; put them into rabbitmq.auth, the password as env:NAME or file:PATH")
		case u.Scheme != "amqp" && u.Scheme != "amqps":
			f.addf(path, "has the scheme %q; use amqp or amqps", u.Scheme)
		case u.Path != "" || u.RawQuery != "" || u.Fragment != "":
			f.addf(path, "has more than host and port; the virtual host goes into rabbitmq.vhost, all else into fields of its own")
		case u.Port() != "" && !isPort(u.Port()):
			f.addf(path, "has no valid port; use 1 to 65535")
		default:
			plain = plain || u.Scheme == "amqp"
		}
	}
	if cfg.GetTls() != nil && plain {
		f.addf("rabbitmq.tls", "has no use with amqp://; write amqps:// in every url, or remove it")
	}
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

func (f *faults) checkAuth(cfg *supervisorv1.RabbitmqConnection) {
	a := cfg.GetAuth()
	user, password := a.GetUser(), a.GetPassword()
	switch {
	case (user == "") != (password == ""):
		f.addf("rabbitmq.auth", "has only one of user and password; give both")
	case user == "" && cfg.GetTls().GetCertFile() == "":
		f.addf("rabbitmq.auth", "is missing; give user and password, or sign in by a client certificate (rabbitmq.tls.cert_file and key_file)")
	case password != "" && !strings.HasPrefix(password, "env:") && !strings.HasPrefix(password, "file:"):
		f.addf("rabbitmq.auth.password", "is written in clear; use env:NAME or file:PATH")
	}
}

func (f *faults) checkTLS(t *supervisorv1.ClientTls) {
	if t != nil && (t.GetCertFile() == "") != (t.GetKeyFile() == "") {
		f.addf("rabbitmq.tls", "has only one of cert_file and key_file; give both")
	}
}

// settings are a checked RabbitmqConnection with its defaults.
type settings struct {
	name      string
	urls      []string
	vhost     string
	user      string
	password  string // a reference
	tls       *supervisorv1.ClientTls
	heartbeat time.Duration
	consumers int
}

func settingsOf(name string, cfg *supervisorv1.RabbitmqConnection) settings {
	s := settings{
		name: name, urls: cfg.GetUrls(), vhost: cfg.GetVhost(), tls: cfg.GetTls(),
		user: cfg.GetAuth().GetUser(), password: cfg.GetAuth().GetPassword(),
		heartbeat: defaultHeartbeat, consumers: defaultConsumers,
	}
	if s.vhost == "" {
		s.vhost = defaultVhost
	}
	if cfg.GetHeartbeat() != nil {
		s.heartbeat = cfg.GetHeartbeat().AsDuration()
	}
	if cfg.MaxConsumersPerConnection != nil {
		s.consumers = int(cfg.GetMaxConsumersPerConnection())
	}
	return s
}
