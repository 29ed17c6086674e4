// Command testreport turns the JSON of `go test` into what a person wants to
// know: which packages passed, what the failing tests printed, what was skipped
// and why, and one closing line of counts. `testreport check NAME -- COMMAND`
// runs a command and prints the same JSON for it, so that lint, generated
// files and the quickstart are counted beside the tests; `testreport retry` is
// the same for what may fail once on a busy machine. `testreport failed`
// reads the same JSON and says which tests to run a second time. It must decide
// nothing about what is tested: that is scripts/test.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// errFailed means that the report was made and is not green.
var errFailed = errors.New("not everything passed")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	switch {
	case errors.Is(err, errFailed):
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(2)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) == 0 {
		r := newReport(out)
		if err := r.read(in); err != nil {
			return err
		}
		if !r.close() {
			return errFailed
		}
		return nil
	}
	if slices.Equal(args, []string{"failed"}) {
		return failedTests(in, out)
	}
	tries := map[string]int{"check": 1, "retry": 2}[args[0]]
	if len(args) < 4 || tries == 0 || args[2] != "--" {
		return errors.New("usage: go test -json ./... | testreport [failed], or testreport check|retry NAME -- COMMAND [ARG...]")
	}
	return check(ctx, args[1], args[3:], tries, out)
}
