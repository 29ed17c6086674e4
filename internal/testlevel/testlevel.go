// Package testlevel says how much a run of the tests includes. `go test ./...` and
// `make test` run what takes seconds. The other targets of the Makefile set
// BERTH_TEST: "e2e" adds the end-to-end tests and those that take long, "all" adds
// the repetitions that take many minutes.
package testlevel

import (
	"cmp"
	"fmt"
	"os"
	"testing"
)

// E2E reports whether tests that take long were asked for.
func E2E() bool { return os.Getenv("BERTH_TEST") != "" }

// All reports whether everything was asked for.
func All() bool { return os.Getenv("BERTH_TEST") == "all" }

// Long skips a test that takes long unless it was asked for. The target of the
// Makefile that runs it is named in the reason.
func Long(t testing.TB, target string) {
	t.Helper()
	if !E2E() {
		t.Skipf("it takes long: run make %s", target)
	}
}

// Main runs the tests of a package in which all take long, and returns the exit
// code: for TestMain.
func Main(target string, run func() int) int {
	if !E2E() {
		fmt.Fprintf(os.Stdout, "skip: all tests of the package take long: run make %s\n", target)
		return 0
	}
	return run()
}

// Tmp returns a folder for temporary files whose path is short, because sockets lie
// below it. `make test` removes its own, also when it is interrupted.
func Tmp() string { return cmp.Or(os.Getenv("BERTH_TEST_TMP"), "/tmp") }
