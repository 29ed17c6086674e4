package trial_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/trajectory"
	"github.com/berth-eval/berth/plugins/verifier"
)

// withAddress returns an attempt in which the agent writes a value of the host into
// its artifact, which is to be judged with it. A round and the last verifier want the
// value.
func withAddress(t *testing.T) (b *bench, address string) {
	t.Helper()
	address = "https://address.example/42"
	b = withRounds(t)
	b.agents["agent"] = does(`echo "$ADDRESS,42" > /logs/artifacts/results.csv`)
	b.envVars["ADDRESS"] = address
	agentOf := &b.task.Stages[0].Agent
	agentOf.Env, agentOf.EnvFile = task.Env{"ADDRESS": {Host: "ADDRESS"}}, "privacy/env.env"
	b.judges["supervisor"].verify = func(_ context.Context, r verifier.Request) (verifier.Verdict, error) {
		for file, want := range map[string]string{"attempt/artifacts/logs/artifacts/results.csv": address + ",42\n", "privacy/env.env": "ADDRESS=" + address + "\n"} {
			if got, err := os.ReadFile(filepath.Join(r.View, file)); err != nil || string(got) != want {
				return reward(verifier.Fail, 0), fmt.Errorf("%s: %q, %w", file, got, err)
			}
		}
		v := reward(verifier.Pass, 1)
		if r.Round == 1 {
			v = reward(verifier.Continue, 0.5)
		}
		v.Rationale = "It has " + address + "."
		return v, nil
	}
	return b, address
}

// What is judged is as the agent wrote it, with the values of the task's variables
// beside it. What is kept has none of them, and the simulated user sees none.
func TestMaskingChangesNothingOfWhatIsJudged(t *testing.T) {
	t.Parallel()
	b, address := withAddress(t)
	b.task.Stages[0].Artifacts = []task.Artifact{{Source: "/logs/artifacts", Audience: []task.Role{task.RoleVerifier, task.RoleUser}}}
	b.judges["final"] = looks(func(r verifier.Request) bool {
		got, err := os.ReadFile(filepath.Join(r.View, "attempt/artifacts/logs/artifacts/results.csv"))
		return err == nil && string(got) == address+",42\n"
	})
	seen := ""
	b.agents["user"] = &scripted{turn: func(_ context.Context, a *actor, _ agent.Message) (agent.Yield, error) {
		got, err := os.ReadFile(filepath.Join(a.setup.View, "attempt/artifacts/logs/artifacts/results.csv"))
		seen = strings.Join(grep(t, a.setup.View, "ADDRESS"), " ") + string(got)
		return agent.Yield{End: agent.Asked, Message: "please go on"}, err
	}}
	r := b.run(t.Context(), t)
	want(t, r, record.Passed, record.Yielded, record.Checked)
	if masked := strings.Repeat("*", len(address)) + ",42\n"; seen != masked {
		t.Errorf("the user saw %q, want %q", seen, masked)
	}
	if kept := grep(t, b.dir, address); len(kept) > 0 {
		t.Errorf("it is kept in %q", kept)
	}
	if kept := grep(t, b.dir, strings.Repeat("*", len(address))+",42"); len(kept) < 3 { // of two rounds and of the attempt
		t.Errorf("masked files are %q", kept)
	}
}

