package task

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// valid is a task that uses every part of the contract and breaks no rule.
func valid() *Task {
	atLeast := 0.5
	return &Task{
		Name: "org/a", Digest: digest, Dir: "/tasks/a", Format: "f",
		Stages: []Stage{
			{
				Name: "one", Instruction: []Part{{Text: "go"}, {Resource: "references/map.png", MediaType: "image/png"}},
				Agent:     Phase{Time: Seconds(60), Network: &Network{Mode: NetworkNone}},
				Verifiers: []VerifierUse{{Name: "script", Settings: json.RawMessage(`{}`)}},
				Mode:      ModeSeparate, VerifyIn: &Environment{OS: "linux", Network: Network{Mode: NetworkPublic}},
				Hooks:     []Command{{Service: "db", Argv: []string{"dump"}}},
				Artifacts: []Artifact{{Source: "/out", To: "out"}},
				Reference: &Reference{Resource: "solution", Argv: []string{"/solution/run"}},
				Surface:   &Surface{Steps: 5}, Captures: []Capture{{Name: "export"}},
				PriorTrajectory: "prior.json", MinScores: map[string]float64{"reward": 1},
			},
			{Name: "two", Instruction: []Part{{Text: "on"}}, Verifiers: []VerifierUse{{Name: "judge"}}, SameSession: true},
		},
		Resources: []Resource{
			{Name: "references/map.png", Path: "map.png", Audience: Public()},
			{Name: "solution", Path: "solution", Audience: []Role{RoleOracle}, Place: "/solution", Phase: PlaceTurn, Folder: true, Entries: []Entry{
				{Path: "a/link", Link: "../run", Mode: 0o777}, {Path: "run", Mode: 0o755, Size: 3},
			}},
			{Name: "tests", Path: "tests", Audience: []Role{RoleVerifier}, Secret: true, Place: "/tests", Phase: PlaceVerify, Folder: true},
			{Name: "prior.json", Path: "prior.json", Audience: []Role{RoleAgent}, Stage: "one"},
			{Name: "persona", Path: "persona.md", Audience: []Role{RoleUser}},
			{Name: "levels", Path: "levels"},
		},
		Environment: Environment{
			Image: "x", OS: "linux", Network: Network{Mode: NetworkAllow, Allow: []string{"a.com"}}, Users: []string{"1000", "bob"},
			Build: &Build{Context: "environment", File: "Dockerfile", Digest: digest}, Env: Text(map[string]string{"A": "b"}),
			Sidecars: []Sidecar{{Name: "db", Image: "pg"}}, Settings: json.RawMessage(`{"page": 1}`), Files: []string{"levels"},
		},
		Services:    []Service{{Name: "web", Command: Command{Argv: []string{"serve"}}, Ready: &Healthcheck{Argv: []string{"true"}}}},
		Healthcheck: &Healthcheck{Argv: []string{"true"}, Retries: 3},
		MCPServers:  []MCPServer{{Name: "m", Transport: "stdio", Command: "m"}, {Name: "n", Transport: "sse", URL: "http://n"}},
		Skills:      []Skill{{Dir: "/skills", FromImage: []string{"ocr"}}, {Resource: "references/map.png"}},
		Interaction: &Interaction{User: "persona", MaxFollowUps: 2, Charged: ChargedParts, After: AfterEnds, Hold: HoldCopy, Reduce: ReduceMean, Decide: ReduceMax},
		Success:     Success{Score: "reward", Reduce: ReduceMean, AtLeast: &atLeast},
		Paths:       Paths{Artifacts: "/logs/artifacts", Folders: []string{"/work/results"}},
		Metadata:    json.RawMessage(`{"difficulty": "easy"}`),
	}
}

func TestAValidTaskBreaksNoRule(t *testing.T) {
	t.Parallel()
	for _, p := range valid().Validate() {
		t.Error(p)
	}
}

