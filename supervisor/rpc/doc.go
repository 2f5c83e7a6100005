// Package rpc serves a supervisor over gRPC. It is the only place that turns
// errors into status codes and peers into actors.
package rpc
