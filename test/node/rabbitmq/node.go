// Package rabbitmq runs a real RabbitMQ on loopback, with a folder, ports, an
// Erlang cookie and a port mapper (epmd) of its own, so that nodes side by side
// do not meet.
package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/seed-111f5b8e/supervisord/test/node"
)

// The administrator of every node.
const (
	User     = "guest"
	Password = "guest"
)

// home is where the Debian package rabbitmq-server puts its programs.
const home = "/usr/lib/rabbitmq/bin"

// name is the same for all nodes: each is alone with its port mapper.
const name = "rabbit@localhost"

// ErrNotInstalled means that there is no RabbitMQ on this machine.
var ErrNotInstalled = errors.New("RabbitMQ is not installed: run \"go run ./test/brokers install\"")

// Installed is nil or ErrNotInstalled.
func Installed() error {
	if _, err := os.Stat(filepath.Join(home, "rabbitmq-server")); err != nil {
		return fmt.Errorf("%w (%w)", ErrNotInstalled, err)
	}
	return nil
}

// Options of a node; only Dir is needed.
type Options struct {
	// Dir holds the node's data, made when missing. A node started on the folder
	// of an earlier one, with its options, goes on where that ended.
	Dir string
	// Port of AMQP and of the HTTP API; 0 is a free one.
	Port, ManagementPort int
	// CAFile, CertFile and KeyFile: a listener for TLS beside the plain one. Peers
	// with a certificate must have it from this authority.
	CAFile, CertFile, KeyFile string
	// Config is appended to rabbitmq.conf.
	Config []string
	// Detached: it outlives this process.
	Detached bool
}

// Node is one RabbitMQ. Its methods are safe for concurrent use.
type Node struct {
	o                       Options
	tlsPort, dist, epmdPort int
	epmd, server            *node.Process
	version                 string
}

// Start runs a node and returns when it serves, in about five seconds.
func Start(ctx context.Context, o Options) (*Node, error) {
	n, err := prepare(o)
	if err != nil {
		return nil, err
	}
	if err := n.Restart(ctx); err != nil {
		return nil, err
	}
	return n, nil
}

func prepare(o Options) (*Node, error) {
	if err := Installed(); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil || o.Dir == "" {
		return nil, fmt.Errorf("folder %q of the node: %w", o.Dir, err)
	}
	n := &Node{o: o}
	n.o.Dir = dir
	for _, port := range []*int{&n.o.Port, &n.o.ManagementPort, &n.tlsPort, &n.dist, &n.epmdPort} {
		if *port != 0 {
			continue
		}
		if *port, err = node.FreePort(); err != nil {
			return nil, err
		}
	}
	if err := n.write(); err != nil {
		return nil, fmt.Errorf("configure RabbitMQ: %w", err)
	}
	n.epmd = node.New(node.Command{
		Path: "epmd", Args: []string{"-port", strconv.Itoa(n.epmdPort), "-address", "127.0.0.1"},
		Dir: filepath.Join(dir, "epmd"), Detached: o.Detached, Ready: n.epmdReady,
	})
	n.server = node.New(node.Command{
		Path: filepath.Join(home, "rabbitmq-server"), Env: n.env(), Dir: dir, Detached: o.Detached, Ready: n.ready,
	})
	return n, nil
}