// broken is what each rule is there for: a change of a valid task, by the key
// that the problem must name.
var broken = []struct {
	key   string
	spoil func(*Task)
}{
	{"name", func(t *Task) { t.Name = "a\nb" }},
	{"stages", func(t *Task) { t.Stages = nil }},
	{"stages[1].name", func(t *Task) { t.Stages[1].Name = "one" }},
	{"stages[0].name", func(t *Task) { t.Stages[0].Name = "a/b" }},
	{"stages[0].agent.network.allow", func(t *Task) { t.Stages[0].Agent.Network.Allow = []string{"a/b"} }},
	{"stages[1].verifiers", func(t *Task) { t.Stages[1].Verifiers = nil }},
	{"stages[0].hooks[0].service", func(t *Task) { t.Stages[0].Hooks[0].Service = "no" }},
	{"stages[0].hooks[0].argv", func(t *Task) { t.Stages[0].Hooks[0].Argv = nil }},
	{"stages[0].artifacts[0].to", func(t *Task) { t.Stages[0].Artifacts[0].To = "../x" }},
	{"stages[0].artifacts[0].source", func(t *Task) { t.Stages[0].Artifacts[0].Source = "/a/../b" }},
	{"stages[0].captures[0].name", func(t *Task) { t.Stages[0].Captures[0].Name = ".." }},
	{"resources[1].name", func(t *Task) { t.Resources[1].Name = "references/map.png" }},
	{"resources[0].name", func(t *Task) { t.Resources[0].Name = "attempt/x" }},
	{"resources[0].path", func(t *Task) { t.Resources[0].Path = "../map.png" }},
	{"resources[1].place", func(t *Task) { t.Resources[1].Place = "/a/../b" }},
	{"resources[1].entries[0].link", func(t *Task) { t.Resources[1].Entries[0].Link = "../../x" }},
	{"resources[1].entries[1].path", func(t *Task) { t.Resources[1].Entries[1].Path = "/x" }},
	{"resources[1].path", func(t *Task) { t.Resources[1].Path = "" }},
	{"environment.env", func(t *Task) { t.Environment.Env["A=B"] = Value{} }},
	{"environment.sidecars[0].name", func(t *Task) { t.Environment.Sidecars[0].Name = "main" }},
	{"environment.sidecars[0]", func(t *Task) { t.Environment.Sidecars[0].Image = "" }},
	{"environment.build.context", func(t *Task) { t.Environment.Build.Context = "/x" }},
	{"services[0].command.argv", func(t *Task) { t.Services[0].Command.Argv = nil }},
	{"mcp_servers[1].name", func(t *Task) { t.MCPServers[1].Name = "m" }},
}

func TestRules(t *testing.T) {
	t.Parallel()
	for _, tt := range broken {
		t.Run(tt.key, func(t *testing.T) {
			t.Parallel()
			tk := valid()
			tt.spoil(tk)
			ps := tk.Validate()
			if !slices.ContainsFunc(ps, func(p Problem) bool { return p.Key == tt.key && p.Severity == Error }) {
				t.Errorf("got %v; want a problem with %s", ps, tt.key)
			}
		})
	}
}

func TestJSONKeepsEverything(t *testing.T) {
	t.Parallel()
	in := valid()
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), in.Dir) {
		t.Errorf("the folder on this host is in the JSON: %s", raw)
	}
	var out Task
	if err = json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	out.Dir = in.Dir
	again, err := json.Marshal(&out)
	if err != nil || string(again) != string(raw) {
		t.Errorf("changed on the way, %v:\n%s\n%s", err, raw, again)
	}
}

func TestViews(t *testing.T) {
	t.Parallel()
	names := func(v *Task) string {
		var out []string
		for _, r := range v.Resources {
			out = append(out, r.Name)
		}
		return strings.Join(out, " ")
	}
	for _, tt := range []struct {
		role      Role
		stage     string
		resources string
		stages    int
	}{
		{RoleAgent, "one", "references/map.png prior.json", 1},
		{RoleAgent, "two", "references/map.png", 1},
		{RoleUser, "one", "references/map.png persona", 1},
		{RoleOracle, "one", "references/map.png solution prior.json", 1},
		{RoleVerifier, "one", "references/map.png tests", 2},
	} {
		v := valid().View(tt.role, tt.stage)
		if names(v) != tt.resources || len(v.Stages) != tt.stages {
			t.Errorf("%s in %s: got %q and %d stages, want %q and %d", tt.role, tt.stage, names(v), len(v.Stages), tt.resources, tt.stages)
		}
		if ref := v.Stages[0].Reference != nil; ref != (tt.role == RoleOracle) {
			t.Errorf("%s: has the reference: %v", tt.role, ref)
		}
		if tt.role != RoleVerifier && (v.Stages[0].Verifiers != nil || v.Metadata != nil || v.Environment.Settings != nil || v.Success.Score != "") {
			t.Errorf("%s sees how the task is graded: %+v", tt.role, v)
		}
	}
}

