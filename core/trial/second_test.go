package trial_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/verifier"
)

// forges is what an agent does that would decide the verdict in its own sandbox:
// it leaves a process that writes to the folders of the verifier, and changes
// programs.
const forges = `mkdir -p /app/out && echo 42 > /app/out/answer && printf '#!/bin/sh\necho hi\n' > /app/out/run && chmod 755 /app/out/run
echo secret > /app/other
setsid sh -c 'while sleep 0.02; do echo 1 > /logs/verifier/forged; done' > /dev/null 2>&1 &
printf '#!/bin/sh\nexit 0\n' > /usr/local/bin/judge; chmod 755 /usr/local/bin/judge; mkdir -p /tests; echo planted > /tests/planted`

func separate(b *bench) {
	b.task.Mode = task.ModeSeparate
	for i := range b.task.Stages {
		b.task.Stages[i].Artifacts = []task.Artifact{{Source: "out", To: "renamed"}, {Source: "/app/out/run"}}
	}
}

func TestASeparateVerifierSeesOnlyTheArtifacts(t *testing.T) {
	t.Parallel()
	b := newBench(t, does(forges), tests(`sleep 0.1; test "$(cat /app/out/answer)" = 42 && test -x /app/out/run && ! test -e /app/other &&
		! test -e /logs/verifier/forged && ! test -e /tests/planted && test -e /tests/own && ! test -e /usr/local/bin/judge && test "$MINE" = 1`))
	separate(b)
	withTests(t, b, map[string]string{"own": "1"})
	b.task.Stages[0].VerifyIn = &task.Environment{
		OS: "linux", Workdir: "/app", Env: task.Env{"MINE": task.Value{Text: "1"}}, Network: task.Network{Mode: task.NetworkNone},
	}
	r := b.run(t.Context(), t)
	want(t, r, record.Passed, record.Yielded, record.Checked)
	if r.Mode != "separate" || r.Stages[0].VerifierImage == nil {
		t.Errorf("mode %s, stages %s", r.Mode, pretty(r.Stages))
	}
}

// The tests judge the files that there are. Only if they come to no reward, the
// missing artifact is the reason.
func TestTheTestsJudgeWithoutAMissingArtifact(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		judge   *judge
		outcome record.Outcome
	}{
		{tests("test -e /app/out/answer && ! test -e /app/out/run"), record.Passed},
		{tests("test -e /app/out/run"), record.Failed},
		{verdict(verifier.Verdict{}, verifier.ErrBadReward), record.ArtifactMissing},
		{verdict(unstarted, nil), record.ArtifactMissing},
		{verdict(verifier.Verdict{}, errors.New("it broke")), record.VerifierError},
	} {
		b := newBench(t, does("mkdir /app/out && echo 42 > /app/out/answer"), tt.judge)
		separate(b)
		r := b.run(t.Context(), t)
		if r.Outcome != tt.outcome || !strings.Contains(pretty(r.Findings), "/app/out/run") {
			t.Errorf("%s: %s, want %s and a finding about the missing file", r.Outcome, pretty(r), tt.outcome)
		}
		if tt.outcome == record.ArtifactMissing && (r.Error == nil || !strings.Contains(r.Error.Message, "/app/out/run") || r.Error.Boundary != record.ByVerifier) {
			t.Errorf("error %+v", r.Error)
		}
	}
}

// unstarted is the verdict of tests that could not run.
var unstarted = verifier.Verdict{
	Decision: verifier.Fail, Rationale: "exit code 127; bc: not found",
	Findings: []verifier.Finding{{Code: verifier.TestsNotStarted, Severity: verifier.Note, Text: "they could not be run"}},
}

// An agent may remove what the tests need in its own sandbox. The task's own
// solution does not, and nobody can in a new sandbox.
func TestTestsThatCannotRunAreTheAgentsFaultOnlyInItsOwnSandbox(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		set     func(*bench)
		outcome record.Outcome
	}{
		"live": {func(*bench) {}, record.Failed},
		"oracle": {func(b *bench) {
			own := b.cell.Agent
			withSolution(t, b, "true")
			b.cell.Agent = own
			b.cell.Agent.Oracle = true
		}, record.VerifierError},
		"separate": {separate, record.VerifierError},
	} {
		b := newBench(t, does("mkdir /app/out && touch /app/out/run"), verdict(unstarted, nil))
		tt.set(b)
		r := b.run(t.Context(), t)
		if r.Outcome != tt.outcome {
			t.Errorf("%s: %s, want %s: %+v", name, r.Outcome, tt.outcome, r.Error)
		}
		if r.Outcome == record.VerifierError && !strings.Contains(r.Error.Message, "bc: not found") {
			t.Errorf("%s: error %+v, want what the tests printed", name, r.Error)
		}
	}
}

