package main

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// takeTerminal lets Ctrl-C reach this process alone when make runs it: make
// would die of the same signal, and hide that everything ended cleanly. Where
// there is no terminal, or it is another's, it does nothing.
func takeTerminal() (restore func()) {
	fd := int(os.Stdin.Fd())
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	if os.Getenv("MAKELEVEL") == "" || err != nil || group != unix.Getpgrp() {
		return func() {}
	}
	// Handing the terminal over from the background stops a process otherwise.
	signal.Ignore(unix.SIGTTOU)
	if unix.Setpgid(0, 0) != nil {
		return func() {}
	}
	give := func(group int) { _ = unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, group) } // else Ctrl-C reaches make too
	give(unix.Getpid())
	return func() { give(group) }
}