func TestModesAreOrderedByStrength(t *testing.T) {
	t.Parallel()
	order := []Mode{ModeLive, ModeRestarted, ModeImage, ModeSeparate}
	for i, a := range order {
		for j, b := range order {
			if a.Stronger(b) != (i > j) {
				t.Errorf("%s stronger than %s: %v", a, b, a.Stronger(b))
			}
		}
		if a.Stronger(ModeCopies) || ModeCopies.Stronger(a) {
			t.Errorf("copies is compared with %s", a)
		}
	}
}

func TestEnvResolve(t *testing.T) {
	t.Parallel()
	def := "d"
	lookup := func(name string) (string, bool) { return "v" + name, name == "SET" }
	for _, tt := range []struct {
		name  string
		value Value
		want  string
		err   string
	}{
		{"text", Value{Text: "a"}, "a", ""},
		{"set", Value{Host: "SET"}, "vSET", ""},
		{"default", Value{Host: "UNSET", Default: &def}, "d", ""},
		{"not set", Value{Host: "UNSET"}, "", "X: host variable UNSET is not set"},
		{"joined", Value{Parts: []Value{{Text: "Bearer "}, {Host: "SET"}, {Host: "U", Default: &def}}}, "Bearer vSETd", ""},
		{"joined and not set", Value{Parts: []Value{{Text: "a"}, {Host: "UNSET"}}}, "", "UNSET"},
	} {
		got, err := Env{"X": tt.value}.Resolve(lookup)
		if got["X"] != tt.want || (err == nil) != (tt.err == "") || (err != nil && !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%s: got %q, %v; want %q, error with %q", tt.name, got["X"], err, tt.want, tt.err)
		}
	}
	e := Env{"A": {Host: "B"}, "C": {Parts: []Value{{Host: "D"}, {Host: "B"}}}, "E": {Text: "F"}}
	if got := strings.Join(e.HostVars(), " "); got != "B D" {
		t.Errorf("host variables are %q", got)
	}
}

func TestDurationIsText(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(Seconds(90.5))
	var d Duration
	if err != nil || string(raw) != `"1m30.5s"` || json.Unmarshal(raw, &d) != nil || d.Std() != 90500*time.Millisecond {
		t.Errorf("got %s, %v, %v", raw, d, err)
	}
	if err := json.Unmarshal([]byte(`"5 minutes"`), &d); err == nil || !strings.Contains(err.Error(), `"90s"`) {
		t.Errorf("got %v", err)
	}
}

func TestProblemIsOneLine(t *testing.T) {
	t.Parallel()
	p := Problem{File: "task.toml", Line: 3, Column: 1, Severity: Warning, Summary: "Unknown key", Detail: "Did you mean x?"}
	if got := p.String(); got != "task.toml:3:1: warning: Unknown key. Did you mean x?" {
		t.Errorf("got %q", got)
	}
}

// marked is a format whose tasks are folders with a file "name".
type marked struct{}

func (marked) Name() string { return "marked" }

func (marked) Detect(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "name"))
	return err == nil
}

func (marked) Load(_ context.Context, dir string, _ Options) (*Task, []Problem, error) {
	data, err := os.ReadFile(filepath.Join(dir, "name"))
	switch {
	case err != nil:
		return nil, nil, err
	case len(data) == 0:
		return nil, []Problem{{File: "name", Severity: Error, Summary: "Empty"}}, nil
	}
	return &Task{Name: string(data), Dir: dir}, nil, nil
}

