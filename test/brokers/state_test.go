package main

import (
	"os/exec"
	"syscall"
	"testing"
)

// child runs one in a group of its own, as brokers are.
func child(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

func reopen(t *testing.T, dir string) *state {
	t.Helper()
	s, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

func TestStateEndsWhatRuns(t *testing.T) {
	dir := t.TempDir()
	s := reopen(t, dir)
	if s.runs() {
		t.Error("a new folder runs something")
	}
	c := child(t, "sleep", "1000")
	s.PIDs = []int{c.Process.Pid}
	if err := s.save(); err != nil {
		t.Fatal(err)
	}
	s.close()
	s = reopen(t, dir)
	if !s.runs() {
		t.Error("what runs is not found again")
	}
	if err := s.end(); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err == nil || s.runs() {
		t.Errorf("it was not ended: %v", err)
	}
}

// The number of a process that has ended may be another's.
func TestStateKnowsAnotherProcess(t *testing.T) {
	c := child(t, "sleep", "1000")
	s := reopen(t, t.TempDir())
	s.PIDs = []int{c.Process.Pid}
	if err := s.save(); err != nil {
		t.Fatal(err)
	}
	s.Started[0] = "1"
	if s.runs() {
		t.Error("a process that started at another time is taken for ours")
	}
	if err := s.end(); err != nil {
		t.Fatal(err)
	}
	if startOf(c.Process.Pid) == "" {
		t.Error("another's process was ended")
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"start"}, {"up", "now"}} {
		if err := run(t.Context(), args, t.Output()); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}