// A sandbox whose work is verified in another one stays as it is between two stages, as
// with Harbor. After the last stage it is stopped.
func TestStagesThatAreVerifiedInOtherSandboxesShareTheAgentsSandbox(t *testing.T) {
	t.Parallel()
	testlevel.Program(t, "pgrep", "procps")
	for _, mode := range []task.Mode{task.ModeSeparate, task.ModeImage} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			a := does("")
			a.turn = func(ctx context.Context, a *actor, m agent.Message) (agent.Yield, error) {
				script := forges
				if m.Stage == "second" {
					script = "pgrep -f 'verifier/[f]orged' && test -e /app/other && ! test -e /graded && echo 43 > /app/out/answer"
				}
				return agent.Yield{End: agent.Done}, a.sh(ctx, script)
			}
			b := newBench(t, a, tests(`touch /graded; ! test -e /logs/verifier/forged && grep -q '4[23]' /app/out/answer && ! pgrep -x sleep`))
			b.task.Stages = append(b.task.Stages, b.task.Stages[0])
			b.task.Stages[1].Name = "second"
			separate(b)
			b.task.Mode, b.task.Environment.Workdir = mode, "/app"
			r := b.run(t.Context(), t)
			want(t, r, record.Passed, record.Yielded, record.Checked)
			for _, s := range r.Stages {
				if s.Outcome != record.Passed {
					t.Errorf("stage %s", pretty(s))
				}
			}
			if text, err := os.ReadFile(filepath.Join(b.dir, "artifacts", "second", "renamed", "answer")); string(text) != "43\n" {
				t.Errorf("artifacts of the second stage: %q, %v", text, err)
			}
		})
	}
}

func TestAVerifierWithoutASandboxNeedsNoSecondOne(t *testing.T) {
	t.Parallel()
	b := newBench(t, does("mkdir /app/out; touch /app/out/run"), looks(func(verifier.Request) bool { return true }))
	separate(b)
	made := &counting{}
	b.env = made.wrap
	want(t, b.run(t.Context(), t), record.Passed, record.Yielded, record.Checked)
	if made.created != 1 {
		t.Errorf("%d sandboxes were created", made.created)
	}
}

func TestASecondSandboxThatCannotBeCreatedIsNotTheAgentsFault(t *testing.T) {
	t.Parallel()
	for says, j := range map[string]*judge{"no capacity": tests("true"), "sandbox of verifier": owning("true")} {
		b := newBench(t, does("mkdir /app/out; touch /app/out/run"), j)
		if separate(b); j.traits.Needs == verifier.NeedsOwn {
			b.task.Mode = task.ModeLive
		}
		b.env = (&counting{refuse: 2}).wrap
		r := b.run(t.Context(), t)
		want(t, r, record.EnvironmentError, record.Yielded, record.Unknown)
		if r.Error == nil || !r.Error.Retry || !strings.Contains(r.Error.Message, says) {
			t.Errorf("error %+v", r.Error)
		}
	}
}

// counting counts the sandboxes that an environment creates, and refuses one.
type counting struct {
	environment.Environment

	created, refuse int
}

func (c *counting) wrap(e environment.Environment) environment.Environment {
	c.Environment = e
	return c
}

func (c *counting) Create(ctx context.Context, spec environment.Spec) (environment.Sandbox, error) {
	if c.created++; c.created == c.refuse {
		return environment.Sandbox{}, environment.ErrNoCapacity
	}
	return c.Environment.Create(ctx, spec)
}

