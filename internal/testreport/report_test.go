package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// stream writes events as `go test -json` does: "action package test output".
func stream(t *testing.T, events ...event) io.Reader {
	t.Helper()
	var b strings.Builder
	enc := json.NewEncoder(&b)
	for _, e := range events {
		if err := enc.Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	return strings.NewReader(b.String())
}

func ev(action, pkg, test, output string) event {
	return event{Action: action, Package: pkg, Test: test, Output: output}
}

const planPkg = module + "core/plan"

var reportCases = []struct {
	name   string
	events []event
	want   []string // in this order
	absent string
	green  bool
}{
	{
		name: "a passing test",
		events: []event{
			ev("start", planPkg, "", ""),
			ev("run", planPkg, "TestA", ""), ev("output", planPkg, "TestA", "noise\n"), ev("pass", planPkg, "TestA", ""), ev("pass", planPkg, "", ""),
		},
		want:   []string{"ok    core/plan", "1 passed", "1 passed, 0 failed, 0 skipped\n"},
		absent: "noise", green: true,
	},
	{
		name: "a test with subtests is not counted beside them",
		events: []event{
			ev("run", planPkg, "TestA", ""), ev("run", planPkg, "TestA/x", ""), ev("run", planPkg, "TestA/y", ""),
			ev("pass", planPkg, "TestA/x", ""), ev("pass", planPkg, "TestA/y", ""), ev("pass", planPkg, "TestA", ""),
		},
		want: []string{"2 passed, 0 failed, 0 skipped\n"}, green: true,
	},
	{
		name: "a failing subtest is one failure and its output is shown",
		events: []event{
			ev("run", planPkg, "TestA", ""), ev("run", planPkg, "TestA/x", ""), ev("output", planPkg, "TestA/x", "    a_test.go:3: got 1, want 2\n"),
			ev("fail", planPkg, "TestA/x", ""), ev("fail", planPkg, "TestA", ""), ev("fail", planPkg, "", ""),
		},
		want: []string{"FAIL  core/plan TestA/x", "a_test.go:3: got 1, want 2", "FAIL  core/plan ", "0 passed, 1 failed, 0 skipped\n"},
	},
	{
		name: "a test that fails after its subtests passed is a failure",
		events: []event{
			ev("run", planPkg, "TestA", ""), ev("run", planPkg, "TestA/x", ""), ev("pass", planPkg, "TestA/x", ""),
			ev("output", planPkg, "TestA", "left a file\n"), ev("fail", planPkg, "TestA", ""), ev("fail", planPkg, "", ""),
		},
		want: []string{"FAIL  core/plan TestA ", "left a file", "1 passed, 1 failed, 0 skipped\n"},
	},
	{
		name: "a skip is listed with its reason",
		events: []event{
			ev("run", planPkg, "TestA", ""), ev("output", planPkg, "TestA", "    a_test.go:9: needs root: run as root\n"),
			ev("output", planPkg, "TestA", "--- SKIP: TestA (0.00s)\n"), ev("skip", planPkg, "TestA", ""), ev("pass", planPkg, "", ""),
		},
		want: []string{"skipped, and why:", "  needs root: run as root\n", "    core/plan TestA\n", "0 passed, 0 failed, 1 skipped\n"}, green: true,
	},
	{
		name: "a package that does not build shows what the compiler said",
		events: []event{
			{Action: "build-output", ImportPath: planPkg + " [" + planPkg + ".test]", Output: "plan.go:1:1: undefined: x\n"},
			{Action: "build-fail", ImportPath: planPkg + " [" + planPkg + ".test]"},
			ev("start", planPkg, "", ""),
			{Action: "fail", Package: planPkg, FailedBuild: planPkg + " [" + planPkg + ".test]"},
		},
		want: []string{"FAIL  core/plan ", "undefined: x", "0 passed, 1 failed, 0 skipped\n"},
	},
	{
		name: "a package that dies shows the test that was running",
		events: []event{
			ev("start", planPkg, "", ""), ev("run", planPkg, "TestA", ""), ev("output", planPkg, "TestA", "panic: boom\n"),
			ev("fail", planPkg, "", ""),
		},
		want: []string{"FAIL  core/plan ", "TestA did not end", "panic: boom", "0 passed, 1 failed, 0 skipped\n"},
	},
	{
		name:   "a stream cut short is a failure",
		events: []event{ev("start", planPkg, "", ""), ev("run", planPkg, "TestA", ""), ev("pass", planPkg, "TestA", "")},
		want:   []string{"FAIL  core/plan  was still running", "1 passed, 1 failed, 0 skipped\n"},
	},
	{
		name: "a failure that passes again, alone, is withdrawn and named",
		events: []event{
			ev("run", planPkg, "TestA", ""), ev("run", planPkg, "TestA/x", ""), ev("output", planPkg, "TestA/x", "too slow\n"),
			ev("fail", planPkg, "TestA/x", ""), ev("fail", planPkg, "TestA", ""), ev("fail", planPkg, "", ""),
			ev("start", planPkg+again, "", ""), ev("run", planPkg+again, "TestA", ""), ev("run", planPkg+again, "TestA/x", ""),
			ev("pass", planPkg+again, "TestA/x", ""), ev("pass", planPkg+again, "TestA", ""), ev("pass", planPkg+again, "", ""),
		},
		want: []string{"too slow", "flaky", "  core/plan TestA/x\n", "1 passed (1 flaky), 0 failed, 0 skipped\n"}, green: true,
	},
	{
		name: "a failure that fails again is one failure",
		events: []event{
			ev("run", planPkg, "TestA", ""), ev("fail", planPkg, "TestA", ""), ev("fail", planPkg, "", ""),
			ev("run", planPkg+again, "TestA", ""), ev("output", planPkg+again, "TestA", "wrong once more\n"),
			ev("fail", planPkg+again, "TestA", ""), ev("fail", planPkg+again, "", ""),
		},
		want: []string{"wrong once more", "0 passed, 1 failed, 0 skipped\n"}, absent: "flaky",
	},
	{
		name: "a failure that is skipped the second time, or does not end, stays one",
		events: []event{
			ev("run", planPkg, "TestA", ""), ev("fail", planPkg, "TestA", ""), ev("run", planPkg, "TestB", ""), ev("fail", planPkg, "TestB", ""),
			ev("fail", planPkg, "", ""),
			ev("run", planPkg+again, "TestA", ""), ev("skip", planPkg+again, "TestA", ""), ev("run", planPkg+again, "TestB", ""),
			ev("output", planPkg+again, "TestB", "panic: boom\n"), ev("fail", planPkg+again, "", ""),
		},
		want: []string{"panic: boom", "0 passed, 2 failed, 0 skipped\n"}, absent: "flaky",
	},
	{name: "nothing at all is a failure", want: []string{"no test ran", "0 passed, 1 failed, 0 skipped\n"}},
	{
		name:   "a package without tests is not mentioned",
		events: []event{ev("start", planPkg, "", ""), ev("skip", planPkg, "", ""), ev("pass", checks, "lint", "")},
		want:   []string{"ok    checks lint", "1 passed, 0 failed, 0 skipped\n"},
		absent: "core/plan", green: true,
	},
}

func TestReportCountsAndExplains(t *testing.T) {
	t.Parallel()
	for _, tt := range reportCases {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			r := newReport(&out)
			if err := r.read(stream(t, tt.events...)); err != nil {
				t.Fatal(err)
			}
			if green := r.close(); green != tt.green {
				t.Errorf("close() = %v, want %v", green, tt.green)
			}
			rest := out.String()
			for _, want := range tt.want {
				i := strings.Index(rest, want)
				if i < 0 {
					t.Fatalf("no %q (after what was wanted before it) in:\n%s", want, out.String())
				}
				rest = rest[i+len(want):]
			}
			if tt.absent != "" && strings.Contains(out.String(), tt.absent) {
				t.Errorf("%q is in:\n%s", tt.absent, out.String())
			}
		})
	}
}