// dataset makes the folders of a dataset by path; "-" is one without a task.
func dataset(t *testing.T, names map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for p, name := range names {
		dir := filepath.Join(root, p)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if name == "-" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "name"), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// items are the paths of a listing, ! for invalid ones.
func items(l Listing) string {
	var out []string
	for _, it := range l.Items {
		if it.Task == nil {
			it.Path += "!"
		}
		out = append(out, it.Path)
	}
	return strings.Join(out, " ")
}

func TestList(t *testing.T) {
	t.Parallel()
	root := dataset(t, map[string]string{
		"a": "org/a", "b": "", "group/c": "org/c", "group/again": "org/a", ".hidden/x": "h", "group/c/inside": "no", "other/deep": "-",
	})
	if err := os.Symlink("../elsewhere", filepath.Join(root, "dangling")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name             string
		include, exclude []string
		want             string // items, ! for invalid
		unwanted         int
		err              string
	}{
		{"everything", nil, nil, "a b! group/again! group/c", 0, ""},
		{"by folder", []string{"a", "b"}, nil, "a b!", 2, ""},
		{"by path", []string{"group/*"}, nil, "group/again group/c", 2, ""},
		{"by name", []string{"org/c"}, nil, "group/c", 3, ""},
		{"an invalid one by its name", []string{"org/b"}, nil, "b!", 3, ""},
		{"all of an owner, also an invalid one", []string{"org/*"}, []string{"org/a"}, "b! group/c", 2, ""},
		{"exclude wins", []string{"*", "group/*"}, []string{"b", "again"}, "a group/c", 2, ""},
		{"nothing matches", []string{"z*"}, nil, "", 0, "it has a, b, group/again, group/c; 1 of them cannot be read, and their names are not known: b: name: Empty"},
		{"nothing is excluded", nil, []string{"b", "z*"}, "", 0, `exclude "z*" matches no task of`},
		{"a malformed pattern", nil, []string{"["}, "", 0, "syntax error"},
	} {
		l, err := List(t.Context(), marked{}, root, ListOptions{Include: tt.include, Exclude: tt.exclude})
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: got %v, want an error with %q", tt.name, err, tt.err)
			}
			continue
		}
		if err != nil || items(l) != tt.want || len(l.Unwanted) != tt.unwanted {
			t.Errorf("%s: got %v, %v, %v; want %s and %d unwanted", tt.name, items(l), l.Unwanted, err, tt.want, tt.unwanted)
		}
		if len(l.Other) != 1 || l.Other[0] != "other/deep" {
			t.Errorf("%s: folders without tasks are %v", tt.name, l.Other)
		}
	}
}

func TestListLooksDeepAndSaysWhereItDidNot(t *testing.T) {
	t.Parallel()
	levels := func(n int) string { return strings.TrimSuffix(strings.Repeat("d/", n), "/") }
	root := dataset(t, map[string]string{
		"one/" + levels(6): "org/six", "two/" + levels(MaxDepth-1): "org/deepest", "three/" + levels(MaxDepth): "org/too-deep",
	})
	if err := os.Symlink("../../../../one", filepath.Join(root, "two", filepath.FromSlash(levels(3)), "link")); err != nil {
		t.Fatal(err)
	}
	l, err := List(t.Context(), marked{}, root, ListOptions{})
	if want := "one/" + levels(6) + " two/" + levels(MaxDepth-1); err != nil || items(l) != want {
		t.Errorf("got %s, %v; want %s", items(l), err, want)
	}
	if want := []string{"three/" + levels(MaxDepth), "two/" + levels(3) + "/link"}; !slices.Equal(l.Deep, want) || len(l.Other) != 0 {
		t.Errorf("not looked into: %v, without tasks: %v; want %v and none", l.Deep, l.Other, want)
	}
}

func TestListOfATaskItself(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "name"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := List(t.Context(), marked{}, root, ListOptions{})
	if err != nil || len(l.Items) != 1 || l.Items[0].Path != "." || l.Items[0].Name() != "x" || l.Items[0].Task == nil {
		t.Errorf("got %+v, %v", l, err)
	}
	if _, err := List(t.Context(), marked{}, filepath.Join(root, "gone"), ListOptions{}); err == nil {
		t.Error("a folder that is not there is no error")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := List(ended, marked{}, root, ListOptions{}); err == nil {
		t.Error("an ended context is not an error")
	}
}

// A link to a folder that it is in would show the same tasks again, as many
// times as there are ways to them.
func TestListFollowsNoLinkToAFolderAbove(t *testing.T) {
	t.Parallel()
	root := dataset(t, map[string]string{"a": "one", "group/b": "two", "group/other": "-"})
	elsewhere := dataset(t, map[string]string{"c": "three"})
	for name, to := range map[string]string{"loop": ".", "group/up": "..", "group/loop": "loop", "dead": "/nowhere/at/all", "more": elsewhere} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	l, err := List(t.Context(), marked{}, root, ListOptions{})
	if err != nil || items(l) != "a group/b more/c" {
		t.Errorf("got %s, %v", items(l), err)
	}
}

func TestListOfAFolderThatMayNotBeRead(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 {
		t.Skip("root may read everything: run the tests as another user")
	}
	root := dataset(t, map[string]string{"a": "one", "b": "two"})
	closed := filepath.Join(root, "b")
	if err := os.Chmod(closed, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(closed, 0o700) }) //nolint:gosec // a folder, so that it can be removed
	if _, err := List(t.Context(), marked{}, root, ListOptions{}); err == nil || !strings.Contains(err.Error(), "make the folder readable") {
		t.Errorf("got %v", err)
	}
}
