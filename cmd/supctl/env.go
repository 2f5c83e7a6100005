package main

import (
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// environment is all that a run takes from its surroundings.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	// Which of the three are terminals.
	stdinTTY, stdoutTTY, stderrTTY bool
	getenv                         func(string) string
	now                            func() time.Time
	// size is the terminal's, in columns and rows; asked for only when stderr
	// is one.
	size func() (columns, rows int)
	// configDir is the user's folder for configuration; "" without one.
	configDir string
}

// system is the environment of a real process.
func system() *environment {
	dir, err := os.UserConfigDir()
	if err != nil {
		dir = ""
	}
	return &environment{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		stdinTTY:  term.IsTerminal(int(os.Stdin.Fd())),
		stdoutTTY: term.IsTerminal(int(os.Stdout.Fd())),
		stderrTTY: term.IsTerminal(int(os.Stderr.Fd())),
		getenv:    os.Getenv,
		now:       time.Now,
		size: func() (int, int) {
			w, h, err := term.GetSize(int(os.Stderr.Fd()))
			if err != nil {
				return 80, 24
			}
			return w, h
		},
		configDir: dir,
	}
}
