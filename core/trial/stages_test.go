package trial_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/outcome"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
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

// withRounds returns an attempt in which a supervisor wants the number 2 in a
// file, the agent adds one in each turn, and a user passes on what it is told.
func withRounds(t *testing.T) *bench {
	t.Helper()
	supervisor := &judge{traits: verifier.Traits{Needs: verifier.NeedsNone, Rounds: true}}
	supervisor.verify = func(_ context.Context, r verifier.Request) (verifier.Verdict, error) {
		data, err := os.ReadFile(filepath.Join(r.View, "attempt/artifacts/logs/artifacts/n"))
		if err != nil {
			return verifier.Verdict{}, err
		}
		n := strings.TrimSpace(string(data))
		v := verifier.Verdict{
			Decision: verifier.Continue, Handoff: "handoff: the number is " + n, Rationale: "MARK-rationale",
			Scores: map[string]verifier.Score{"reward": {Value: float64(len(n))}},
		}
		if n == "11" {
			v.Decision = verifier.Pass
		}
		return v, nil
	}
	b := newBench(t, does("printf 1 >> /logs/artifacts/n"), nil)
	b.judges["supervisor"] = supervisor
	b.judges["final"] = tests("true")
	b.task.Stages[0].Verifiers = []task.VerifierUse{{Name: "supervisor"}, {Name: "final"}}
	b.task.Interaction = &task.Interaction{MaxFollowUps: 3, Persona: "You are brief."}
	b.agents["user"] = &scripted{turn: func(context.Context, *actor, agent.Message) (agent.Yield, error) {
		return agent.Yield{End: agent.Asked, Message: "please go on"}, nil
	}}
	b.cell.User = &cell.User{Agent: cell.Agent{Plugin: "user"}, Persona: "You are patient."}
	return b
}

func phases(r record.Result) string {
	var names []string
	for _, p := range r.Phases {
		names = append(names, string(p.Name))
	}
	return strings.Join(names, " ")
}

// A user that ends the conversation says why, which is a label of the attempt.
func TestTheUserEndsTheConversation(t *testing.T) {
	t.Parallel()
	for reason, over := range map[string]record.Over{"gave_up": record.OverUser, "": record.OverSilent} {
		b := withRounds(t)
		b.agents["user"] = &scripted{turn: func(context.Context, *actor, agent.Message) (agent.Yield, error) {
			return agent.Yield{End: agent.Done, Reason: reason}, nil
		}}
		r := b.run(t.Context(), t)
		all := lines[record.Turn](t, filepath.Join(b.dir, record.TurnsFile))
		if last := all[len(all)-1]; last.Kind != record.TurnOver || last.Over != over || last.Reason != reason || r.Labels["user_end"] != reason {
			t.Errorf("%q: the last line is %+v, labels %v", reason, last, r.Labels)
		}
	}
}

func TestRounds(t *testing.T) {
	t.Parallel()
	b := withRounds(t)
	r := b.run(t.Context(), t)
	want(t, r, record.Passed, record.Yielded, record.Checked)
	const wanted = "prepare create services setup setup turn freeze copy judge thaw user turn freeze copy judge thaw settle collect verify destroy publish"
	if got := phases(r); got != wanted {
		t.Errorf("phases %s\nwant   %s", got, wanted)
	}
	for _, p := range r.Phases {
		if frozen := p.Name == record.PhaseCopy || p.Name == record.PhaseJudge; frozen != (p.Frozen > 0) {
			t.Errorf("phase %s was frozen for %s", p.Name, p.Frozen)
		}
	}
	a := b.agents["agent"].(*scripted) //nolint:forcetypeassert // it is ours
	var said []string
	for _, m := range a.said {
		said = append(said, m.Text)
	}
	if !slices.Equal(said, []string{"Do it.", "please go on"}) || len(a.setups) != 1 {
		t.Errorf("the agent heard %q in %d sessions", said, len(a.setups))
	}
	u := b.agents["user"].(*scripted) //nolint:forcetypeassert // it is ours
	if len(u.said) != 1 {
		t.Fatalf("the user was asked %d times", len(u.said))
	}
	for _, part := range []string{"You are patient.\n\nYou are brief.", "Do it.", "did it", "handoff: the number is 1"} {
		if !strings.Contains(u.said[0].Text, part) {
			t.Errorf("the user was not told %q: %s", part, u.said[0].Text)
		}
	}
	if strings.Contains(u.said[0].Text, "MARK") || u.setups[0].Shell != "" || u.setups[0].Role != agent.RoleUser {
		t.Errorf("the user was given too much: %+v, %s", u.setups[0], u.said[0].Text)
	}
	j := b.judges["supervisor"]
	if len(j.asked) != 2 || j.asked[0].Round != 1 || j.asked[0].RoundsLeft != 3 || j.asked[1].RoundsLeft != 2 || len(j.asked[1].Earlier) != 1 {
		t.Errorf("the supervisor was asked %s", pretty(j.asked))
	}
	if f := b.judges["final"]; len(f.asked) != 1 || len(f.asked[0].Earlier) != 1 || f.asked[0].Earlier[0].Decision != verifier.Pass {
		t.Errorf("the final verifier was asked %s", pretty(f.asked))
	}
	if r.Scores["reward"] != 1 || len(r.Verdicts) != 2 {
		t.Errorf("scores %v of %d verdicts", r.Scores, len(r.Verdicts))
	}
	wantRoundCopies(t, b)
}

