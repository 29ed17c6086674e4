package trial_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// withStages returns a task of several stages, each graded by the number of
// lines of a file.
func withStages(t *testing.T, n int) *bench {
	t.Helper()
	b := newBench(t, does("echo x >> /app/lines"), nil)
	b.judges["judge"] = tests("true")
	b.task.Stages = nil
	for i := range n {
		b.task.Stages = append(b.task.Stages, task.Stage{
			Name: fmt.Sprintf("s%d", i+1), Instruction: []task.Part{{Text: fmt.Sprintf("Part %d.", i+1)}},
			Verifiers: []task.VerifierUse{{Name: "judge"}},
		})
	}
	one := 1.0
	b.task.Success = task.Success{Score: "reward", AtLeast: &one}
	return b
}

func TestStages(t *testing.T) {
	t.Parallel()
	failsIn := func(stage string) *judge {
		return &judge{traits: verifier.Traits{Needs: verifier.NeedsNone}, verify: func(_ context.Context, r verifier.Request) (verifier.Verdict, error) {
			if r.Stage == stage {
				return reward(verifier.Fail, 0), nil
			}
			return reward(verifier.Pass, 1), nil
		}}
	}
	half := 0.5
	for _, tt := range []struct {
		name    string
		set     func(b *bench)
		outcome record.Outcome
		score   float64
		stages  []record.Outcome
	}{
		{"all pass", func(*bench) {}, record.Passed, 1, []record.Outcome{record.Passed, record.Passed, record.Passed}},
		{"the second fails", func(b *bench) { b.judges["judge"] = failsIn("s2") }, record.Failed, 2. / 3, []record.Outcome{record.Passed, record.Failed, record.Passed}},
		{"the second is the last", func(b *bench) {
			b.judges["judge"] = failsIn("s2")
			b.task.Stages[1].MinScores = map[string]float64{"reward": 0.5}
		}, record.Failed, 1. / 3, []record.Outcome{record.Passed, record.Failed, record.NotRun}},
		{"only the last counts, and it was not reached", func(b *bench) {
			b.judges["judge"] = failsIn("s2")
			b.task.Stages[1].MinScores = map[string]float64{"reward": 0.5}
			b.task.Success.Reduce = task.ReduceLast
			b.task.Success.AtLeast = &half
		}, record.Failed, 0, []record.Outcome{record.Passed, record.Failed, record.NotRun}},
		{"a setup that fails in the second", func(b *bench) {
			b.task.Stages[1].Setup = []task.Command{{Argv: []string{"false"}}}
		}, record.AgentError, 1. / 3, []record.Outcome{record.Passed, record.AgentError, record.NotRun}},
		{"a verifier that breaks in the second", func(b *bench) {
			j := tests("true")
			honest := j.verify
			j.verify = func(ctx context.Context, r verifier.Request) (verifier.Verdict, error) {
				if r.Stage == "s2" {
					return verifier.Verdict{}, verifier.ErrBadReward
				}
				return honest(ctx, r)
			}
			b.judges["judge"] = j
		}, record.VerifierError, -1, []record.Outcome{record.Passed, record.VerifierError, record.NotRun}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := withStages(t, 3)
			tt.set(b)
			r := b.run(t.Context(), t)
			score := -1.0
			if r.Score != nil {
				score = *r.Score
			}
			var stages []record.Outcome
			for _, s := range r.Stages {
				stages = append(stages, s.Outcome)
			}
			if r.Outcome != tt.outcome || score != tt.score || !slices.Equal(stages, tt.stages) {
				t.Errorf("%s, %v, %v; want %s, %v, %v\n%s", r.Outcome, score, stages, tt.outcome, tt.score, tt.stages, pretty(r))
			}
		})
	}
}

func TestTheSandboxLivesAcrossStagesAndTheHarnessDoesNotLeak(t *testing.T) {
	t.Parallel()
	b := withStages(t, 2)
	withTests(t, b, map[string]string{"secret.sh": "MARK-tests"})
	b.agents["agent"] = does("[ ! -e /tests/secret.sh ] && [ ! -e /logs/verifier/out ] && echo x >> /app/lines && ! grep -rs MARK-[t]ests /tests* /app* /logs* /tmp /root /home /var --include=secret.sh")
	b.judges["judge"] = tests("[ -e /tests/secret.sh ] && echo out > /logs/verifier/out && cat /app/lines > /logs/verifier/lines")
	r := b.run(t.Context(), t)
	want(t, r, record.Passed, record.Yielded, record.Checked)
	if a := b.agents["agent"].(*scripted); len(a.setups) != 2 { //nolint:forcetypeassert // it is ours
		t.Errorf("%d sessions; want a new one for each stage", len(a.setups))
	}
	b = withStages(t, 2)
	b.task.Stages[1].SameSession = true
	b.agents["agent"].(*scripted).needs.KeepsSession = true //nolint:forcetypeassert // it is ours
	b.run(t.Context(), t)
	if a := b.agents["agent"].(*scripted); len(a.setups) != 1 || a.said[1].Turn != 2 { //nolint:forcetypeassert // it is ours
		t.Errorf("%d sessions, messages %+v; want one session", len(a.setups), a.said)
	}
}

func TestTheFolderOfTheVerifiersLogsIsAlwaysThere(t *testing.T) {
	t.Parallel()
	b := withStages(t, 2)
	withTests(t, b, map[string]string{"secret.sh": "MARK-tests"})
	const empty = `[ "$(stat -c %a /logs/verifier)" = 777 ] && [ -z "$(ls -A /logs/verifier)" ]`
	b.agents["agent"] = does(empty + " && echo mine > /logs/verifier/reward.txt && [ ! -e /tests/secret.sh ]")
	b.judges["judge"] = tests(empty + " && echo out > /logs/verifier/out")
	r := b.run(t.Context(), t)
	want(t, r, record.Passed, record.Yielded, record.Checked)
	if !found(r, "planted") {
		t.Errorf("what the agent wrote there is not in the findings: %s", pretty(r.Findings))
	}
}

// What tests add to the artifacts, or change there, is kept with the verifier's
// files: the artifacts are what the agent left.
func TestWhatTestsPutWithTheArtifactsIsKept(t *testing.T) {
	t.Parallel()
	b := withStages(t, 2)
	b.agents["agent"] = does("mkdir -p /logs/artifacts/d; echo same > /logs/artifacts/d/same; echo agent > /logs/artifacts/both")
	b.judges["judge"] = tests("echo tests > /logs/artifacts/both; mkdir -p /logs/artifacts/report; echo report > /logs/artifacts/report/out; true")
	r := b.run(t.Context(), t)
	want(t, r, record.Passed, record.Yielded, record.Checked)
	for file, content := range map[string]string{
		"artifacts/s1/logs/artifacts/both": "agent\n", "artifacts/s1/logs/artifacts/d/same": "same\n", "artifacts/s1/logs/artifacts/report": "",
		"verifier/s1/artifacts/both": "tests\n", "verifier/s1/artifacts/report/out": "report\n", "verifier/s1/artifacts/d": "",
	} {
		if got, err := os.ReadFile(filepath.Join(b.dir, file)); string(got) != content || (err == nil) != (content != "") {
			t.Errorf("%s: %q, %v; want %q", file, got, err, content)
		}
	}
}
