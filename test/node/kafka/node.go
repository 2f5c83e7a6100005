// Package kafka runs a real Kafka on loopback: one process that is broker and
// controller, from the published jars, with a folder and ports of its own.
package kafka

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/seed-111f5b8e/supervisord/test/node"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Who may sign in on the SASL listener, by PLAIN and by SCRAM-SHA-256 and -512.
// On the plain listener everybody is an administrator.
const (
	User     = "user"
	Password = "secret"
)

// Options of a node; only Dir is needed.
type Options struct {
	// Dir holds the node's data, made when missing. A node started on the folder
	// of an earlier one, with its options, goes on where that ended.
	Dir string
	// Port of the plain and of the SASL listener; 0 is a free one.
	Port, SASLPort int
	// Config is appended to the broker's properties.
	Config []string
	// Detached: it outlives this process.
	Detached bool
}

// patience is how long an administrative request is tried.
const patience = 10 * time.Second

// Node is one Kafka. Its methods are safe for concurrent use.
type Node struct {
	o          Options
	controller int
	jars       string
	version    string
	server     *node.Process
}

// Start runs a node and returns when it serves and groups can meet on it, in
// about five seconds; the first time on a machine its jars are fetched.
func Start(ctx context.Context, o Options) (*Node, error) {
	n, err := prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := n.format(ctx); err != nil {
		return nil, err
	}
	if err := n.Restart(ctx); err != nil {
		return nil, err
	}
	return n, nil
}

func prepare(ctx context.Context, o Options) (*Node, error) {
	jars, err := Jars(ctx)
	if err != nil {
		return nil, err
	}
	version, err := versionOf(jars)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil || o.Dir == "" {
		return nil, fmt.Errorf("folder %q of the node: %w", o.Dir, err)
	}
	n := &Node{o: o, jars: jars, version: version}
	n.o.Dir = dir
	for _, port := range []*int{&n.o.Port, &n.o.SASLPort, &n.controller} {
		if *port != 0 {
			continue
		}
		if *port, err = node.FreePort(); err != nil {
			return nil, err
		}
	}
	if err := n.write(); err != nil {
		return nil, fmt.Errorf("configure Kafka: %w", err)
	}
	n.server = node.New(node.Command{
		Path: "java", Args: n.java("kafka.Kafka", n.path("server.properties")), Dir: dir, Detached: o.Detached, Ready: n.ready,
	})
	return n, nil
}

func (n *Node) path(file string) string { return filepath.Join(n.o.Dir, file) }

// java is for a quick start and a small process, not for speed.
func (n *Node) java(main string, args ...string) []string {
	return append([]string{
		"-Xms64m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dlog4j2.configurationFile=" + n.path("log4j2.properties"), "-cp", n.jars + "/*", main,
	}, args...)
}

const logging = `rootLogger.level=WARN
rootLogger.appenderRef.out.ref=OUT
appender.out.name=OUT
appender.out.type=Console
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %m (%c)%n
`

