// Command skips prints the reasons for which tests were skipped as one table, from
// the events of `go test -json`: how many tests, and why.
//
//	skips FILE
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

type event struct {
	Action, Package, Test, Output string
}

// place is the start of a line that t.Skip prints: the file and the line.
var place = regexp.MustCompile(`^\s*\S+_test\.go:\d+: |^\s*\S+\.go:\d+: `)

// reasons counts the skips of the events in r by their reason, which is the last line
// that the test printed through t.Skip, and those of whole packages.
func reasons(r io.Reader) (map[string]int, error) {
	said, count := map[string]string{}, map[string]int{}
	for d := json.NewDecoder(r); ; {
		var e event
		if err := d.Decode(&e); err == io.EOF { //nolint:errorlint // Decode returns it as it is
			return count, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the events of the tests: %w", err)
		}
		name := e.Package + " " + e.Test
		text := strings.TrimSpace(e.Output)
		switch {
		case e.Action == "output" && place.MatchString(e.Output):
			said[name] = place.ReplaceAllString(text, "")
		case e.Action == "skip" && e.Test != "":
			count[cmp.Or(said[name], "no reason")]++
		case e.Action == "output" && e.Test == "" && strings.HasPrefix(text, "skip: "):
			count[strings.TrimPrefix(text, "skip: ")]++
		}
	}
}

func run(path string, w io.Writer) error {
	f, err := os.Open(path) //nolint:gosec // the caller's own
	if err != nil {
		return err
	}
	defer f.Close()
	count, err := reasons(bufio.NewReader(f))
	if err != nil || len(count) == 0 {
		return err
	}
	_, _ = fmt.Fprintln(w, "\nSkipped, by reason:")
	why := slices.Collect(maps.Keys(count))
	slices.SortFunc(why, func(a, b string) int { return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b)) })
	for _, y := range why {
		_, _ = fmt.Fprintf(w, "%6d  %.200s\n", count[y], y)
	}
	return nil
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "skips: expected a file with the events of go test -json")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "skips:", err)
		os.Exit(1)
	}
}