// wantRoundCopies checks that the copies of rounds are not among the artifacts.
func wantRoundCopies(t *testing.T, b *bench) {
	t.Helper()
	if among, err := filepath.Glob(filepath.Join(b.dir, record.ArtifactsDir, "rounds")); err != nil || len(among) > 0 {
		t.Errorf("copies of rounds are among the artifacts: %q, %v", among, err)
	}
	for round, want := range map[string]string{"1": "1", "2": "11"} {
		if got, err := os.ReadFile(filepath.Join(b.dir, record.RoundsDir, round, "logs/artifacts/n")); err != nil || string(got) != want {
			t.Errorf("copy of round %s: %q, %v; want %q", round, got, err, want)
		}
	}
}

func TestAVerifierThatBreaksInARoundLosesNoVerdict(t *testing.T) {
	t.Parallel()
	b := withRounds(t)
	b.judges["broken"] = &judge{traits: verifier.Traits{Needs: verifier.NeedsNone, Rounds: true}, verify: func(_ context.Context, r verifier.Request) (verifier.Verdict, error) {
		if r.Round == 1 {
			return reward(verifier.Continue, 0.5), nil
		}
		return verifier.Verdict{}, verifier.ErrBadReward
	}}
	b.task.Stages[0].Verifiers = []task.VerifierUse{{Name: "supervisor"}, {Name: "broken"}}
	r := b.run(t.Context(), t)
	var said []string
	for _, v := range r.Verdicts {
		said = append(said, fmt.Sprintf("%s %s", v.Verifier, v.Decision))
	}
	if want := []string{"supervisor pass", "broken continue"}; r.Outcome != record.VerifierError || !slices.Equal(said, want) || r.Scores != nil {
		t.Errorf("%s, verdicts %q, scores %v; want %s, %q and no scores", r.Outcome, said, r.Scores, record.VerifierError, want)
	}
}

// How a loop ends by its verdicts, its limits and its user is tested with published
// sequences in internal/e2e/command.
func TestTheLoopEnds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		set   func(b *bench)
		turns int
	}{
		"without a user": {func(b *bench) { b.cell.User = nil }, 1},
		"by a rewrite":   {func(b *bench) { b.judges["supervisor"].rewrite = func(string) string { return "" } }, 1},
		"later, if the user says something and is done": {func(b *bench) {
			b.agents["user"] = &scripted{turn: func(context.Context, *actor, agent.Message) (agent.Yield, error) {
				return agent.Yield{End: agent.Done, Message: "please go on"}, nil
			}}
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := withRounds(t)
			tt.set(b)
			r := b.run(t.Context(), t)
			turns := strings.Count(" "+phases(r)+" ", " turn ")
			if r.Outcome != record.Passed || turns != tt.turns {
				t.Errorf("%s after %d turns; want passed after %d\n%s", r.Outcome, turns, tt.turns, pretty(r))
			}
		})
	}
}