func (n *Node) write() error {
	if err := os.MkdirAll(n.o.Dir, 0o700); err != nil {
		return err
	}
	listeners := fmt.Sprintf("PLAINTEXT://127.0.0.1:%d,SASL_PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d",
		n.o.Port, n.o.SASLPort, n.controller)
	const scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
	conf := []string{
		"process.roles=broker,controller",
		"node.id=1",
		fmt.Sprintf("controller.quorum.bootstrap.servers=127.0.0.1:%d", n.controller),
		"controller.listener.names=CONTROLLER",
		"inter.broker.listener.name=PLAINTEXT",
		"listeners=" + listeners,
		"advertised.listeners=" + listeners,
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
		"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		"listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config=" + scram,
		"listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config=" + scram,
		fmt.Sprintf("listener.name.sasl_plaintext.plain.sasl.jaas.config="+
			"org.apache.kafka.common.security.plain.PlainLoginModule required user_%s=%q;", User, Password),
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"allow.everyone.if.no.acl.found=true",
		"super.users=User:ANONYMOUS",
		"log.dirs=" + n.path("data"),
		"auto.create.topics.enable=false",
		"offsets.topic.replication.factor=1",
		"offsets.topic.num.partitions=4",
		"transaction.state.log.replication.factor=1",
		"transaction.state.log.min.isr=1",
		"transaction.state.log.num.partitions=4",
		"share.coordinator.state.topic.replication.factor=1",
		"share.coordinator.state.topic.min.isr=1",
		"share.coordinator.state.topic.num.partitions=4",
		// Groups of tests meet at once, and miss a member soon.
		"group.initial.rebalance.delay.ms=0",
		"group.min.session.timeout.ms=1000",
		"group.consumer.min.session.timeout.ms=1000",
		"group.consumer.min.heartbeat.interval.ms=100",
		// A broker that was killed registers again once the old one is given up.
		"broker.session.timeout.ms=3000",
		"broker.heartbeat.interval.ms=500",
		"log.cleaner.dedupe.buffer.size=10485760",
	}
	return errors.Join(
		os.WriteFile(n.path("server.properties"), []byte(strings.Join(append(conf, n.o.Config...), "\n")+"\n"), 0o600),
		os.WriteFile(n.path("log4j2.properties"), []byte(logging), 0o600),
	)
}

// format makes the data folder, unless it is there.
func (n *Node) format(ctx context.Context) error {
	_, err := os.Stat(n.path("data/meta.properties"))
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var id [16]byte
	_, _ = rand.Read(id[:])
	args := []string{
		"format", "--cluster-id", base64.RawURLEncoding.EncodeToString(id[:]),
		"--config", n.path("server.properties"), "--standalone",
	}
	for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
		args = append(args, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", mechanism, User, Password))
	}
	c := exec.CommandContext(ctx, "java", n.java("kafka.tools.StorageTool", args...)...)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("format Kafka's folder: %w\n%s", err, out)
	}
	return nil
}

// ready: it answers, is its own leader again, and serves groups.
func (n *Node) ready(ctx context.Context) error {
	return n.admin(func(a *kadm.Client) error {
		found := a.FindGroupCoordinators(ctx, "ready")
		if err := found.Error(); err != nil {
			return err
		}
		topics, err := a.ListTopicsWithInternal(ctx)
		if err != nil {
			return err
		}
		for _, t := range topics {
			for _, p := range t.Partitions {
				if p.Err != nil || p.Leader < 0 {
					return fmt.Errorf("%s/%d has no leader: %w", t.Topic, p.Partition, p.Err)
				}
			}
		}
		return nil
	})
}

// admin lends an administrator's client; nothing of it is left behind.
func (n *Node) admin(use func(*kadm.Client) error) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(n.Broker()), kgo.RetryTimeout(patience))
	if err != nil {
		return fmt.Errorf("client of Kafka: %w", err)
	}
	defer c.Close()
	return use(kadm.NewClient(c))
}

// Broker is the plain listener, HOST:PORT.
func (n *Node) Broker() string { return "127.0.0.1:" + strconv.Itoa(n.o.Port) }

// SASLBroker is the listener that wants User and Password.
func (n *Node) SASLBroker() string { return "127.0.0.1:" + strconv.Itoa(n.o.SASLPort) }

// Version of the server.
func (n *Node) Version() string { return n.version }

// PIDs of its processes.
func (n *Node) PIDs() []int { return []int{n.server.PID()} }

// Output is the file with the server's log.
func (n *Node) Output() string { return n.server.Output() }

// Kill ends it with SIGKILL. Data, options and ports are kept for Restart.
func (n *Node) Kill() { n.server.Kill() }

// Restart starts a killed node again, with its data.
func (n *Node) Restart(ctx context.Context) error {
	if err := n.server.Start(ctx); err != nil {
		return fmt.Errorf("start Kafka: %w", err)
	}
	return nil
}

// Freeze stops the server, connections and all, until Thaw.
func (n *Node) Freeze() { n.server.Freeze() }

// Thaw lets it go on.
func (n *Node) Thaw() { n.server.Thaw() }
