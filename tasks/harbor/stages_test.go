package harbor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/task"
)

func TestSteps(t *testing.T) {
	t.Parallel()
	f := minimal().with(
		"instruction.md", "",
		"steps/one/instruction.md", "First.\n",
		"steps/one/tests/test.sh", "true\n",
		"steps/one/solution/solve.sh", "true\n",
		"steps/one/workdir/setup.sh", "true\n",
		"steps/one/workdir/data.txt", "x",
		"steps/two/instruction.md", "# canary\nSecond.\n",
		"solution/solve.sh", "true\n",
		"task.toml", `
multi_step_reward_strategy = "final"
artifacts = ["/all"]
[agent]
timeout_sec = 100
user = "worker"
network_mode = "no-network"
[verifier]
timeout_sec = 1200
env = {A = "task", B = "task"}
[[verifier.collect]]
command = "all"
[[steps]]
name = "one"
min_reward = 0.5
artifacts = ["/one"]
[steps.agent]
timeout_sec = 10
network_mode = "public"
[steps.verifier]
timeout_sec = 5
env = {B = "step"}
[[steps.verifier.collect]]
command = "one"
[steps.healthcheck]
command = "true"
[[steps]]
name = "two"
min_reward = {reward = 1, speed = 0.25}
`)
	got := f.must(t)
	one, two := got.Stages[0], got.Stages[1]
	for _, tt := range []struct{ name, got, want string }{
		{"how steps are reduced", string(got.Success.Reduce), "last"},
		{"instructions", one.Instruction[0].Text + two.Instruction[0].Text, "First.\nSecond.\n"},
		{"agent's times", one.Agent.Time.String() + " " + two.Agent.Time.String(), "10s 1m40s"},
		{"verifier's times; the task's is inherited when it is longer than Harbor's 600 s", one.Verify.Time.String() + " " + two.Verify.Time.String(), "5s 20m0s"},
		{"agent's users", one.Agent.User + " " + two.Agent.User, "worker worker"},
		{"agent's networks", string(got.NetworkOf(&one.Agent).Mode) + " " + string(got.NetworkOf(&two.Agent).Mode), "public none"},
		{"verifier's networks", string(got.NetworkOf(&one.Verify).Mode), "public"},
		{"verifier's variables", one.Verify.Env["A"].Text + " " + one.Verify.Env["B"].Text + " " + two.Verify.Env["B"].Text, "task step task"},
		{"minimum scores", fmt.Sprint(one.MinScores, two.MinScores), "map[reward:0.5] map[reward:1 speed:0.25]"},
		{"artifacts", fmt.Sprint(len(one.Artifacts), len(two.Artifacts)), "2 1"},
		{"hooks", fmt.Sprint(len(one.Hooks), len(two.Hooks)), "2 1"},
		{"solutions", one.Reference.Resource + " " + two.Reference.Resource, "steps/one/solution solution"},
		{"setup", fmt.Sprint(len(one.Setup), len(two.Setup)), "1 0"},
		{"healthchecks", fmt.Sprint(one.Healthcheck != nil, two.Healthcheck != nil), "true false"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, tt.got, tt.want)
		}
	}
	var placed []string
	for _, r := range got.Resources {
		placed = append(placed, fmt.Sprintf("%s>%s@%s:%s", r.Name, r.Place, r.Phase, r.Stage))
	}
	want := []string{
		"solution>/solution@turn:", "tests>/tests@verify:",
		"steps/one/tests>/tests@verify:one", "steps/one/workdir>.@setup:one", "steps/one/solution>/solution@turn:one",
	}
	if !slices.Equal(placed, want) {
		t.Errorf("resources are\n%v, want\n%v", placed, want)
	}
}

func TestStepsThatAreNotComplete(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		f    files
		want string
	}{
		{"no folder", stepped("").with("steps/two/instruction.md", ""), "Folder of a step is missing"},
		{"no instruction", stepped("").with("steps/two/instruction.md", "", "steps/two/tests/test.sh", "x"), "File is missing"},
		{"no test anywhere", stepped("").with("tests/test.sh", ""), "File is missing"},
	} {
		got, problems := tt.f.load(t, task.Options{})
		if got != nil || !slices.ContainsFunc(problems, func(p task.Problem) bool { return p.Summary == tt.want }) {
			t.Errorf("%s: got %v, %v; want %q", tt.name, got, problems, tt.want)
		}
	}
	_, problems := stepped("").with("steps/three/instruction.md", "x").load(t, task.Options{})
	if len(problems) != 1 || problems[0].File != "steps/three" {
		t.Errorf("a folder that no step names: %v", problems)
	}
}

