package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// machine describes, in lines, where and with what a figure was measured.
func machine(modules ...string) []string {
	lines := []string{
		fmt.Sprintf("%s, %d CPUs, GOMAXPROCS %d, Linux %s", cpuModel(), runtime.NumCPU(), runtime.GOMAXPROCS(0), kernel()),
		fmt.Sprintf("%s; %s; load average when it began: %s", time.Now().UTC().Format("2006-01-02 15:04 UTC"),
			strings.Join(append([]string{runtime.Version()}, versions(modules)...), ", "), loadAverage()),
	}
	return lines
}

func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close() //nolint:errcheck // only read
	for s := bufio.NewScanner(f); s.Scan(); {
		if k, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return runtime.GOARCH
}

func kernel() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "?"
	}
	return strings.TrimSpace(string(b))
}

func loadAverage() string {
	b, err := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(b)); err == nil && len(f) > 0 {
		return f[0]
	}
	return "?"
}

// versions are those of the modules that this program was built with.
func versions(modules []string) []string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	var out []string
	for _, m := range info.Deps {
		if slices.Contains(modules, m.Path) {
			out = append(out, m.Path+" "+m.Version)
		}
	}
	return out
}

// cpuTime is what this process has used so far, user and system.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// rss is the resident memory of this process, in bytes.
func rss() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
