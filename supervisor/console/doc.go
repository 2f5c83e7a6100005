// Package console serves what a machine wants to know about the process over
// HTTP on a loopback port: /livez, /readyz, Prometheus' /metrics, and
// /debug/pprof when asked for.
package console