func TestWhereVerificationRuns(t *testing.T) {
	t.Parallel()
	const separate = "[verifier]\nenvironment_mode = \"separate\"\n"
	for _, tt := range []struct {
		name string
		f    files
		want string // mode, image, Dockerfile's folder, files in the image
	}{
		{"shared by default", minimal(), "live"},
		{"by word: the agent's environment afresh", configured(separate), "separate  environment false"},
		{"by an environment", configured("[verifier.environment]\ncpus = 1"), "separate  environment false"},
		{"an image of its own", configured("[verifier.environment]\ndocker_image = \"x\""), "separate x  true"},
		{"tests that define an image", configured(separate).with("tests/Dockerfile", "FROM x"), "separate  tests true"},
		{"its image before its tests", configured("[verifier.environment]\ndocker_image = \"x\"").with("tests/Dockerfile", "FROM x"), "separate x  true"},
		{"a step's word", stepped("[steps.verifier]\nenvironment_mode = \"separate\""), "live separate  environment false"},
		{"a step's image before all", stepped("[steps.verifier.environment]\ndocker_image = \"s\"\n[verifier.environment]\ndocker_image = \"x\""), "separate x  true separate s  true"},
		{"a step's tests before the task's image", stepped("[verifier.environment]\ndocker_image = \"x\"").with("steps/two/tests/Dockerfile", "FROM x"), "separate x  true separate  steps/two/tests true"},
		{"a step that shares after all", stepped("[steps.verifier]\nenvironment_mode = \"shared\"\n[verifier.environment]\ncpus = 1"), "separate  environment false live"},
		{"shared, unless the experiment asks for more", minimal().with("tests/Dockerfile", "FROM x"), "live  tests true"},
		{"containers of its own", configured(separate).with("tests/Dockerfile", "FROM x", "tests/docker-compose.yaml", "services: {main: {}, key: {image: k}}"), "separate  tests true"},
		{"containers of its own, from an image", configured(separate).with("tests/docker-compose.yaml", "services: {main: {image: m}}"), "separate m tests true"},
	} {
		var got []string
		tk := tt.f.must(t)
		for i := range tk.Stages {
			s := &tk.Stages[i]
			got = append(got, string(s.Mode))
			if s.VerifyIn != nil {
				context := ""
				if s.VerifyIn.Build != nil {
					context = s.VerifyIn.Build.Context
				}
				got = append(got, s.VerifyIn.Image, context, fmt.Sprint(s.VerifyFilesInImage))
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, strings.Join(got, " "), tt.want)
		}
		if needs := tk.Needs(); strings.Contains(tt.want, "separate") != slices.ContainsFunc(needs, func(n task.Need) bool { return n.Feature == task.FeatureSeparate }) {
			t.Errorf("%s: needs are %v", tt.name, needs)
		}
	}
}

// A compose file with errors is named as the reason why a separate verification is
// refused, also if its main container is built from another folder.
func TestABrokenComposeFileOfTheVerifierIsNamed(t *testing.T) {
	t.Parallel()
	tk, problems := minimal().with(
		"tests/docker-compose.yaml", "services: {main: {build: ./grader}, side: {build: ./missing}}", "tests/grader/Dockerfile", "FROM x").load(t, task.Options{})
	if tk == nil {
		t.Fatal(problems)
	}
	if got := tk.Stages[0].VerifyIn.Compose; got != "tests/docker-compose.yaml" {
		t.Errorf("got %q, with %v", got, problems)
	}
}

func TestTestsInAnImageNeedNoScript(t *testing.T) {
	t.Parallel()
	configured("[verifier.environment]\ndocker_image = \"x\"").with("tests/test.sh", "").must(t)
}

func TestNetworkOfASeparateVerifierIsItsOwn(t *testing.T) {
	t.Parallel()
	tk := configured("[environment]\nnetwork_mode = \"no-network\"\n[verifier.environment]\ncpus = 1").must(t)
	if got := tk.NetworkOf(&tk.Stages[0].Verify).Mode; got != task.NetworkPublic {
		t.Errorf("got %s, want public, which is the default of [verifier.environment]", got)
	}
}

