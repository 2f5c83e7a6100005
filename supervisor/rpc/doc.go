// Package rpc serves a supervisor over gRPC. It is the only place that turns
// errors into status codes and peers into actors.
//
// Everything that a caller can hold on to is bounded: connections, streams per
// connection, bytes of a request, the time of a call and of one message to a
// watcher. A caller at its bound is refused, and nobody else notices.
package rpc
