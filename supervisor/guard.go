package supervisor

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
)

// errExited: a function started with Go ended its goroutine.
var errExited = errors.New("the function ended its goroutine with runtime.Goexit")

// PanicError is a panic of a handler, recovered: one attempt that failed.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("the handler panicked: %v", e.Value) }

// Go runs f on a goroutine of its own and gives back its error, a panic turned
// into a [*PanicError]. A handler that starts goroutines starts them with Go
// and reads every channel; a panic in a bare goroutine ends the process, and
// nothing can prevent that. The channel has room for the one error, so an
// unread one leaks nothing.
func Go(f func() error) <-chan error {
	out := make(chan error, 1)
	go func() {
		err := errExited
		defer func() {
			if r := recover(); r != nil {
				err = &PanicError{Value: r, Stack: debug.Stack()}
			}
			out <- err
		}()
		err = f()
	}()
	return out
}

// stackOf is the stack of a panic, or "".
func stackOf(err error) string {
	if p, ok := errors.AsType[*PanicError](err); ok {
		return string(p.Stack)
	}
	return ""
}

// oneLine makes text fit a header on every broker: no control characters, no
// broken UTF-8, bounded.
func oneLine(s string) string {
	s = strings.ToValidUTF8(s[:min(len(s), deadText)], "?")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
