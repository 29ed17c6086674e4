package main

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// mostAgain is how many failed tests, whose subtests do not count apart, are run
// a second time. The machines are
// shared and a test or two may fail for want of processor time; more than that
// is not the machine.
const mostAgain = 4

// failedTests reads events and prints, for every package with failed tests, the
// package and the value for -run that selects them, separated by a tab. It
// prints nothing when more than mostAgain failed, or when anything failed that
// is not a test: a package that did not build or did not end.
func failedTests(in io.Reader, out io.Writer) error {
	r := newReport(io.Discard)
	if err := r.read(in); err != nil {
		return err
	}
	r.close()
	whole := map[key]bool{}
	for _, k := range r.failures {
		name, _, _ := strings.Cut(k.test, "/")
		whole[key{k.pkg, name}] = true
	}
	if r.failed > len(r.failures) || len(whole) > mostAgain {
		return nil
	}
	tests := map[string][]string{}
	for _, k := range r.failures {
		tests[k.pkg] = append(tests[k.pkg], selector(k.test))
	}
	for _, pkg := range slices.Sorted(maps.Keys(tests)) {
		if _, err := fmt.Fprintf(out, "%s\t%s\n", pkg, strings.Join(tests[pkg], "|")); err != nil {
			return err
		}
	}
	return nil
}

// selector is the value of -run for one test; `go help testflag` says how it is
// split at slashes.
func selector(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}