func TestEnvironments(t *testing.T) {
	t.Parallel()
	image := configured("[environment]\ndocker_image = \"x\"")
	for _, tt := range []struct {
		name string
		f    files
		want string // image, Dockerfile, compose file, files to upload
	}{
		{"a Dockerfile", minimal(), " Dockerfile  false"},
		{"an image, and nothing else", image.with("environment/Dockerfile", ""), "x   false"},
		{"an image and a Dockerfile", image, "x Dockerfile  false"},
		{"an image and loose files", image.with("environment/Dockerfile", "", "environment/data", "x"), "x   true"},
		{"compose", minimal().with("environment/docker-compose.yaml", "services: {main: {}, db: {image: x}}"), " Dockerfile  false"},
		{"compose, built elsewhere", minimal().with("environment/docker-compose.yaml", "services: {main: {build: {context: m, dockerfile: D}}}", "environment/m/D", "FROM x"), " D  false"},
		{"compose, ready image", minimal().with("environment/docker-compose.yaml", "services: {main: {image: x}}"), "x Dockerfile  false"},
	} {
		e := tt.f.must(t).Environment
		file := ""
		if e.Build != nil {
			file = e.Build.File
		}
		if got := fmt.Sprint(e.Image, " ", file, " ", e.Compose, " ", e.Upload); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	if got, _ := minimal().with("environment/Dockerfile", "", "environment/data", "x").load(t, task.Options{}); got != nil {
		t.Error("an environment of nothing is accepted")
	}
}

// A separate verification that sees nothing of what the agent did is warned of.
func TestASeparateVerificationWithoutArtifacts(t *testing.T) {
	t.Parallel()
	const separate = "[verifier]\nenvironment_mode = \"separate\"\n"
	for name, tt := range map[string]struct {
		f    files
		line int // 0: no warning
	}{
		"by word":                 {minimal().with("task.toml", "schema_version = \"1.4\"\n"+separate), 3},
		"by an environment":       {minimal().with("task.toml", "[verifier.environment]\ncpus = 1\n"), 1},
		"with an artifact":        {minimal().with("task.toml", "artifacts = [\"/app/x\"]\n"+separate), 0},
		"with a hook":             {minimal().with("task.toml", separate+"[[verifier.collect]]\ncommand = \"true\"\n"), 0},
		"told by the instruction": {minimal().with("task.toml", separate, "instruction.md", "Write to /logs/artifacts/x."), 0},
		"shared":                  {minimal(), 0},
	} {
		got, problems := tt.f.load(t, task.Options{})
		if got == nil || (len(problems) == 1) != (tt.line > 0) || tt.line > 0 && (problems[0].Line != tt.line || problems[0].Severity != task.Warning) {
			t.Errorf("%s: %+v, want a warning in line %d", name, problems, tt.line)
		}
	}
}

func TestWindowsIsParsedAndNamed(t *testing.T) {
	t.Parallel()
	tk := configured("[environment]\nos = \"windows\"").with("tests/test.sh", "", "tests/test.bat", "x").must(t)
	if needs := tk.Needs(); len(needs) == 0 || needs[0].Feature != task.FeatureWindows {
		t.Errorf("needs are %v", needs)
	}
}

func TestComposeFileOfAVerifier(t *testing.T) {
	t.Parallel()
	const separate = "[verifier]\nenvironment_mode = \"separate\"\n"
	own := minimal().with("tests/Dockerfile", "FROM x", "tests/docker-compose.yaml", strings.ReplaceAll(composed, "agent", "grader"), "tests/db/Dockerfile", "FROM y")
	for name, f := range map[string]files{"declared": own.with("task.toml", separate), "if asked": own} {
		tk := f.must(t)
		s := tk.Stages[0]
		e := s.VerifyIn
		if e == nil || e.Compose != "" || len(e.Sidecars) != 1 || e.Sidecars[0].Build.Context != "tests/db" || e.User != "grader" || tk.Healthcheck != nil ||
			s.VerifyHealthcheck == nil || s.VerifyHealthcheck.Argv[0] != "probe" || len(tk.Environment.Sidecars) > 0 {
			t.Errorf("%s: %+v, health %+v", name, e, s.VerifyHealthcheck)
		}
		if want := map[bool]string{true: "grader"}[name == "declared"]; s.Verify.User != want {
			t.Errorf("%s: the tests run as %q, want %q", name, s.Verify.User, want)
		}
	}
	afresh := configured(separate).with("environment/docker-compose.yaml", composed, "environment/db/Dockerfile", "FROM y").must(t)
	if e := afresh.Stages[0].VerifyIn; len(e.Sidecars) != 1 || e.Compose != "" || afresh.Stages[0].VerifyHealthcheck == nil || afresh.Healthcheck == nil {
		t.Errorf("the agent's containers afresh: %+v", e)
	}
	health := configured("[verifier.environment.healthcheck]\ncommand = \"probe\"").must(t).Stages[0]
	if health.VerifyHealthcheck == nil || health.Healthcheck != nil {
		t.Errorf("a healthcheck in task.toml: %+v", health)
	}
}

// An error in the compose file of a verifier breaks a task that asks for it, and
// no other one.
func TestComposeFileOfAVerifierWithProblems(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"services: {main: {privileged: true}}": "privileged is refused", "services: {key: {image: k}}": "Nothing says what the sandbox is made of",
		"services: [": "tests/docker-compose.yaml",
	} {
		f := minimal().with("tests/docker-compose.yaml", text)
		got, problems := f.with("task.toml", "[verifier]\nenvironment_mode = \"separate\"\n").load(t, task.Options{})
		if got != nil || !slices.ContainsFunc(problems, func(p task.Problem) bool { return strings.Contains(p.String(), want) }) {
			t.Errorf("%s: declared: %v; want %s", text, problems, want)
		}
		got, problems = f.load(t, task.Options{})
		if got == nil || len(problems) != 1 || problems[0].Severity != task.Warning || got.Stages[0].VerifyIn.Compose == "" {
			t.Errorf("%s: if asked: %v", text, problems)
		}
	}
}

