// Command supctl moves the consumers of a supervisord: it lists, applies,
// pauses, drains, stops and kills them over the gRPC API.
package main

import (
	"context"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	// The first Ctrl-C ends what is waited for; a second one ends the process.
	context.AfterFunc(ctx, stop)
	env := system()
	os.Exit(int(report(env, run(ctx, os.Args[1:], env))))
}
