package trial_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// forgesTool makes a tool that forges the answer of the tests that call it, and
// honestly works beside that. forged are those tests, and robust are others.
const (
	forgesTool = `printf '#!/bin/sh\necho 42\n' > /usr/local/bin/answer; chmod +x /usr/local/bin/answer`
	honestly   = forgesTool + `; echo 42 > /app/x`
	forged     = `test "$(answer)" = 42`
	robust     = `test "$(cat /app/x)" = 42`
)

// In a strict experiment, an exposed result is verified a second time: it is what
// it was, or a violation. Without it, a tool that forges the result passes.
func TestAnExposedResultIsVerifiedAgain(t *testing.T) {
	t.Parallel()
	const changes = robust + ` && rm /app/x`
	for _, tt := range []struct {
		name, does, test string
		mode             task.Mode
		strict           bool
		outcome          record.Outcome
		integrity        record.Integrity
		again            record.Outcome
		finding          string
	}{
		{"not strict, a tool forges", forgesTool, forged, task.ModeLive, false, record.Passed, record.Exposed, "", "tools_changed"},
		{"a tool forges", forgesTool, forged, task.ModeLive, true, record.IntegrityViolation, record.Violated, record.Failed, "verdicts_differ"},
		{"a tool forges, restarted", forgesTool, forged, task.ModeRestarted, true, record.IntegrityViolation, record.Violated, record.Failed, "verdicts_differ"},
		{"a tool that the tests do not use", honestly, robust, task.ModeLive, true, record.Passed, record.Checked, record.Passed, "graded_again"},
		{"the tests change what they tested", honestly, changes, task.ModeLive, true, record.Passed, record.Checked, record.Passed, "graded_again"},
		{"it fails both times", forgesTool, robust, task.ModeRestarted, true, record.Failed, record.Checked, record.Failed, "graded_again"},
		{"nothing is exposed", "echo 42 > /app/x", robust, task.ModeLive, true, record.Passed, record.Checked, "", ""},
		{"a server is needed and a tool changed", forgesTool + "\n" + listener, asks, task.ModeLive, true, record.Passed, record.Exposed, record.Failed, "needs_live"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			needs(t, tt.does, tt.test)
			b := newBench(t, does(tt.does), tests(tt.test))
			b.task.Mode, b.cell.Strict = tt.mode, tt.strict
			r := b.run(t.Context(), t)
			want(t, r, tt.outcome, record.Yielded, tt.integrity)
			again := r.Stages[0].Again
			if got := again != nil; got != (tt.again != "") || got && (again.Outcome != tt.again || len(again.Verdicts) != 1) {
				t.Errorf("second verification %+v; want %q", again, tt.again)
			}
			if tt.finding != "" && !found(r, tt.finding) {
				t.Errorf("no finding %s: %s", tt.finding, pretty(r.Findings))
			}
		})
	}
}

// In a task of several steps, each step that is exposed is verified again.
func TestStepsAreVerifiedAgain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, does, test string
		outcome          record.Outcome
		integrity        record.Integrity
		again            record.Outcome
	}{
		{"a tool forges", forgesTool, forged, record.IntegrityViolation, record.Violated, record.Failed},
		{"a tool that the tests do not use", honestly, robust, record.Passed, record.Checked, record.Passed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			needs(t, tt.does, tt.test)
			b := newBench(t, does(tt.does), tests(tt.test))
			b.task.Mode, b.cell.Strict = task.ModeLive, true
			b.task.Stages = append(b.task.Stages, b.task.Stages[0])
			b.task.Stages[1].Name = "second"
			r := b.run(t.Context(), t)
			want(t, r, tt.outcome, record.Yielded, tt.integrity)
			for _, s := range r.Stages {
				if s.Again == nil || s.Again.Outcome != tt.again || len(s.Again.Verdicts) != 1 {
					t.Errorf("stage %q: second verification %+v; want %q", s.Name, s.Again, tt.again)
				}
			}
		})
	}
}

