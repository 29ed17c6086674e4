package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

const (
	reportJSON = "/logs/verifier/ctrf.json"
	reportXML  = "/logs/verifier/junit.xml"
)

// withReports is request with reports, of which the first is expected.
func withReports(t *testing.T) verifier.Request {
	t.Helper()
	r := request(t)
	var s task.Script
	if err := json.Unmarshal(r.Settings, &s); err != nil {
		t.Fatal(err)
	}
	s.Reports = []task.TestReport{{Path: reportJSON, Expected: true}, {Path: reportXML}}
	var err error
	if r.Settings, err = json.Marshal(s); err != nil {
		t.Fatal(err)
	}
	return r
}

// report is a report with a test for each status.
func report(statuses ...string) string {
	var tests []string
	for i, s := range statuses {
		tests = append(tests, fmt.Sprintf(`{"name":"test_%d","status":%q}`, i, s))
	}
	return `{"results":{"tests":[` + strings.Join(tests, ",") + `]}}`
}

func TestReportsOfTests(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, reward, ctrf, junit string
		finding                   string // empty: none
		err                       string
		tests                     int
	}{
		{name: "they agree", reward: "1", ctrf: report("passed", "passed"), tests: 2},
		{name: "one failed", reward: "0", ctrf: report("passed", "failed"), tests: 2},
		{name: "partial credit", reward: "0.5", ctrf: report("passed", "failed"), tests: 2},
		{name: "no test", reward: "0", ctrf: report(), err: "no test ran: " + reportJSON},
		{name: "no test and a reward", reward: "1", ctrf: report(), err: "no test ran"},
		{name: "all skipped", reward: "1", ctrf: report("skipped", "pending"), err: "2 that were skipped"},
		{name: "no test in JUnit", reward: "0", junit: `<testsuites tests="0"/>`, err: "no test ran: " + reportXML},
		{name: "all passed and no reward", reward: "0", ctrf: report("passed", "passed", "skipped"), finding: "tests_disagree", tests: 3},
		{name: "one failed and a full reward", reward: "1", ctrf: report("passed", "failed"), finding: "tests_disagree", tests: 2},
		{name: "the report with more tests counts", reward: "1", ctrf: report(), junit: `<testsuite><testcase name="a"/></testsuite>`, tests: 1},
		{name: "not a report", reward: "0", ctrf: "{", finding: "test_report_unread"},
		{name: "not written", reward: "0", finding: "tests_no_report"},
		{name: "not written by tests that pass", reward: "1"},
		{name: "many", reward: "1", ctrf: report(strings.Split(strings.Repeat("passed,", 1200)+"passed", ",")...), finding: "test_report_cut", tests: 1000},
	} {
		files := map[string]string{rewardText: tt.reward, reportJSON: tt.ctrf, reportXML: tt.junit}
		maps.DeleteFunc(files, func(_, content string) bool { return content == "" })
		v, err := verified(t, &fake{run: writes(files)}, withReports(t))
		if tt.err != "" {
			if !errors.Is(err, verifier.ErrBadReward) || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v, want a bad reward with %q", tt.name, err, tt.err)
			}
			continue
		}
		var codes []string
		for _, f := range v.Findings {
			codes = append(codes, f.Code)
		}
		if err != nil || strings.Join(codes, " ") != tt.finding || len(v.Checkpoints) != tt.tests {
			t.Errorf("%s: %v, findings %v, %d tests; want %q and %d", tt.name, err, codes, len(v.Checkpoints), tt.finding, tt.tests)
		}
	}
}

func TestAStaleReportIsRemoved(t *testing.T) {
	t.Parallel()
	f := &fake{files: map[string]string{reportJSON: report()}, run: writes(map[string]string{rewardText: "1", reportXML: `<testsuite><testcase name="a"/></testsuite>`})}
	v, err := verified(t, f, withReports(t))
	if err != nil || len(v.Checkpoints) != 1 || len(v.Findings) != 1 || v.Findings[0].Code != "stale_reward" {
		t.Errorf("got %+v, %v; want the tests' own report, and a finding", v, err)
	}
}
