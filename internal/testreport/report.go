package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// module is left out of package names.
const module = "github.com/berth-eval/berth/"

// again ends the package's name in events of failed tests that were run once
// more, by themselves.
const again = " (again)"

// event is one line of `go test -json`; `go doc cmd/test2json` says what the
// actions mean. Elapsed is in seconds.
type event struct {
	Time       time.Time
	Action     string
	Package    string  `json:",omitempty"`
	ImportPath string  `json:",omitempty"` // instead of Package for what the compiler said
	Test       string  `json:",omitempty"`
	Elapsed    float64 `json:",omitempty"`
	Output     string  `json:",omitempty"`

	FailedBuild string `json:",omitempty"` // the ImportPath that did not compile
}

// key names a test, or a package when test is empty.
type key struct{ pkg, test string }

// report collects events. A test that has subtests is counted only when it
// failed by itself, so that one failure is one.
type report struct {
	out                     io.Writer
	passed, failed, skipped int

	output  map[key][]string // of tests that have not ended, and of packages
	started map[key]bool     // tests that have not ended
	parents map[key]bool     // tests that have subtests
	broken  map[key]bool     // tests and packages with a failure inside, already counted
	counts  map[string]int   // passed tests of a package
	reasons map[string][]string
	wait    map[string]bool // packages that have not ended

	failures []key // tests that are counted as failed
	flaky    []key // tests that failed, and passed again
}

func newReport(out io.Writer) *report {
	return &report{
		out:    out,
		output: map[key][]string{}, started: map[key]bool{}, parents: map[key]bool{}, broken: map[key]bool{},
		counts: map[string]int{}, reasons: map[string][]string{}, wait: map[string]bool{},
	}
}

// read takes events until in ends. A line that is not JSON is passed on.
func (r *report) read(in io.Reader) error {
	return eachLine(in, func(line string) error {
		var e event
		if json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
			_, err := io.WriteString(r.out, line)
			return err
		}
		r.add(e)
		return nil
	})
}

func (r *report) add(e event) {
	if e.Package == "" {
		e.Package = importPath(e.ImportPath)
	}
	k := key{e.Package, e.Test}
	switch e.Action {
	case "start":
		r.wait[e.Package] = true
	case "run":
		r.started[k] = true
		if i := strings.LastIndexByte(e.Test, '/'); i >= 0 {
			r.parents[key{e.Package, e.Test[:i]}] = true
		}
	case "output", "build-output":
		r.output[k] = append(r.output[k], e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(k, e)
		} else {
			r.endTest(k, e)
		}
	}
}

func (r *report) endTest(k key, e event) {
	said := r.output[k]
	delete(r.output, k)
	delete(r.started, k)
	took := fmt.Sprintf("%.1f s", e.Elapsed)
	switch {
	case e.Action == "fail":
		if !r.broken[k] {
			r.fails(k)
			fmt.Fprintf(r.out, "FAIL  %s %s  %s\n", short(k.pkg), k.test, took)
			r.quote(said)
		}
		r.breaks(k)
	case r.passesAgain(k, e.Action), r.parents[k]:
		return
	case e.Action == "skip":
		r.skipped++
		why := reason(said)
		r.reasons[why] = append(r.reasons[why], short(k.pkg)+" "+k.test)
	default:
		r.passed++
		r.counts[k.pkg]++
	}
	if k.pkg == checks && e.Action != "fail" {
		fmt.Fprintf(r.out, "%-4s  %s %s  %s\n", map[string]string{"pass": "ok", "skip": "skip"}[e.Action], k.pkg, k.test, took)
	}
}

// fails counts a test as failed, once however often it ran.
func (r *report) fails(k key) {
	k.pkg = strings.TrimSuffix(k.pkg, again)
	if !slices.Contains(r.failures, k) {
		r.failures = append(r.failures, k)
		r.failed++
	}
}

// passesAgain says whether k is of a second run, which is counted for nothing
// but that a failure of the first one is withdrawn when it passes.
func (r *report) passesAgain(k key, action string) bool {
	pkg, second := strings.CutSuffix(k.pkg, again)
	k.pkg = pkg
	if i := slices.Index(r.failures, k); second && action == "pass" && i >= 0 {
		r.failures = slices.Delete(r.failures, i, i+1)
		r.failed--
		r.flaky = append(r.flaky, k)
	}
	return second
}

// breaks notes that the failure in k is counted, for all that k is part of.
func (r *report) breaks(k key) {
	r.broken[key{pkg: k.pkg}] = true
	for i := strings.LastIndexByte(k.test, '/'); i >= 0; i = strings.LastIndexByte(k.test, '/') {
		k.test = k.test[:i]
		r.broken[k] = true
	}
}

