package nats

import (
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/seed-111f5b8e/supervisord/brokers"
	supervisorv1 "github.com/seed-111f5b8e/supervisord/proto/supervisor/v1"
)

// CheckConnection reports the faults of a connection's nats section.
func (Driver) CheckConnection(c *supervisorv1.Connection) []brokers.Fault {
	cfg := c.GetNats()
	if cfg == nil {
		return []brokers.Fault{brokers.Faultf("nats", "is missing; name urls, or set embedded: true")}
	}
	var f faults
	if cfg.GetEmbedded() {
		f.checkEmbedded(cfg)
	} else {
		f.checkURLs(cfg)
	}
	f.checkAuth(cfg.GetAuth())
	f.checkTLS(cfg)
	return f
}

type faults []brokers.Fault

func (f *faults) addf(path, format string, args ...any) {
	*f = append(*f, brokers.Faultf(path, format, args...))
}

func (f *faults) checkEmbedded(cfg *supervisorv1.NatsConnection) {
	if len(cfg.GetUrls()) > 0 {
		f.addf("nats.urls", "has no use with embedded: true; remove one of the two")
	}
	if cfg.GetAuth() != nil {
		f.addf("nats.auth", "has no use with embedded: true, whose server takes this process as it is; remove it")
	}
	if cfg.GetTls() != nil {
		f.addf("nats.tls", "has no use with embedded: true, which does not leave this process; remove it")
	}
	if cfg.GetListen() == "" {
		return
	}
	if _, _, err := loopback(cfg.GetListen()); err != "" {
		f.addf("nats.listen", "%s; give a loopback address and a port, 127.0.0.1:4222", err)
	}
}

// loopback splits a listen address. The third result says what is wrong: the
// embedded server authenticates nobody, so that it must not leave this machine.
func loopback(addr string) (host string, port int, fault string) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, "is no address with a port"
	}
	port, err = strconv.Atoi(p)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, "has no valid port"
	}
	ip := net.ParseIP(host)
	if host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", 0, "is not on the loopback interface"
	}
	if port == 0 {
		port = -1 // the server's word for "any"
	}
	return host, port, ""
}

func (f *faults) checkURLs(cfg *supervisorv1.NatsConnection) {
	if cfg.GetListen() != "" {
		f.addf("nats.listen", "has a use with embedded: true only; remove it")
	}
	if len(cfg.GetUrls()) == 0 {
		f.addf("nats.urls", "is empty; name at least one server (nats://host:4222), or set embedded: true")
	}
	for i, raw := range cfg.GetUrls() {
		path := "nats.urls[" + strconv.Itoa(i) + "]"
		u, err := url.Parse(raw)
		switch {
		case err != nil || u.Hostname() == "":
			// The text is not repeated: it may hold a password.
			f.addf(path, "is no URL; write nats://host:4222 or tls://host:4222")
		case u.User != nil:
			f.addf(path, "holds credentials; put them into nats.auth as env:NAME or file:PATH")
		case u.Scheme != "nats" && u.Scheme != "tls":
			f.addf(path, "has the scheme %q; use nats or tls", u.Scheme)
		}
	}
}

func (f *faults) checkAuth(a *supervisorv1.NatsAuth) {
	if a == nil {
		return
	}
	ways := 0
	for _, set := range []bool{a.GetUser() != "" || a.GetPassword() != "", a.GetToken() != "", a.GetCredentialsFile() != ""} {
		if set {
			ways++
		}
	}
	if ways != 1 {
		f.addf("nats.auth", "has %d ways to sign in; give one of user and password, token, credentials_file", ways)
	}
	if (a.GetUser() == "") != (a.GetPassword() == "") {
		f.addf("nats.auth", "has only one of user and password; give both")
	}
	f.checkSecret("nats.auth.password", a.GetPassword())
	f.checkSecret("nats.auth.token", a.GetToken())
}

func (f *faults) checkSecret(path, ref string) {
	if ref != "" && !strings.HasPrefix(ref, "env:") && !strings.HasPrefix(ref, "file:") {
		f.addf(path, "is written in clear; use env:NAME or file:PATH")
	}
}

func (f *faults) checkTLS(cfg *supervisorv1.NatsConnection) {
	t := cfg.GetTls()
	if t != nil && (t.GetCertFile() == "") != (t.GetKeyFile() == "") {
		f.addf("nats.tls", "has only one of cert_file and key_file; give both")
	}
}