// changes is what an agent may do to files, and changed how they must be found in
// another sandbox of the image: what is the system's is as in the image.
const (
	changes = `set -e
rm /usr/bin/nproc; rm -rf /usr/share/base-files; mkdir /usr/share/base-files; echo mine > /usr/share/base-files/only
echo text > /app/first; ln /app/first /app/second; ln -s /app/first /app/link; mkfifo /app/pipe
rm -rf /srv; ln -s /app /srv; rmdir /opt; rm -rf /mnt; echo file > /mnt
mkdir -p /app/deep/er; touch -d 2001-02-03T04:05:06Z /app/deep/er /app/deep /app/old; cp /usr/bin/true /app/suid; chmod 4755 /app/suid
chown 12:34 /app/old 2> /dev/null || touch /app/oneid; truncate -s 10M /app/sparse; mkdir /app/closed; echo x > /app/closed/in; chmod 0 /app/closed/in /app/closed`
	changed = `set -e
test -x /usr/bin/nproc; ! test -e /usr/share/base-files/only; test -d /opt; test -x /usr/bin/env
test "$(stat -c %i /app/first)" = "$(stat -c %i /app/second)"; test "$(readlink /app/link)" = /app/first; test -p /app/pipe
test -L /srv; test -f /mnt; test "$(stat -c %Y /app/deep)" = 981173106; test "$(stat -c %Y /app/deep/er)" = 981173106
test "$(stat -c %Y /app/old)" = 981173106; test "$(stat -c %a /app/suid)" = 4755; test -e /app/oneid || test "$(stat -c %u:%g /app/old)" = 12:34
test "$(stat -c %s /app/sparse)" = 10485760; test "$(stat -c %a /app/closed)" = 0; chmod 700 /app/closed; test "$(stat -c %a /app/closed/in)" = 0`
)

func TestTheSecondSandboxHasTheWorkOfTheAgent(t *testing.T) {
	t.Parallel()
	b := newBench(t, does(changes), tests(changed))
	b.task.Mode = task.ModeImage
	r := b.run(t.Context(), t)
	want(t, r, record.Passed, record.Yielded, record.Checked)
	if r.Mode != "image" || !found(r, "system_left") || r.Stages[0].VerifierImage == nil {
		t.Errorf("mode %s, findings %s", r.Mode, pretty(r.Findings))
	}
}

func TestTheSecondSandboxHasNothingElseOfTheAgents(t *testing.T) {
	t.Parallel()
	testlevel.Program(t, "pgrep", "procps")
	b := newBench(t, does(`echo 1 > /app/x; echo 1 > /dev/shm/x
setsid sh -c 'while sleep 0.02; do echo 1 > /logs/verifier/forged; done' > /dev/null 2>&1 &`),
		tests(`sleep 0.1; test -e /app/x && ! test -e /logs/verifier/forged && ! test -e /dev/shm/x && ! pgrep -x sleep`))
	b.task.Mode = task.ModeImage
	want(t, b.run(t.Context(), t), record.Passed, record.Yielded, record.Checked)
}