// With rounds, what is verified after the last one is verified again, and keeps their
// verdicts. What exposes a round, or a result without such a verification, is not
// settled, and the result says so.
func TestRoundsAreNotVerifiedAgain(t *testing.T) {
	t.Parallel()
	wakesLong, _, _ := strings.Cut(strings.Replace(wakes, "2..40)", "2..400)", 1), "for (my $n = 1;")
	first := wakesLong + "open F, '>/app/ready'; while (1) { select(undef, undef, undef, 0.01) }\nEND\n" +
		"setsid perl /app/wakes.pl > /app/said 2>&1 & echo $! > /app/pid; until test -e /app/ready; do sleep 0.01; done\n"
	calm := "if test $(cat /logs/artifacts/n) = 1; then " + first + "else kill -9 $(cat /app/pid); fi\n" // it is gone in the last round
	for _, tt := range []struct {
		name, does, test string
		set              func(b *bench)
		outcome          record.Outcome
		integrity        record.Integrity
		again            record.Outcome
		finding, says    string
	}{
		{"a tool forges", forgesTool, forged, nil, record.IntegrityViolation, record.Violated, record.Failed, "verdicts_differ", ""},
		{"a tool that the tests do not use", honestly, robust, nil, record.Passed, record.Checked, record.Passed, "graded_again", ""},
		{
			"a process that runs between rounds", calm + honestly, robust, func(b *bench) {
				supervisor := b.judges["supervisor"]
				judged := supervisor.verify
				supervisor.verify = func(ctx context.Context, r verifier.Request) (verifier.Verdict, error) {
					time.Sleep(time.Second) // meanwhile the sandbox is frozen
					return judged(ctx, r)
				}
			}, record.Passed, record.Exposed, record.Passed, "not_graded_again", "rounds",
		},
		{
			"verdicts of rounds alone", "(setsid sleep 1000 > /dev/null 2>&1 &)", "", func(b *bench) {
				b.task.Stages[0].Verifiers = b.task.Stages[0].Verifiers[:1]
			}, record.Passed, record.Exposed, "", "not_graded_again", "no verifier works in the sandbox",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := withRounds(t)
			b.agents["agent"] = does("printf 1 >> /logs/artifacts/n; " + tt.does)
			b.judges["final"] = tests(tt.test)
			b.task.Mode, b.cell.Strict = task.ModeLive, true
			if tt.set != nil {
				tt.set(b)
			}
			r := b.run(t.Context(), t)
			want(t, r, tt.outcome, record.Yielded, tt.integrity)
			again := r.Stages[0].Again
			if got := again != nil; got != (tt.again != "") || got && (again.Outcome != tt.again || len(again.Verdicts) != 2) {
				t.Errorf("second verification %+v; want %q", again, tt.again)
			}
			if !slices.ContainsFunc(r.Findings, func(f record.Finding) bool {
				return f.Code == tt.finding && strings.Contains(f.Text, tt.says) && (f.Severity == verifier.Note || tt.says == "")
			}) {
				t.Errorf("no finding %s, %q: %s", tt.finding, tt.says, pretty(r.Findings))
			}
		})
	}
}

// A process that goes on while the sandbox is copied can make the copy other than
// what it was: a second verification on it settles nothing.
func TestACopyOfASandboxThatMovedSettlesNothing(t *testing.T) {
	t.Parallel()
	for range 6 { // not each time: the copy may be made before it wakes
		b := newBench(t, does(honestly+"\n"+strings.Replace(wakes, "2..40)", "2..400)", 1)), tests(robust))
		b.task.Mode, b.cell.Strict = task.ModeLive, true
		r := b.run(t.Context(), t)
		if !found(r, "ran_while_frozen") {
			continue
		}
		want(t, r, record.Passed, record.Yielded, record.Exposed)
		if r.Stages[0].Again != nil || !found(r, "not_graded_again") {
			t.Errorf("it was verified again: %s", pretty(r.Findings))
		}
		return
	}
	t.Error("no process went on in a frozen sandbox")
}
