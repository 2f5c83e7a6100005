// Command brokers installs the brokers that the tests and examples need, and
// runs one of each on loopback, at the usual ports, until told otherwise.
//
//	brokers install   what is missing on this machine; prints versions
//	brokers up        installs, and runs those that do not run
//	brokers down      ends those that run; their data stays
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "brokers:", err)
		os.Exit(1)
	}
}

// data is where the brokers keep what is theirs, under the folder that it is run
// in.
const data = "bin/brokers"

// limit bounds all of it: a first run fetches some hundred megabytes.
const limit = 20 * time.Minute

func run(ctx context.Context, args []string, w io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	act, ok := map[string]func(context.Context, broker, io.Writer) error{
		"install": install, "up": up, "down": down,
	}[strings.Join(args, " ")]
	if !ok {
		return errors.New("usage: brokers install|up|down")
	}
	for _, b := range brokers() {
		if err := act(ctx, b, w); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
	}
	return nil
}

func install(ctx context.Context, b broker, w io.Writer) error {
	if b.present() != nil {
		if err := ensure(ctx, b.packages, w); err != nil {
			return err
		}
		if err := b.present(); err != nil {
			return fmt.Errorf("%s did not bring it: %w", strings.Join(b.packages, " "), err)
		}
	}
	version, err := b.version(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s %s\n", b.name, version)
	return err
}

func up(ctx context.Context, b broker, w io.Writer) error {
	if err := install(ctx, b, w); err != nil {
		return err
	}
	dir := filepath.Join(data, b.name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	s, err := open(dir)
	if err != nil {
		return err
	}
	defer s.close()
	if s.runs() {
		_, err := fmt.Fprintf(w, "%s runs already: %s\n", b.name, s.Where)
		return err
	}
	if err := s.end(); err != nil { // what one that ended left behind
		return err
	}
	if err := free(ctx, b.ports); err != nil {
		return err
	}
	if s.Where, s.PIDs, err = b.start(ctx, dir); err != nil {
		return err
	}
	if err := s.save(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s runs: %s\n", b.name, s.Where)
	return err
}

// free says which port is taken: brokers say it less clearly.
func free(ctx context.Context, ports []int) error {
	for _, port := range ports {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return fmt.Errorf("end the program that has port %d first: %w", port, err)
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}

func down(_ context.Context, b broker, w io.Writer) error {
	dir := filepath.Join(data, b.name)
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		_, err := fmt.Fprintf(w, "%s does not run\n", b.name)
		return err
	}
	s, err := open(dir)
	if err != nil {
		return err
	}
	defer s.close()
	if !s.runs() {
		_, err := fmt.Fprintf(w, "%s does not run\n", b.name)
		return err
	}
	if err := s.end(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s ended; its data is in %s\n", b.name, dir)
	return err
}
