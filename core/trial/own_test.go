package trial_test

import (
	"context"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

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
