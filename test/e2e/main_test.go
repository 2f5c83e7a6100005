package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// serverEnv makes this test binary a NATS server: the port; the next argument
// is the folder.
const serverEnv = "E2E_NATS_SERVER"

// bin holds the programs under test.
var bin struct{ supervisord, supctl string } //nolint:gochecknoglobals // set once by TestMain

func TestMain(m *testing.M) {
	if port := os.Getenv(serverEnv); port != "" {
		runServer(port, os.Getenv(serverEnv+"_DIR"))
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
	return m.Run(), nil
}

// runServer is a JetStream server until it is killed.
func runServer(port, dir string) {
	n, err := strconv.Atoi(port)
	if err != nil {
		panic(err)
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: n, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true,
	})
	if err != nil {
		panic(err)
	}
	s.Start()
	s.WaitForShutdown()
}
