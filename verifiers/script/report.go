package main

import (
	"errors"
	"fmt"

	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/testreport"
	"github.com/berth-eval/berth/plugins/verifier"
)

// maxReports bounds the reports of a task together, in bytes.
const maxReports = 4 * testreport.MaxBytes

// reported adds what the reports say about each test. The one with the most tests
// counts. Fails with ErrBadReward if it says that no test ran: the reward is then
// about the tests and not about what they test.
func reported(v *verifier.Verdict, files []task.TestReport, answers []sandbox.Answer) error {
	note := func(code, format string, args ...any) {
		v.Findings = append(v.Findings, verifier.Finding{Code: code, Severity: verifier.Note, Text: fmt.Sprintf(format, args...)})
	}
	var best *testreport.Report
	name, missing := "", ""
	for i, f := range files {
		var r *testreport.Report
		err := answers[i].Err
		if err == nil {
			r, err = testreport.Read(answers[i].Data)
		}
		switch {
		case errors.Is(err, sandbox.ErrNotFound):
			if f.Expected {
				missing = f.Path
			}
		case err != nil:
			note("test_report_unread", "the results of single tests are not known: %s: %v", f.Path, err)
		case best == nil || r.Ran()+r.Skipped > best.Ran()+best.Skipped:
			best, name = r, f.Path
		}
	}
	if best == nil {
		if missing != "" && most(v.Scores) <= 0 {
			note("tests_no_report", "the tests did not write %s, which their script names: perhaps they did not start, and the reward does not say anything about the agent's work", missing)
		}
		return nil
	}
	if best.Ran() == 0 {
		return bad("no test ran: %s has no test that passed or failed, and %d that were skipped", name, best.Skipped)
	}
	v.Checkpoints = best.Tests
	if all := best.Ran() + best.Skipped; len(best.Tests) > 0 && all > len(best.Tests) {
		note("test_report_cut", "%s has %d tests, and the record has %d of them, failed ones first", name, all, len(best.Tests))
	}
	switch reward := most(v.Scores); {
	case best.Failed == 0 && reward <= 0:
		note("tests_disagree", "%s says that all of %d tests passed, and the reward is %g", name, best.Ran(), reward)
	case best.Failed > 0 && reward >= 1:
		note("tests_disagree", "%s says that %d of %d tests failed, and the reward is %g", name, best.Failed, best.Ran(), reward)
	}
	return nil
}

// most returns the highest score.
func most(scores map[string]verifier.Score) float64 {
	first, most := true, 0.0
	for _, s := range scores {
		if first || s.Value > most {
			first, most = false, s.Value
		}
	}
	return most
}