func (n *Node) write() error {
	conf := []string{
		"listeners.tcp.1 = 127.0.0.1:" + strconv.Itoa(n.o.Port),
		"management.tcp.ip = 127.0.0.1",
		"management.tcp.port = " + strconv.Itoa(n.o.ManagementPort),
		"default_user = " + User,
		"default_pass = " + Password,
		"log.console.level = info",
		"collect_statistics_interval = 500",
	}
	if n.o.CertFile != "" {
		conf = append(conf,
			"listeners.ssl.1 = 127.0.0.1:"+strconv.Itoa(n.tlsPort),
			"ssl_options.cacertfile = "+n.o.CAFile, "ssl_options.certfile = "+n.o.CertFile, "ssl_options.keyfile = "+n.o.KeyFile,
			"ssl_options.verify = verify_peer", "ssl_options.fail_if_no_peer_cert = false")
	}
	files := map[string]string{
		"rabbitmq.conf":   strings.Join(append(conf, n.o.Config...), "\n") + "\n",
		"enabled_plugins": "[rabbitmq_management].\n",
	}
	if err := os.MkdirAll(filepath.Join(n.o.Dir, "epmd"), 0o700); err != nil {
		return err
	}
	for file, text := range files {
		if err := os.WriteFile(n.path(file), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) path(file string) string { return filepath.Join(n.o.Dir, file) }

// env points the server, and rabbitmqctl, at this node and away from what the
// package configured for the whole machine.
func (n *Node) env() []string {
	return []string{
		"HOME=" + n.o.Dir,
		"ERL_EPMD_PORT=" + strconv.Itoa(n.epmdPort),
		"ERL_EPMD_ADDRESS=127.0.0.1",
		"RABBITMQ_NODENAME=" + name,
		"RABBITMQ_CONF_ENV_FILE=/dev/null",
		"RABBITMQ_CONFIG_FILE=" + n.path("rabbitmq.conf"),
		"RABBITMQ_ADVANCED_CONFIG_FILE=" + n.path("advanced.config"), // none
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + n.path("enabled_plugins"),
		"RABBITMQ_MNESIA_BASE=" + n.path("data"),
		"RABBITMQ_LOG_BASE=" + n.path("log"),
		"RABBITMQ_LOGS=-",
		"RABBITMQ_DIST_PORT=" + strconv.Itoa(n.dist),
		// The script becomes the server, so that signals reach it.
		"RABBITMQ_ALLOW_INPUT=1",
		"RABBITMQ_SERVER_START_ARGS=-noinput -kernel inet_dist_use_interface {127,0,0,1}",
	}
}

func (n *Node) epmdReady(ctx context.Context) error {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(n.epmdPort)))
	if err != nil {
		return err
	}
	return c.Close()
}

// ready opens a connection as any client would: the listener comes last.
func (n *Node) ready(ctx context.Context) error {
	c, err := amqp.DialConfig(n.DialURL(), amqp.Config{Dial: func(network, addr string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}})
	if err != nil {
		return err
	}
	if err := c.Close(); err != nil {
		return err
	}
	var overview struct {
		Version string `json:"rabbitmq_version"`
	}
	if err := n.call(ctx, "GET", &overview, nil, "overview"); err != nil {
		return err
	}
	n.version = overview.Version
	return nil
}

// URL is where it listens, without credentials.
func (n *Node) URL() string { return "amqp://127.0.0.1:" + strconv.Itoa(n.o.Port) }

// DialURL is URL with the administrator's credentials and the default vhost.
func (n *Node) DialURL() string {
	return "amqp://" + User + ":" + Password + "@127.0.0.1:" + strconv.Itoa(n.o.Port) + "/"
}

// TLSURL is where it listens for TLS, as 127.0.0.1, if it was given a certificate.
func (n *Node) TLSURL() string { return "amqps://127.0.0.1:" + strconv.Itoa(n.tlsPort) }

// ManagementURL is the web console, for the administrator.
func (n *Node) ManagementURL() string {
	return "http://127.0.0.1:" + strconv.Itoa(n.o.ManagementPort)
}

// Version of the server.
func (n *Node) Version() string { return n.version }

// PIDs of the server and of its port mapper.
func (n *Node) PIDs() []int { return []int{n.server.PID(), n.epmd.PID()} }

// Output is the file with the server's log.
func (n *Node) Output() string { return n.server.Output() }

// Kill ends it with SIGKILL. Data, options and ports are kept for Restart; see
// Flush for what a kill loses in RabbitMQ itself.
func (n *Node) Kill() {
	n.server.Kill()
	n.epmd.Kill()
}

// Restart starts a killed node again, with its data.
func (n *Node) Restart(ctx context.Context) error {
	if err := n.epmd.Start(ctx); err != nil {
		return fmt.Errorf("port mapper: %w", err)
	}
	if err := n.server.Start(ctx); err != nil {
		n.Kill()
		return fmt.Errorf("RabbitMQ: %w", err)
	}
	return nil
}

// Freeze stops the server, connections and all, until Thaw.
func (n *Node) Freeze() { n.server.Freeze() }

// Thaw lets it go on.
func (n *Node) Thaw() { n.server.Thaw() }