func (r *report) endPackage(k key, e event) {
	delete(r.wait, k.pkg)
	said := r.output[k]
	delete(r.output, k)
	switch {
	case strings.HasSuffix(k.pkg, again):
		r.unfinished(k.pkg) // its tests are still counted as failed
		r.quote(said)
	case e.Action == "fail" && !r.broken[k]:
		// It did not build, or ended without the result of a test.
		r.failed++
		fmt.Fprintf(r.out, "FAIL  %s  %.1f s\n", short(k.pkg), e.Elapsed)
		r.unfinished(k.pkg)
		if e.FailedBuild != "" { // said once, for the first package that needs it
			compiler := key{pkg: importPath(e.FailedBuild)}
			r.quote(r.output[compiler])
			delete(r.output, compiler)
		}
		r.quote(said)
	case e.Action == "fail":
		r.unfinished(k.pkg)
		fmt.Fprintf(r.out, "FAIL  %s  %.1f s\n", short(k.pkg), e.Elapsed)
	case e.Action == "pass":
		fmt.Fprintf(r.out, "ok    %s  %.1f s  %d passed\n", short(k.pkg), e.Elapsed, r.counts[k.pkg])
	}
}

// unfinished prints what tests of pkg said that began and never ended.
func (r *report) unfinished(pkg string) {
	for _, k := range slices.SortedFunc(maps.Keys(r.started), func(a, b key) int { return strings.Compare(a.test, b.test) }) {
		if k.pkg != pkg {
			continue
		}
		fmt.Fprintf(r.out, "      %s did not end\n", k.test)
		r.quote(r.output[k])
		delete(r.output, k)
		delete(r.started, k)
	}
}

// quote prints the output of a test, indented, without the lines that only say
// that a test began.
func (r *report) quote(lines []string) {
	for _, l := range lines {
		if !strings.HasPrefix(l, "=== ") && strings.TrimSpace(l) != "" {
			fmt.Fprintf(r.out, "      %s", strings.TrimSuffix(l, "\n")+"\n")
		}
	}
}

// close prints what was skipped and the closing line, and says whether all is
// well: something passed and nothing failed.
func (r *report) close() bool {
	for _, pkg := range slices.Sorted(maps.Keys(r.wait)) {
		r.failed++
		fmt.Fprintf(r.out, "FAIL  %s  was still running when its output ended\n", short(pkg))
		r.unfinished(pkg)
	}
	for _, k := range slices.SortedFunc(maps.Keys(r.started), func(a, b key) int { return strings.Compare(a.test, b.test) }) {
		r.failed++
		fmt.Fprintf(r.out, "FAIL  %s %s  was still running when its output ended\n", short(k.pkg), k.test)
		r.quote(r.output[k])
	}
	if len(r.reasons) > 0 {
		fmt.Fprintln(r.out, "\nskipped, and why:")
	}
	for _, why := range slices.Sorted(maps.Keys(r.reasons)) {
		fmt.Fprintf(r.out, "  %s\n", why)
		for _, name := range r.reasons[why] {
			fmt.Fprintf(r.out, "    %s\n", name)
		}
	}
	if len(r.flaky) > 0 {
		fmt.Fprintln(r.out, "\nflaky: failed in the full run (output above), passed when run alone; please fix:")
	}
	for _, k := range r.flaky {
		r.passed++
		fmt.Fprintf(r.out, "  %s %s\n", short(k.pkg), k.test)
	}
	if r.passed+r.failed+r.skipped == 0 {
		r.failed++
		fmt.Fprintln(r.out, "FAIL  no test ran")
	}
	fmt.Fprintf(r.out, "\n%d passed", r.passed)
	if n := len(r.flaky); n > 0 {
		fmt.Fprintf(r.out, " (%d flaky)", n)
	}
	fmt.Fprintf(r.out, ", %d failed, %d skipped\n", r.failed, r.skipped)
	return r.failed == 0
}

// reason is the last line that a skipped test printed, without the file and
// line that the testing package puts before it.
func reason(lines []string) string {
	for _, l := range slices.Backward(lines) {
		l = strings.TrimSpace(l)
		if l == "" || strings.HasPrefix(l, "--- SKIP") || strings.HasPrefix(l, "=== ") {
			continue
		}
		if file, rest, ok := strings.Cut(l, ": "); ok && strings.Contains(file, ".go:") {
			return rest
		}
		return l
	}
	return "no reason given"
}

// importPath is p of "p [p.test]", which is how the compiler's output is marked.
func importPath(marked string) string {
	p, _, _ := strings.Cut(marked, " ")
	return p
}

func short(pkg string) string { return strings.TrimPrefix(pkg, module) }