// So are what the agent did and said, and the sessions of its sub-agents, in rounds and
// at the end. Lines from before the first secret are there, too.
func TestMaskingChangesNoRecordThatIsJudged(t *testing.T) {
	t.Parallel()
	b, address := withAddress(t)
	b.agents["agent"] = &scripted{needs: agent.Needs{Shell: true}, turn: func(ctx context.Context, a *actor, _ agent.Message) (agent.Yield, error) {
		dir := filepath.Join(a.setup.Scratch, "subagents")
		err := errors.Join(
			os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "sub.json"), []byte(address), 0o600), a.sh(ctx, `echo "$ADDRESS,42" > /logs/artifacts/results.csv`),
			a.Step(trajectory.Step{Source: trajectory.Model, Message: trajectory.Text("I look it up.")}),
			a.Step(trajectory.Step{Source: trajectory.Model, Message: trajectory.Text("It is " + address + ".")}),
		)
		return agent.Yield{End: agent.Done, Message: "I asked " + address + "."}, err
	}}
	sees := func(r verifier.Request) bool {
		for file, want := range map[string]string{"steps.jsonl": "I look it up.", "turns.jsonl": `"kind":"message"`, "agent/subagents/sub.json": ""} {
			got, err := os.ReadFile(filepath.Join(r.View, "attempt", file))
			if err != nil || !strings.Contains(string(got), address) || !strings.Contains(string(got), want) {
				t.Errorf("round %d, %s: %q, %v", r.Round, file, got, err)
			}
		}
		return true
	}
	judges := b.judges["supervisor"].verify
	b.judges["supervisor"].verify = func(ctx context.Context, r verifier.Request) (verifier.Verdict, error) {
		sees(r)
		return judges(ctx, r)
	}
	b.judges["final"] = looks(sees)
	b.agents["user"] = &scripted{turn: func(_ context.Context, a *actor, _ agent.Message) (agent.Yield, error) {
		if found := grep(t, a.setup.View, address); len(found) > 0 {
			t.Errorf("the user saw it in %q", found)
		}
		return agent.Yield{End: agent.Asked, Message: "please go on"}, nil
	}}
	want(t, b.run(t.Context(), t), record.Passed, record.Yielded, record.Checked)
	if kept := grep(t, b.dir, address); len(kept) > 0 {
		t.Errorf("it is kept in %q", kept)
	}
}

// A second sandbox has the artifacts as the agent wrote them, too.
func TestASecondSandboxHasUnmaskedArtifacts(t *testing.T) {
	t.Parallel()
	b := newBench(t, does(`mkdir /app/out && echo "$ADDRESS" > /app/out/answer && touch /app/out/run`), tests(`test "$(cat /app/out/answer)" = https://address.example/42`))
	separate(b)
	b.envVars["ADDRESS"] = "https://address.example/42"
	b.task.Stages[0].Agent.Env = task.Env{"ADDRESS": {Host: "ADDRESS"}}
	want(t, b.run(t.Context(), t), record.Passed, record.Yielded, record.Checked)
	if kept := grep(t, b.dir, "address.example"); len(kept) > 0 {
		t.Errorf("it is kept in %q", kept)
	}
}

// says is a verifier that returns v and inspects nothing.
func says(v verifier.Verdict) *judge {
	return &judge{
		traits: verifier.Traits{Needs: verifier.NeedsNone},
		verify: func(context.Context, verifier.Request) (verifier.Verdict, error) { return v, nil },
	}
}

// Labels reach the result. The later verifier counts, and no secret is kept.
func TestLabelsOfVerdicts(t *testing.T) {
	t.Parallel()
	label := func(labels map[string]string) *judge {
		return says(verifier.Verdict{Decision: verifier.Pass, Labels: labels})
	}
	b := newBench(t, does("true"), label(map[string]string{"status": "hush-hush", "first": "yes"}))
	b.judges["second"] = label(map[string]string{"status": "pass", "hush-hush": "is hush-hush"})
	b.task.Stages[0].Verifiers = append(b.task.Stages[0].Verifiers, task.VerifierUse{Name: "second"})
	b.cell.Secrets = append(b.cell.Secrets, "hush-hush")
	r := b.run(t.Context(), t)
	if len(r.Labels) != 3 || r.Labels["status"] != "pass" || r.Labels["first"] != "yes" || strings.Contains(pretty(r), "hush-hush") {
		t.Errorf("%s, labels %v", r.Outcome, r.Labels)
	}
	if r.Verdicts[0].Labels["status"] == "pass" || !maps.Equal(r.Verdicts[0].Labels, map[string]string{"status": r.Verdicts[0].Labels["status"], "first": "yes"}) {
		t.Errorf("first verdict: %v", r.Verdicts[0].Labels)
	}
	b = newBench(t, does("true"), label(map[string]string{"status": strings.Repeat("x", verifier.MaxLabelBytes+1)}))
	if r = b.run(t.Context(), t); r.Outcome != record.VerifierError || !strings.Contains(r.Error.Message, `label "status" has 201 bytes`) {
		t.Errorf("%s, %+v", r.Outcome, r.Error)
	}
}

func fails(err error) *judge {
	return &judge{
		traits: verifier.Traits{Needs: verifier.NeedsNone, Rounds: true},
		verify: func(context.Context, verifier.Request) (verifier.Verdict, error) { return verifier.Verdict{}, err },
	}
}