// What an agent wrote can keep its work from being copied, or its artifacts from being
// placed. This ends its attempt as its own error: otherwise an agent that failed could
// get another attempt.
func TestAnAgentGetsNoOtherAttemptByItsFiles(t *testing.T) {
	t.Parallel()
	image := func(b *bench) { b.task.Mode, b.task.Environment.Limits.StorageMiB = task.ModeImage, 64 }
	for name, tt := range map[string]struct {
		does, says string
		set        func(*bench)
	}{
		"too large": {"truncate -s 1T /app/sparse", "too large", image},
		"too deep":  {`perl -e 'for (1..600) { mkdir "0123456789" or die; chdir "0123456789" or die }'`, "", image},
		"an artifact that does not fit": {"mkdir -p /app/out && touch /app/out/run && rm /usr/bin/nproc && mkdir /usr/bin/nproc && touch /usr/bin/nproc/x", "", func(b *bench) {
			separate(b)
			b.task.Stages[0].Artifacts = append(b.task.Stages[0].Artifacts, task.Artifact{Source: "/usr/bin/nproc"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, does(tt.does), tests("true"))
			tt.set(b)
			r := b.run(t.Context(), t)
			if r.Outcome != record.AgentError || r.Error == nil || r.Error.Retry || r.Error.Boundary != record.ByAgent || !strings.Contains(r.Error.Message, tt.says) {
				t.Errorf("%s: %+v", r.Outcome, r.Error)
			}
		})
	}
}

// The agent gets the complete MCP servers of a task, with the values of the
// host.
func TestServersOfATaskReachTheAgent(t *testing.T) {
	t.Parallel()
	var got []agent.Server
	a := turn(func(_ context.Context, act *actor) (agent.Yield, error) {
		got = act.setup.Servers
		return agent.Yield{End: agent.Done}, nil
	})
	b := newBench(t, a, tests("true"))
	b.envVars = map[string]string{"TOKEN": "t-1"}
	b.task.MCPServers = []task.MCPServer{
		{Name: "fs", Transport: "stdio", Command: "mcp-fs", Args: []string{"/"}, Env: task.Env{"MODE": {Text: "ro"}, "KEY": {Host: "TOKEN"}}},
		{Name: "web", Transport: "sse", URL: "http://web", Headers: task.Env{"Authorization": {Host: "TOKEN"}}},
	}
	want(t, b.run(t.Context(), t), record.Passed, record.Yielded, record.Checked)
	if expect := []agent.Server{
		{Name: "fs", Transport: "stdio", Command: "mcp-fs", Args: []string{"/"}, Env: map[string]string{"MODE": "ro", "KEY": "t-1"}},
		{Name: "web", Transport: "sse", URL: "http://web", Headers: map[string]string{"Authorization": "t-1"}},
	}; pretty(got) != pretty(expect) {
		t.Errorf("got %+v, want %+v", got, expect)
	}
}

// The agent gets the folders of skills, and none works without a skill that the image
// must have. The folders that a task expects are there, and any user can write to them.
func TestSkillsAndFoldersOfATask(t *testing.T) {
	t.Parallel()
	var got []string
	a := turn(func(ctx context.Context, act *actor) (agent.Yield, error) {
		got = act.setup.Skills
		return agent.Yield{End: agent.Done}, act.sh(ctx, `[ "$(stat -c %a /work/in/results)" = 777 ] && echo 1 > /work/in/results/a`)
	})
	b := newBench(t, a, tests("true"))
	b.task.Paths.Folders = []string{"/work/in", "/work/in/results"}
	b.task.Skills = []task.Skill{{Dir: "/skills"}, {Dir: "/", FromImage: []string{"bin"}}}
	res := b.run(t.Context(), t)
	want(t, res, record.Passed, record.Yielded, record.Checked)
	missing := slices.DeleteFunc(slices.Clone(res.Findings), func(f record.Finding) bool { return f.Code != "skills_missing" })
	if len(missing) != 1 || !strings.Contains(missing[0].Text, "/skills") {
		t.Errorf("findings %+v", res.Findings)
	}
	if !slices.Equal(got, []string{"/skills", "/"}) {
		t.Errorf("skills in %q", got)
	}
	b = newBench(t, a, tests("true"))
	b.task.Skills = []task.Skill{{Dir: "/skills", FromImage: []string{"ocr"}}}
	res = b.run(t.Context(), t)
	if want(t, res, record.EnvironmentError, "", record.Unknown); res.Error == nil || !strings.Contains(res.Error.Message, `skill "ocr" of the task: there is no /skills/ocr in the sandbox: use an image that has it, or an agent with a block skill "ocr"`) {
		t.Errorf("%+v", res.Error)
	}
	b = newBench(t, turn(func(context.Context, *actor) (agent.Yield, error) { return agent.Yield{End: agent.Done}, nil }), tests("true"))
	b.task.Skills, b.cell.Agent.Config = []task.Skill{{Dir: "/skills", FromImage: []string{"ocr"}}}, cell.PlainValues(json.RawMessage(`{"skill": {"ocr": {"text": "x"}}}`))
	want(t, b.run(t.Context(), t), record.Passed, record.Yielded, record.Checked)
}

// An agent that does not support skills or the transport of a server reads about them
// in its first message, once for each session; one that does gets no text.
func TestWhatAnAgentDoesNotSupportIsInItsFirstMessage(t *testing.T) {
	t.Parallel()
	const told = "\n\nThese MCP servers can be reached from the sandbox with a client of your own:\n- web: sse at http://web\n  with the header Authorization: t-1\n" +
		"\n\nSkills that may help are in /skills: read the SKILL.md of one before you use it.\n"
	for _, tt := range []struct {
		name  string
		needs agent.Needs
		want  string
	}{
		{"one transport", agent.Needs{Shell: true, MCP: []string{"stdio"}}, told},
		{"all", agent.Needs{Shell: true, Skills: true, MCP: []string{"stdio", "sse"}}, ""},
		{"no shell", agent.Needs{}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got string
			a := &scripted{needs: tt.needs, turn: func(_ context.Context, _ *actor, m agent.Message) (agent.Yield, error) {
				got = m.Text
				return agent.Yield{End: agent.Done}, nil
			}}
			b := newBench(t, a, tests("true"))
			b.envVars = map[string]string{"TOKEN": "t-1"}
			b.task.Skills = []task.Skill{{Dir: "/skills"}}
			b.task.MCPServers = []task.MCPServer{
				{Name: "fs", Transport: "stdio", Command: "mcp-fs"},
				{Name: "web", Transport: "sse", URL: "http://web", Headers: task.Env{"Authorization": {Host: "TOKEN"}}},
			}
			res := b.run(t.Context(), t)
			if instruction := b.task.Stages[0].Instruction[0].Text; got != instruction+tt.want {
				t.Errorf("the agent got %q, want the instruction and %q (%s, %+v)", got, tt.want, res.Outcome, res.Error)
			}
		})
	}
}
