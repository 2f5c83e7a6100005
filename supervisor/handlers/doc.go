// Package handlers has the kinds of handler that a spec can name: an HTTP
// endpoint, the log, and functions of an embedding program.
//
// Each kind checks its part of a spec without I/O and makes one handler per
// consumer and start. The handlers keep no message after Handle returned, and
// are safe for concurrent calls.
package handlers