// Whatever way a verifier that only advises fails, the verdict before it stands. The
// same verifier ends the attempt if it does not only advise.
func TestTheErrorOfAnAdvisoryVerifierIsAFinding(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"an error": errors.New("no idea"), "a missing artifact": verifier.ErrArtifactMissing, "a bad score": verifier.ErrBadReward,
	} {
		for _, advisory := range []bool{false, true} {
			b := newBench(t, does("true"), says(verifier.Judge(true, "fine")))
			b.judges["adviser"], b.judges["last"] = fails(err), says(verifier.Verdict{Decision: verifier.Scored, Scores: map[string]verifier.Score{"style": {Value: 3}}})
			b.task.Stages[0].Verifiers = []task.VerifierUse{{Name: "judge"}, {Name: "adviser", Advisory: advisory}, {Name: "last"}}
			r := b.run(t.Context(), t)
			found := slices.IndexFunc(r.Findings, func(f record.Finding) bool { return f.Code == "advisory_failed" })
			if !advisory {
				if r.Outcome == record.Passed || found >= 0 {
					t.Errorf("%s, not advisory: %s, %+v", name, r.Outcome, r.Findings)
				}
				continue
			}
			if r.Outcome != record.Passed || len(r.Verdicts) != 2 || r.Scores["style"] != 3 || found < 0 || !strings.Contains(r.Findings[found].Text, "adviser: "+err.Error()) {
				t.Errorf("%s: %s, %+v, verdicts %+v, findings %+v", name, r.Outcome, r.Error, r.Verdicts, r.Findings)
			}
		}
	}
}

// Processes that a verifier left at its deadline take no room from the next one, and
// are not a sign that the agent has broken its sandbox.
func TestTestsThatForkForEver(t *testing.T) {
	t.Parallel()
	for _, advisory := range []bool{false, true} {
		b := newBench(t, does("true"), tests("perl -e 'fork while 1'"))
		b.judges["last"] = tests("sleep 0.1 & wait $!")
		b.cell.Environment.Config = cell.PlainValues(json.RawMessage(`{"pids":64}`))
		b.task.Stages[0].Verify.Time, b.task.Stages[0].Verify.TimeKey = task.Seconds(2), "verifier.timeout_sec"
		b.task.Stages[0].Verifiers = []task.VerifierUse{{Name: "judge", Advisory: advisory}, {Name: "last"}}
		r := b.run(t.Context(), t)
		if advisory {
			want(t, r, record.Passed, record.Yielded, record.Checked)
			continue
		}
		want(t, r, record.VerifierError, record.Yielded, record.Unknown)
		if r.Error == nil || r.Error.Boundary != record.ByVerifier || r.Error.Message != "verifier judge: the tests were stopped after 2 s (verifier.timeout_sec)" {
			t.Errorf("error %+v; want that the tests were stopped", r.Error)
		}
	}
}

// In a round, too: the verdicts of the others decide whether it goes on.
func TestAnAdvisoryVerifierThatFailsInARound(t *testing.T) {
	t.Parallel()
	b := withRounds(t)
	b.judges["adviser"] = fails(errors.New("no idea"))
	b.task.Stages[0].Verifiers = []task.VerifierUse{{Name: "supervisor"}, {Name: "adviser", Advisory: true}}
	r := b.run(t.Context(), t)
	failed := 0
	for _, f := range r.Findings {
		if f.Code == "advisory_failed" {
			failed++
		}
	}
	if r.Outcome != record.Passed || len(r.Verdicts) != 1 || failed != 2 {
		t.Errorf("%s, %+v, verdicts %+v, %d findings", r.Outcome, r.Error, r.Verdicts, failed)
	}
}

// An attempt that is cancelled while the adviser works has no result.
func TestACancelIsNoAdvice(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	b := newBench(t, does("true"), says(verifier.Judge(true, "fine")))
	b.judges["adviser"] = &judge{
		traits: verifier.Traits{Needs: verifier.NeedsNone},
		verify: func(ctx context.Context, _ verifier.Request) (verifier.Verdict, error) {
			cancel()
			<-ctx.Done()
			return verifier.Verdict{}, ctx.Err()
		},
	}
	b.task.Stages[0].Verifiers = []task.VerifierUse{{Name: "judge"}, {Name: "adviser", Advisory: true}}
	if r := b.run(ctx, t); r.Outcome != record.Cancelled {
		t.Errorf("%s, %+v", r.Outcome, r.Findings)
	}
}

// owning is a verifier that runs a script in a sandbox of its own.
func owning(script string) *judge {
	j := tests(script)
	j.traits.Needs = verifier.NeedsOwn
	return j
}

