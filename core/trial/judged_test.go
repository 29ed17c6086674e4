package trial_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/agent"
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
