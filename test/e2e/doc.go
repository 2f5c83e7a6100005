// Package e2e tests a real supervisord process over a real broker process:
// verbs under load, signals, kill -9 of either side, a frozen broker. Every test
// ends by holding what was confirmed to the publisher against what the handlers
// did.
package e2e