// A user that fails ends the attempt, unless the task or the experiment wants a
// fixed line and a verifier writes it.
func TestAUserThatFails(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		task, cell string // what they say
		fails      error  // of the plugin; nil: the turn ends badly
		no         bool   // no verifier rewrites
		outcome    record.Outcome
	}{
		"nothing is said":          {outcome: record.UserError},
		"the task":                 {task: task.FixedLine, outcome: record.Passed},
		"the experiment":           {cell: task.FixedLine, outcome: record.Passed},
		"the experiment, not":      {task: task.FixedLine, cell: task.UserError, outcome: record.UserError},
		"its model":                {task: task.FixedLine, fails: agent.ErrModel, outcome: record.Passed},
		"its model, nothing said":  {fails: agent.ErrModel, outcome: record.ModelError},
		"its plugin is gone":       {task: task.FixedLine, fails: plugin.ErrPluginGone, outcome: record.PluginCrashed},
		"nobody writes the line":   {task: task.FixedLine, no: true, outcome: record.UserError},
		"its configuration is bad": {task: task.FixedLine, fails: outcome.On(record.ByConfig, errors.New("no")), outcome: record.NotRun},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := withRounds(t)
			b.task.Interaction.OnUserError, b.cell.User.OnError = tt.task, tt.cell
			b.agents["user"] = &scripted{turn: func(context.Context, *actor, agent.Message) (agent.Yield, error) {
				return agent.Yield{End: agent.Crashed, Reason: "it had no idea"}, tt.fails
			}}
			b.judges["supervisor"].rewrite = func(candidate string) string { return "FIXED" + candidate }
			b.judges["supervisor"].plain = tt.no
			r := b.run(t.Context(), t)
			a := b.agents["agent"].(*scripted) //nolint:forcetypeassert // it is ours
			noted := slices.ContainsFunc(r.Findings, func(f record.Finding) bool { return f.Code == "user_failed" })
			if fixed := len(a.said) == 2 && a.said[1].Text == "FIXED"; r.Outcome != tt.outcome || fixed != (tt.outcome == record.Passed) || noted != fixed {
				t.Errorf("%s, want %s; the agent heard %+v; findings %+v; error %+v", r.Outcome, tt.outcome, a.said, r.Findings, r.Error)
			}
		})
	}
}

// entered is an environment whose image has an entrypoint.
type entered struct {
	environment.Environment
	script string
}

func (e entered) Create(ctx context.Context, s environment.Spec) (environment.Sandbox, error) {
	made, err := e.Environment.Create(ctx, s)
	made.Image.Entrypoint = []string{"sh", "-c", e.script, "entrypoint"}
	return made, err
}

func TestTheAgentWaitsForTheEntrypoint(t *testing.T) {
	t.Parallel()
	const fork = "setsid sh -c 'sleep 600 & exit' & wait; " // a daemon of two forks, as of a desktop
	const asks = "python3 -c 'import urllib.request as u; u.urlopen(\"http://127.0.0.1:8000\")'"
	for _, tt := range []struct {
		name, script, agent, tests string
		mode                       task.Mode
		note                       string
	}{
		{
			"one that executes the command when it is ready", fork + `sleep 1; echo ready > /app/ready; exec "$@"`,
			"cat /app/ready && rm /app/ready", "true", task.ModeLive, "",
		},
		{"one that only executes the command", `exec "$@"`, "! pgrep -x sleep && echo alone > /app/alone", "cat /app/alone", task.ModeLive, ""},
		{
			"again before the tests", `sleep 1; echo ready > /app/ready; exec "$@"`,
			"rm /app/ready", "cat /app/ready", task.ModeRestarted, "",
		},
		{
			"one that is a server", "echo ready > /app/ready; exec python3 -m http.server --bind 127.0.0.1 8000",
			"cat /app/ready && " + asks, "true", task.ModeLive, "",
		},
		{
			"a daemon that listens a moment later", `(sleep 0.7; exec python3 -m http.server --bind 127.0.0.1 8000) & exec "$@"`,
			asks + " && echo got > /app/got", "cat /app/got", task.ModeLive, "",
		},
		{
			"and again before the tests", `(sleep 0.7; exec python3 -m http.server --bind 127.0.0.1 8000) & exec "$@"`,
			"true", asks, task.ModeRestarted, "",
		},
		{"one that fails", "echo no such display; exit 3", "true", "true", task.ModeLive, "exit code 3"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			needs(t, tt.script, tt.agent, tt.tests)
			b := newBench(t, does(tt.agent), tests(tt.tests))
			b.env = func(e environment.Environment) environment.Environment { return entered{e, tt.script} }
			b.task.Mode = tt.mode
			r := b.run(t.Context(), t)
			if r.Outcome != record.Passed || found(r, "left_running") {
				t.Errorf("got %s, %+v; want %s, with nothing left by the agent", r.Outcome, r.Findings, record.Passed)
			}
			if serves := strings.Contains(tt.script, "http.server") || strings.Contains(tt.script, fork); found(r, "service_traceable") != (serves && tt.mode == task.ModeLive) {
				t.Errorf("findings %+v", r.Findings)
			}
			noted := ""
			for _, f := range r.Findings {
				if f.Code == "entrypoint" {
					noted = f.Text
				}
			}
			if (tt.note == "") != (noted == "") || !strings.Contains(noted, tt.note) {
				t.Errorf("noted %q, want %q", noted, tt.note)
			}
		})
	}
}