func TestReportPassesOnWhatIsNotJSON(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := newReport(&out).read(strings.NewReader("go: downloading x\n")); err != nil || out.String() != "go: downloading x\n" {
		t.Errorf("printed %q, %v", out.String(), err)
	}
}

func TestCheckReportsACommandAsATest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, script, want string
		green              bool
	}{
		{name: "passes", script: "echo fine", want: "1 passed, 0 failed, 0 skipped", green: true},
		{name: "fails", script: "echo why >&2; exit 3", want: "      why\n      sh: exit status 3\n"},
		{name: "skips", script: "echo no such thing here; exit 77", want: "  no such thing here\n    checks skips\n", green: true},
		{name: "is killed", script: "kill -9 $$", want: "sh: signal: killed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var events, out strings.Builder
			if err := run(t.Context(), []string{"check", tt.name, "--", "sh", "-c", tt.script}, nil, &events); err != nil {
				t.Fatal(err)
			}
			err := run(t.Context(), nil, strings.NewReader(events.String()), &out)
			if errors.Is(err, errFailed) == tt.green || !strings.Contains(out.String(), tt.want) {
				t.Errorf("err %v, want green %v and %q in:\n%s", err, tt.green, tt.want, out.String())
			}
		})
	}
}

func TestCheckEndsWhatACancelledCommandStarted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var events strings.Builder
	begin := time.Now()
	time.AfterFunc(100*time.Millisecond, cancel)
	err := check(ctx, "hangs", []string{"sh", "-c", "sleep 60 & wait"}, 2, &events)
	if err != nil || time.Since(begin) > 45*time.Second || !strings.Contains(events.String(), `"fail"`) {
		t.Errorf("after %s: %v\n%s", time.Since(begin), err, events.String())
	}
}

