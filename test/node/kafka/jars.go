package kafka

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// pom pins what is fetched.
//
//go:embed pom.xml
var pom []byte

// ErrNotInstalled means that Java or Maven is missing on this machine.
var ErrNotInstalled = errors.New("the broker Kafka needs Java 17 and Maven: run \"go run ./test/brokers install\"")

// Installed is nil or ErrNotInstalled; the jars are Jars' matter.
func Installed() error {
	for _, program := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w (%w)", ErrNotInstalled, err)
		}
	}
	return nil
}

// Jars returns the folder of Kafka's jars, in the user's cache, and fetches them
// with Maven when they are not there: once, however many processes ask.
func Jars(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("folder for Kafka's jars: %w", err)
	}
	sum := sha256.Sum256(pom)
	dir := filepath.Join(cache, "supervisord-test", fmt.Sprintf("kafka-%x", sum[:6]))
	jars := filepath.Join(dir, "jars")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("folder for Kafka's jars: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", fmt.Errorf("lock of Kafka's jars: %w", err)
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock of Kafka's jars: %w", err)
	}
	if _, err := os.Stat(jars); err == nil {
		return jars, nil
	}
	return jars, fetch(ctx, dir, jars)
}

// fetch fills another folder first: what has its last name is whole.
func fetch(ctx context.Context, dir, jars string) error {
	if err := Installed(); err != nil {
		return err
	}
	file, part := filepath.Join(dir, "pom.xml"), jars+".part"
	if err := errors.Join(os.RemoveAll(part), os.WriteFile(file, pom, 0o600)); err != nil {
		return fmt.Errorf("fetch Kafka: %w", err)
	}
	c := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", file, "dependency:copy-dependencies",
		"-DincludeScope=runtime", "-DoutputDirectory="+part)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("fetch Kafka: %s: %w\n%s", c, err, out)
	}
	if err := os.Rename(part, jars); err != nil {
		return fmt.Errorf("fetch Kafka: %w", err)
	}
	return nil
}

// versionOf reads Kafka's version off its main jar: the broker does not tell.
func versionOf(jars string) (string, error) {
	const prefix = "kafka_2.13-"
	found, err := filepath.Glob(filepath.Join(jars, prefix+"*.jar"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("%s has %d jars of Kafka, want one: delete the folder (%w)", jars, len(found), err)
	}
	return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(found[0]), prefix), ".jar"), nil
}

// Version of the Kafka that Start runs; its jars are fetched when missing.
func Version(ctx context.Context) (string, error) {
	jars, err := Jars(ctx)
	if err != nil {
		return "", err
	}
	return versionOf(jars)
}
