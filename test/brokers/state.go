package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// state is what runs from a folder. While one is open, others wait.
type state struct {
	file *os.File

	// Where it listens, in words.
	Where string `json:"where"`
	// PIDs of its processes, the first to be ended first.
	PIDs []int `json:"pids"`
	// Started is when each process started, in ticks since the machine did: a
	// process id alone may be another's by now.
	Started []string `json:"started"`
}

func open(dir string) (*state, error) {
	f, err := os.OpenFile(filepath.Join(dir, "state.json"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	s := &state{file: f}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		s.close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	switch err := json.NewDecoder(f).Decode(s); {
	case errors.Is(err, io.EOF): // new
	case err != nil:
		s.close()
		return nil, fmt.Errorf("%s: %w; delete it, and end what runs by hand", f.Name(), err)
	}
	return s, nil
}

func (s *state) close() { _ = s.file.Close() }

func (s *state) save() error {
	s.Started = nil
	for _, pid := range s.PIDs {
		s.Started = append(s.Started, startOf(pid))
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := s.file.Truncate(0); err != nil {
		return err
	}
	_, err = s.file.WriteAt(text, 0)
	return err
}

// runs: the first of its processes is there.
func (s *state) runs() bool { return len(s.PIDs) > 0 && s.alive(0) }

func (s *state) alive(i int) bool {
	start := startOf(s.PIDs[i])
	return start != "" && start == s.Started[i]
}

// end asks each process, with its group, to end, and looks until it has; what
// does not end in time is killed.
func (s *state) end() error {
	for i := range s.PIDs {
		s.endOne(i)
	}
	s.PIDs = nil
	return s.save()
}

func (s *state) endOne(i int) {
	if !s.alive(i) {
		return
	}
	group := -s.PIDs[i]
	_ = syscall.Kill(group, syscall.SIGTERM) // it may just have ended
	deadline, tick := time.After(30*time.Second), time.NewTicker(100*time.Millisecond)
	defer tick.Stop()
	for s.alive(i) {
		select {
		case <-tick.C:
		case <-deadline:
			_ = syscall.Kill(group, syscall.SIGKILL)
			return
		}
	}
}

// startOf is "" when there is no such process, or it has ended and nobody asked.
func startOf(pid int) string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	// The name, in parentheses, may hold spaces.
	_, rest, _ := strings.Cut(string(text[strings.LastIndex(string(text), ")"):]), " ")
	fields := strings.Fields(rest)
	const status, start = 0, 19
	if len(fields) <= start || fields[status] == "Z" {
		return ""
	}
	return fields[start]
}