func TestCheckNamesACommandThatCannotStart(t *testing.T) {
	t.Parallel()
	var events strings.Builder
	err := check(t.Context(), "absent", []string{"/no/such/program"}, 1, &events)
	if err != nil || !strings.Contains(events.String(), "/no/such/program") || !strings.Contains(events.String(), `"fail"`) {
		t.Errorf("%v\n%s", err, events.String())
	}
}

func TestFailedTestsAreNamedForASecondRun(t *testing.T) {
	t.Parallel()
	failed := func(tests ...string) []event {
		var all []event
		for _, name := range tests {
			all = append(all, ev("run", planPkg, name, ""), ev("fail", planPkg, name, ""))
		}
		return append(all, ev("fail", planPkg, "", ""))
	}
	tests := []struct {
		name   string
		events []event
		want   string
	}{
		{"none", []event{ev("run", planPkg, "TestA", ""), ev("pass", planPkg, "TestA", "")}, ""},
		{"two", failed("TestA/a.b", "TestB"), planPkg + "\t^TestA$/^a\\.b$|^TestB$\n"},
		{"as many as may", failed("A", "B", "C", "D"), planPkg + "\t^A$|^B$|^C$|^D$\n"},
		{"subtests of one", failed("A/1", "A/2", "A/3", "A/4", "A/5"), planPkg + "\t^A$/^1$|^A$/^2$|^A$/^3$|^A$/^4$|^A$/^5$\n"},
		{"more than that", failed("A", "B", "C", "D", "E"), ""},
		{"a package that did not end", append(failed("A"), ev("start", planPkg+"/x", "", "")), ""},
		{"a package that did not build", append(failed("A"), ev("fail", planPkg+"/x", "", "")), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			if err := failedTests(stream(t, tt.events...), &out); err != nil {
				t.Fatal(err)
			}
			if out.String() != tt.want {
				t.Errorf("got %q, want %q", out.String(), tt.want)
			}
		})
	}
}

func TestACheckThatMayFailOnceIsTriedAgain(t *testing.T) {
	t.Parallel()
	once := filepath.Join(t.TempDir(), "once")
	tests := []struct {
		script, want string
		green        bool
	}{
		{"exit 0", "1 passed, 0 failed, 0 skipped\n", true},
		{"echo no; rmdir " + once + " || { mkdir " + once + "; exit 1; }", "1 passed (1 flaky), 0 failed, 0 skipped\n", true},
		{"echo no; exit 1", "0 passed, 1 failed, 0 skipped\n", false},
	}
	for _, tt := range tests {
		var events bytes.Buffer
		if err := check(t.Context(), "kit", []string{"sh", "-c", tt.script}, 2, &events); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		r := newReport(&out)
		if err := r.read(&events); err != nil {
			t.Fatal(err)
		}
		if green := r.close(); green != tt.green || !strings.HasSuffix(out.String(), tt.want) {
			t.Errorf("%s: green %v, got %s, want it to end in %s", tt.script, green, out.String(), tt.want)
		}
	}
}
