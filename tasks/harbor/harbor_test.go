package harbor

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/task/tasktest"
)

// files are the content of a task's folder by path. A value that begins with
// "-> " is a link, one that is "dir" an empty folder.
type files map[string]string

// minimal is the smallest valid task.
func minimal() files {
	return files{
		"task.toml":              "",
		"instruction.md":         "Do it.\n",
		"environment/Dockerfile": "FROM debian\n",
		"tests/test.sh":          "echo 1 > /logs/verifier/reward.txt\n",
	}
}

// with returns a copy of f with these paths set; an empty value removes one.
func (f files) with(pairs ...string) files {
	out := files{}
	maps.Copy(out, f)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			delete(out, pairs[i])
		} else {
			out[pairs[i]] = pairs[i+1]
		}
	}
	return out
}

// stepped is a task of two steps.
func stepped(toml string) files {
	return minimal().with(
		"instruction.md", "",
		"task.toml", "[[steps]]\nname = \"one\"\n[[steps]]\nname = \"two\"\n"+toml,
		"steps/one/instruction.md", "First.\n",
		"steps/two/instruction.md", "Second.\n",
	)
}

func (f files) write(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "sample")
	for name, content := range f {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		target, isLink := strings.CutPrefix(content, "-> ")
		switch {
		case isLink:
			err = os.Symlink(target, p)
		case content == "dir":
			err = os.MkdirAll(p, 0o755)
		default:
			err = os.WriteFile(p, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (f files) load(t *testing.T, o task.Options) (*task.Task, []task.Problem) {
	t.Helper()
	got, problems, err := Format{}.Load(t.Context(), f.write(t), o)
	if err != nil {
		t.Fatal(err)
	}
	return got, problems
}

// must loads a task that has to be valid.
func (f files) must(t *testing.T) *task.Task {
	t.Helper()
	got, problems := f.load(t, task.Options{})
	if got == nil {
		t.Fatalf("not valid: %v", problems)
	}
	return got
}

// configured is the minimal task with this task.toml.
func configured(text string) files {
	f := minimal()
	f["task.toml"] = text
	return f
}

func TestFormatKeepsItsPromises(t *testing.T) {
	t.Parallel()
	const samples = "../../examples/quickstart/tasks/"
	tasktest.Run(t, tasktest.Subject{
		Format: Format{},
		Good: []string{
			samples + "hello-file", samples + "fix-script", samples + "isolation",
			stepped("").with("steps/one/tests/test.sh", "true\n", "steps/one/workdir/setup.sh", "true\n", "solution/solve.sh", "true\n",
				"tests/link", "-> test.sh", "tests/shared", "-> ../environment", "tests/empty", "dir").write(t),
			minimal().with("trajectory.json", prior, "solution/solve.sh", "true\n").write(t),
			stepped(everything).write(t),
		},
		Broken: []string{
			configured("foo = 1\n").write(t),
			minimal().with("task.toml", "").write(t),
			minimal().with("instruction.md", "").write(t),
			minimal().with("tests/test.sh", "").write(t),
			minimal().with("environment/Dockerfile", "").write(t),
			configured("[environment.env]\nA = \"${1HOME}\"\n").write(t),
		},
	})
}

// everything says something about all that a task with steps can have.
const everything = `min_reward = {}
artifacts = ["a", {source = "b", exclude = []}]
[task]
name = "org/n"
keywords = []
authors = []
[metadata]
when = 2026-01-02T03:04:05Z
text = "<&>"
list = [{}]
[agent]
user = 7
[verifier]
env = {}
[verifier.environment]
mcp_servers = []
[solution]
env = {A = "<b>"}
[environment]
network_mode = "allowlist"
allowed_hosts = []
gpu_types = []
[environment.healthcheck]
command = "true"
[[environment.mcp_servers]]
name = "m"
url = "http://m"
args = []
headers = {}
`

// Worked out by hand:
//
//	sha256sum environment/Dockerfile instruction.md task.toml tests/test.sh
//	    2e82491658394d2a150ac8f92efb200f230f6f97b7a6d5b7707893fa495c0b63  environment/Dockerfile
//	    d4cfd6ddae967cf477ca2e10b9c2ac3d291cd89cfc2d425ca6833de32185535f  instruction.md
//	    e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  task.toml
//	    c44090c3f318c724c480b810801ef2974b32e2b9ee7ca29ca861cedd6896f798  tests/test.sh
//	for f in environment/Dockerfile instruction.md task.toml tests/test.sh; do
//	    printf '%s\0%s\n' $f $(sha256sum < $f | cut -d ' ' -f 1)
//	done | sha256sum
func TestDigestIsThatOfHarborsPackage(t *testing.T) {
	t.Parallel()
	const want = "sha256:e53652ef275cbeae7291824d7fc65b02e75e1640c07a70de64762fdd8f28b18d"
	base := minimal().with("tests/test.sh", "echo 1\n")
	for _, tt := range []struct {
		name string
		f    files
		same bool
	}{
		{"the files alone", base, true},
		{"with files that are ignored by default", base.with("tests/__pycache__/a.pyc", "x", "tests/b.swp", "x"), true},
		{"with files that are not part of a task", base.with("notes.txt", "x", "docs/a.md", "x"), true},
		{"with an ignore file, which never reaches a sandbox", base.with("tests/.harborignore", "*.log\n", "tests/a.log", "x"), true},
		{"with an empty folder", base.with("tests/empty", "dir"), true},
		{"with a file ignored by the task itself", base.with(".gitignore", "*.log\n", "tests/a.log", "x"), true},
		{"with a file that the task's own list no longer ignores", base.with(".gitignore", "*.log\n", "tests/a.pyc", "x"), false},
		{"with a README", base.with("README.md", "x"), false},
		{"with a solution", base.with("solution/solve.sh", "x"), false},
		{"with a link to a file", base.with("tests/link.sh", "-> test.sh"), false},
		{"with another byte", base.with("instruction.md", "Do it!\n"), false},
	} {
		if got := tt.f.must(t).Digest; (got == want) != tt.same {
			t.Errorf("%s: digest %s, equal to %s: want %v", tt.name, got, want, tt.same)
		}
	}
}

func TestMinimalTask(t *testing.T) {
	t.Parallel()
	got := minimal().must(t)
	s := got.Stages[0]
	if got.Name != "sample" || len(got.Stages) != 1 || s.Instruction[0].Text != "Do it.\n" || s.Mode != task.ModeLive ||
		s.Agent.Time != 0 || s.Verify.Time.String() != "10m0s" || s.Reference != nil {
		t.Errorf("got %+v", got)
	}
	if got.Success.Score != "reward" || *got.Success.AtLeast != 1 || got.Environment.Network.Mode != task.NetworkPublic {
		t.Errorf("got %+v, %+v", got.Success, got.Environment.Network)
	}
	var script task.Script
	if err := json.Unmarshal(s.Verifiers[0].Settings, &script); err != nil || len(script.Rewards) != 2 ||
		script.Rewards[0].Path != "/logs/verifier/reward.json" || script.Command[len(script.Command)-1] != "/tests/test.sh" {
		t.Errorf("settings of the verifier: %s, %v", s.Verifiers[0].Settings, err)
	}
}

// The test script says where pytest and others write their results.
func TestReportsOfTheTestScript(t *testing.T) {
	t.Parallel()
	usual := []task.TestReport{{Path: "/logs/verifier/ctrf.json"}, {Path: "/logs/verifier/junit.xml"}}
	for script, want := range map[string][]task.TestReport{
		"true\n": usual,
		"uvx -w pytest pytest --ctrf /logs/verifier/ctrf.json /tests -rA\n":           {{Path: "/logs/verifier/ctrf.json", Expected: true}, usual[1]},
		"pytest --junitxml=\"/logs/verifier/r.xml\"; pytest --junit-xml /tmp/a.xml\n": {{Path: "/logs/verifier/r.xml", Expected: true}, {Path: "/tmp/a.xml", Expected: true}, usual[0], usual[1]},
		"pytest --ctrf ctrf.json --junitxml=$OUT/x.xml --junitxml /a/../b.xml\n":      usual,
	} {
		got := minimal().with("tests/test.sh", script).must(t)
		var s task.Script
		if err := json.Unmarshal(got.Stages[0].Verifiers[0].Settings, &s); err != nil || !slices.Equal(s.Reports, want) {
			t.Errorf("%q: reports %+v, %v; want %+v", script, s.Reports, err, want)
		}
	}
}

func TestTestsAndSolutionAreExecutableWhateverTheirMode(t *testing.T) {
	t.Parallel()
	got := minimal().with("solution/solve.sh", "true\n", "tests/data.txt", "x").must(t)
	for _, r := range got.Resources {
		for _, e := range r.Entries {
			if script := strings.HasSuffix(e.Path, ".sh"); script != (e.Mode&0o111 != 0) {
				t.Errorf("%s/%s has mode %o", r.Name, e.Path, e.Mode)
			}
		}
	}
	if ref := got.Stages[0].Reference; ref == nil || ref.Resource != "solution" {
		t.Errorf("reference is %+v", ref)
	}
}

func TestCanaryLinesAreNotForTheAgent(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want string }{
		{"none", "Do it.\n", "Do it.\n"},
		{"as a comment of HTML", "<!-- benchmark CANARY guid 1 -->\n\nDo it.\n", "Do it.\n"},
		{"as a hash line", "# canary 1\n  # Canary 2\n\n\nDo it.\n", "Do it.\n"},
		{"a heading stays", "# Do it\n\nNow.\n", "# Do it\n\nNow.\n"},
		{"further down it stays", "Do it.\n# canary\n", "Do it.\n# canary\n"},
		{"after a blank line it stays", "# canary\n\n# canary\nDo it.\n", "# canary\nDo it.\n"},
		{"blank lines on top", "\n \nDo it.\n", "Do it.\n"},
		{"lines end with a newline alone", "<!-- canary -->\r\n\r\nOne.\r\nTwo.\r\n", "One.\nTwo.\n"},
		{"an open comment stays", "<!-- canary\n-->\nDo it.\n", "<!-- canary\n-->\nDo it.\n"},
	} {
		if got := minimal().with("instruction.md", tt.in).must(t).Stages[0].Instruction[0].Text; got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

const prior = `{"agent": {"name": "a", "version": "1"}, "steps": [{"step_id": 1, "source": "user", "message": "hi"}]}`

func TestPriorTrajectory(t *testing.T) {
	t.Parallel()
	got := minimal().with("trajectory.json", prior).must(t)
	if got.Stages[0].PriorTrajectory != "prior/trajectory.json" {
		t.Errorf("got %q", got.Stages[0].PriorTrajectory)
	}
	got = stepped("").with("steps/one/trajectory.json", prior).must(t)
	if got.Stages[0].PriorTrajectory == "" || got.Stages[1].PriorTrajectory != "" {
		t.Errorf("got %+v", got.Stages)
	}
	if got, ps := minimal().with("trajectory.json", "{}").load(t, task.Options{}); got != nil || !strings.Contains(ps[0].Detail, "steps") {
		t.Errorf("an invalid one is accepted, or not explained: %v", ps)
	}
	_, ps := stepped("").with("steps/two/trajectory.json", prior, "trajectory.json", prior).load(t, task.Options{})
	if len(ps) != 2 {
		t.Errorf("two files without effect, and these problems: %v", ps)
	}
}

func TestDetect(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		f    files
		want bool
	}{
		{"a task", minimal(), true},
		{"only a task.toml", files{"task.toml": "x"}, true},
		{"no task.toml", files{"instruction.md": "x", "tests/a": "x"}, true},
		{"only tests", files{"tests/a": "x"}, false},
		{"something else", files{"README.md": "x", "a/b": "x"}, false},
	} {
		if got := (Format{}).Detect(tt.f.write(t)); got != tt.want {
			t.Errorf("%s: got %v", tt.name, got)
		}
	}
}

func TestATaskWithoutAWordIsForAgentsWithoutAModel(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"\r\n", "# canary\n"} {
		made, problems := minimal().with("instruction.md", text).load(t, task.Options{})
		if made == nil || len(made.Stages[0].Instruction) != 0 || len(problems) != 1 || problems[0].Severity != task.Warning {
			t.Errorf("%q: %+v, %v; want a task with a warning", text, made, problems)
		}
	}
}