// A verifier's own sandbox has the artifacts and its files, in every mode, and
// nothing else of the agent's. The agent's sandbox has nothing of the verifier's.
func TestAVerifierHasASandboxOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, mode := range []task.Mode{task.ModeLive, task.ModeRestarted, task.ModeSeparate, task.ModeCopies} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			a := does("")
			a.turn = func(ctx context.Context, x *actor, _ agent.Message) (agent.Yield, error) {
				return agent.Yield{End: agent.Done}, x.sh(ctx, forges+"\n! test -e /marked")
			}
			b := newBench(t, a, owning(`test "$(cat /app/out/answer)" = 42 && test -x /app/out/run && ! test -e /app/other && ! test -e /marked &&
				! test -e /logs/verifier/forged && test -e /tests/own && ! test -e /tests/planted && ! test -e /usr/local/bin/judge &&
				! ls /sys/class/net | grep -qv '^lo$' && touch /marked`))
			b.task.Stages = append(b.task.Stages, b.task.Stages[0])
			b.task.Stages[1].Name = "second"
			separate(b)
			b.task.Mode = mode
			withTests(t, b, map[string]string{"own": "1"})
			b.task.Environment.Workdir, b.task.Environment.Network.Mode = "/app", task.NetworkPublic
			made := &counting{}
			b.env = made.wrap
			r := b.run(t.Context(), t)
			integrity := record.Checked
			if mode == task.ModeLive {
				integrity = record.Exposed
			}
			want(t, r, record.Passed, record.Yielded, integrity)
			if made.created != 3 || r.Stages[0].VerifierImage == nil {
				t.Errorf("%d sandboxes were created for two stages, stages %s", made.created, pretty(r.Stages))
			}
		})
	}
}

// What cannot be placed is the agent's work.
func TestAnArtifactThatDoesNotFitAVerifiersOwnSandbox(t *testing.T) {
	t.Parallel()
	b := newBench(t, does("rm -rf /app/x; mkdir /app/x; touch /app/x/y"), owning("true"))
	b.task.Stages[0].Artifacts = []task.Artifact{{Source: "/app/x/y"}}
	withTests(t, b, map[string]string{"own": "1"})
	b.task.Resources[len(b.task.Resources)-1].Place = "/app/x"
	b.task.Resources[len(b.task.Resources)-1].Folder = false
	b.task.Resources[len(b.task.Resources)-1].Path = "tests/own"
	b.task.Resources[len(b.task.Resources)-1].Name = "tests/own"
	b.task.Resources[len(b.task.Resources)-1].Entries[0].Path = ""
	r := b.run(t.Context(), t)
	want(t, r, record.AgentError, record.Yielded, record.Unknown)
	if r.Error == nil || !strings.Contains(r.Error.Message, "place artifact /app/x/y") {
		t.Errorf("error %+v", r.Error)
	}
}

// When a verifier's own sandbox is lost with the agent's work in it, that work may be
// the cause, unless a model chose the commands: then nothing is known about the work,
// and the agent gets no further attempt by it either.
func TestAVerifiersOwnSandboxIsLost(t *testing.T) {
	t.Parallel()
	for name, outcome := range map[string]record.Outcome{"a program's": record.AgentError, "a model's": record.EnvironmentError} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var box string
			var genuine environment.Environment
			j := owning("true")
			exec := j.verify
			j.verify = func(ctx context.Context, r verifier.Request) (verifier.Verdict, error) {
				if _, err := genuine.Destroy(ctx, box); err != nil {
					t.Error(err)
				}
				return exec(ctx, r)
			}
			b := newBench(t, does("true"), j)
			if outcome == record.EnvironmentError {
				withJudge(t, b, good)
				b.task.Stages[0].Verify.Env = nil
				j.traits.Models = []string{"default"}
			}
			onEnv(b, func(e environment.Environment, broken *broken) {
				genuine = e
				broken.create = func(ctx context.Context, spec environment.Spec) (environment.Sandbox, error) {
					made, err := e.Create(ctx, spec)
					box = made.ID // the last one is the verifier's
					return made, err
				}
			})
			r := b.run(t.Context(), t)
			want(t, r, outcome, record.Yielded, record.Unknown)
			if r.Error == nil || r.Error.Retry {
				t.Errorf("error %+v", r.Error)
			}
		})
	}
}
