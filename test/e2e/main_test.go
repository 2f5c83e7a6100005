package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-111f5b8e/supervisord/brokers"
	"github.com/seed-111f5b8e/supervisord/brokers/kafka"
	"github.com/seed-111f5b8e/supervisord/brokers/nats"
	"github.com/seed-111f5b8e/supervisord/brokers/rabbitmq"
	"github.com/seed-111f5b8e/supervisord/supervisor"
	"github.com/seed-111f5b8e/supervisord/supervisor/daemon"
)

// ledgerEnv makes this test binary a supervisord of its own, with a Go handler
// that ignores its context: the ledger's address.
const ledgerEnv = "E2E_LEDGER"

// bin holds the programs under test.
var bin struct{ supervisord, supctl string } //nolint:gochecknoglobals // set once by TestMain

func TestMain(m *testing.M) {
	if port := os.Getenv(serverEnv); port != "" {
		runServer(port, os.Getenv(serverEnv+"_DIR"))
		return
	}
	if url := os.Getenv(ledgerEnv); url != "" {
		runDaemon(url)
		return
	}
	code, err := build(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(code)
}

func build(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "e2e-bin-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
	bin.supervisord, bin.supctl = filepath.Join(dir, "supervisord"), filepath.Join(dir, "supctl")
	for path, pkg := range map[string]string{bin.supervisord: "../../cmd/supervisord", bin.supctl: "../../cmd/supctl"} {
		c := exec.CommandContext(context.Background(), "go", "build", "-race", "-o", path, pkg)
		if out, err := c.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
	}
	defer shared.stop()
	return m.Run(), nil
}

// runDaemon is a supervisord with the handler "deaf", which waits for the
// ledger whatever happens to its context.
func runDaemon(url string) {
	deaf := supervisor.HandlerFunc(func(_ context.Context, m *supervisor.Message) supervisor.Outcome {
		name, _, _ := strings.Cut(string(m.Body), "-")
		resp, err := http.Post(url+"/"+name, "text/plain", bytes.NewReader(m.Body))
		if err != nil {
			return supervisor.Retry(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusNoContent {
			return supervisor.Retry(fmt.Errorf("status %d, %w", resp.StatusCode, err))
		}
		return supervisor.Ack()
	})
	p := daemon.Program{
		Drivers: []brokers.Driver{nats.Driver{}, rabbitmq.Driver{}, kafka.Driver{}}, Handlers: map[string]supervisor.Handler{"deaf": deaf},
	}
	os.Exit(daemon.ExitCode(p.Run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)))
}
