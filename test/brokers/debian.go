package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// errNoRoot: packages cannot be installed.
var errNoRoot = errors.New("installing packages needs root or sudo")

// ensure installs the Debian packages that are missing.
func ensure(ctx context.Context, packages []string, w io.Writer) error {
	var missing []string
	for _, p := range packages {
		if _, err := packageVersion(ctx, p); err != nil {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("install %s by hand: this is no Debian (%w)", strings.Join(missing, " "), err)
	}
	if _, err := fmt.Fprintf(w, "installing %s\n", strings.Join(missing, " ")); err != nil {
		return err
	}
	install := append([]string{"install", "-y", "-q", "--no-install-recommends"}, missing...)
	// The lists may be old, or not there: a first try costs little.
	first := aptGet(ctx, install...)
	if first == nil {
		return nil
	}
	if err := aptGet(ctx, "update", "-q"); err != nil {
		return fmt.Errorf("%w\n%w", first, err)
	}
	return aptGet(ctx, install...)
}

// script runs apt-get under a policy that refuses to start the services that
// come with packages: a broker of the whole machine would take our ports. A
// policy that is there already is left alone.
const script = `policy=/usr/sbin/policy-rc.d
if ! [ -e $policy ]; then
	trap 'rm -f $policy' EXIT
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod 755 $policy
fi
DEBIAN_FRONTEND=noninteractive apt-get "$@"`

// aptGet runs it as root, through sudo when this is no root.
func aptGet(ctx context.Context, args ...string) error {
	all := append([]string{"sh", "-c", script, "apt-get"}, args...)
	if os.Geteuid() != 0 {
		if _, err := exec.LookPath("sudo"); err != nil {
			return fmt.Errorf("%w: as root, run: apt-get %s", errNoRoot, strings.Join(args, " "))
		}
		all = append([]string{"sudo", "-n"}, all...)
	}
	c := exec.CommandContext(ctx, all[0], all[1:]...)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// packageVersion asks dpkg.
func packageVersion(ctx context.Context, name string) (string, error) {
	out, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", name).Output()
	status, version, _ := strings.Cut(string(out), " ")
	switch {
	case err != nil:
		return "", fmt.Errorf("package %s: %w", name, err)
	case status != "installed":
		return "", fmt.Errorf("package %s is %s", name, status)
	}
	return version, nil
}
