// Command supervisord hosts message consumers and moves them on request.
package main

import (
	"context"
	"fmt"
	"os"
)

func main() {
	err := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "supervisord:", err)
	}
	os.Exit(exitCode(err))
}