// paths are the entries of a resource, links with their targets.
func paths(tk *task.Task, name string) string {
	var out []string
	for _, r := range tk.Resources {
		for _, e := range r.Entries {
			if r.Name == name {
				out = append(out, e.Path+e.Link+e.From)
			}
		}
	}
	return strings.Join(out, " ")
}

func TestIgnoreFilesAreInheritedDownwards(t *testing.T) {
	t.Parallel()
	f := minimal().with(
		"tests/.harborignore", "*.log\n/top\ncache/\n!keep.log\n",
		"tests/a.log", "x", "tests/keep.log", "x", "tests/top", "x",
		"tests/sub/a.log", "x", "tests/sub/top", "x", "tests/sub/cache/b", "x",
		"tests/sub/.harborignore", "!a.log\n*.txt\n", "tests/sub/c.txt", "x", "tests/c.txt", "x",
		"tests/link", "-> a.log",
		"solution/solve.sh", "true\n", "solution/a.log", "x",
		"environment/a.log", "x",
	)
	tk := f.must(t)
	if got, want := paths(tk, "tests"), "c.txt keep.log sub/a.log sub/top test.sh"; got != want {
		t.Errorf("tests: got %q, want %q", got, want)
	}
	if got, want := paths(tk, "solution"), "a.log solve.sh"; got != want {
		t.Errorf("solution: got %q, want %q", got, want)
	}
	got, problems := minimal().with("tests/.harborignore", "*.sh\n").load(t, task.Options{})
	if got != nil || problems[0].Summary != "Test script is ignored" {
		t.Errorf("a test script that is left out is accepted: %v", problems)
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	f := minimal().with(
		"tests/in", "-> test.sh", "tests/out", "-> ../environment/Dockerfile", "tests/folder", "-> ../solution",
		"solution/solve.sh", "true\n", "solution/deep/x", "x",
	)
	if got, want := paths(f.must(t), "tests"), "folder/deep/xsolution/deep/x folder/solve.shsolution/solve.sh intest.sh outenvironment/Dockerfile test.sh"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for name, target := range map[string]string{
		"absolute": "/etc/hostname", "above": "../../x", "back in": "../../sample/task.toml", "a chain": "hop", "no part of the task": "../notes",
	} {
		got, problems := minimal().with("tests/link", "-> "+target, "tests/hop", "-> /etc", "notes/a", "x").load(t, task.Options{})
		if got != nil || !slices.ContainsFunc(problems, func(p task.Problem) bool { return p.File == "tests/link" }) {
			t.Errorf("a link that is %s is accepted: %v", name, problems)
		}
	}
	if got, problems := minimal().with("tests/link", "-> /etc/hostname", "tests/.harborignore", "link\n").load(t, task.Options{}); got == nil {
		t.Errorf("a link that is left out anyway: %v", problems)
	}
	if got, _ := minimal().with("environment/link", "-> /etc").load(t, task.Options{}); got != nil {
		t.Error("stricter than Harbor: a link out of environment/ is accepted")
	}
}

// Ctrl-C does not wait for a file of a terabyte.
func TestALoadOfAHugeFileCanBeEnded(t *testing.T) {
	t.Parallel()
	dir := minimal().with("tests/huge", "x").write(t)
	if err := os.Truncate(filepath.Join(dir, "tests/huge"), 1<<40); err != nil {
		testlevel.Cannot(t, "the disk of the temporary folder holds no file of a terabyte: set TMPDIR to a folder on another one", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, _, err := (Format{}).Load(ctx, dir, task.Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
