package uniclaw

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/task/tasktest"
	"github.com/berth-eval/berth/tasks/internal/document"
	"github.com/berth-eval/berth/tasks/internal/pagetest"
)

const sample = "tasks/101_office/sort-letters.yaml"

// least is a task without anything that can be left out.
const least = `task_id: t
category: c
task: Do it.
references: [references/eval_rule.md]
`

// dataset writes the files of a dataset with the task c/t, beside its rubric.
func dataset(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	all := map[string]string{"tasks/c/t.yaml": least, "injection/c/t/references/eval_rule.md": "The rule.\n"}
	maps.Copy(all, files)
	for name, text := range all {
		if text == "-" {
			continue // not there
		}
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestConformance(t *testing.T) {
	t.Parallel()
	broken := dataset(t, map[string]string{"tasks/101_office/sort-letters.yaml": "task_id: [\n"})
	tasktest.Run(t, tasktest.Subject{Format: Format{}, Good: []string{"testdata/good"}, Broken: []string{broken}, File: sample})
}

func load(t *testing.T, dir, file, config string) *task.Task {
	t.Helper()
	o := task.Options{}
	if config != "" {
		o.Config = json.RawMessage(config)
	}
	got, problems, err := Format{}.Load(t.Context(), filepath.Join(dir, file), o)
	if err != nil || got == nil {
		t.Fatalf("%v, %v", problems, err)
	}
	return got
}

func TestATaskHasWhatItsFileSays(t *testing.T) {
	t.Parallel()
	got := load(t, "testdata/good", sample, "")
	s := &got.Stages[0]
	if got.Name != "101_office/sort-letters" || got.File != sample || got.Category != "101_office" || !filepath.IsAbs(got.Dir) {
		t.Errorf("%s, %s in %s, %+v", got.Name, got.File, got.Dir, got.Labels)
	}
	if s.Agent.Time.Std() != 10*time.Minute || got.Interaction.Total.Std() != 15*time.Minute || got.Interaction.MaxFollowUps != 3 {
		t.Errorf("%s, %+v", s.Agent.Time, got.Interaction)
	}
	if in := got.Interaction; !in.Charges("copy") || !in.Charges("wait") || in.Charges("judge") || !in.Follows("timeout") || in.Hold != task.HoldCopy || in.Persona != "A busy person who answers in one sentence." || s.Agent.Stall.Std() != 10*time.Minute {
		t.Errorf("%+v, %+v", in, s.Agent)
	}
	text := s.Instruction[0].Text
	for _, want := range []string{"/tmp_workspace/results", "/tmp_workspace/clawbench/sources", "- /root/skills/tables\n- /root/skills/web-search\n", "without a tool call", "by their date"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the instruction:\n%s", want, text)
		}
	}
	want := task.Env{"MAIL_USER": {Host: "MAIL_USER"}, "MAIL_PASSWORD": {Host: "MAIL_PASSWORD"}, "SNAPSHOT_MODE": {Text: "0"}}
	if !reflect.DeepEqual(s.Agent.Env, want) || !reflect.DeepEqual(got.Services[1].Command.Env, want) {
		t.Errorf("environment %v, of a service %v", s.Agent.Env, got.Services[1].Command.Env)
	}
	if string(s.Verifiers[0].Settings) != `{"instructions":"Open every file before you judge.","rubric":"references/eval_rule.md"}` || string(s.Verifiers[1].Settings) != `{"threshold":0.9}` {
		t.Errorf("verifiers %s, %s", s.Verifiers[0].Settings, s.Verifiers[1].Settings)
	}
	if len(got.Services) != 2 || got.Services[0].Oneshot || !got.Services[1].Oneshot || got.Services[1].Command.Time.Std() != 20*time.Minute ||
		got.Services[1].Command.Dir != "/opt/clawbench/.harness/services/sort-letters/mail" {
		t.Errorf("services %+v", got.Services)
	}
	for _, want := range []string{`"agent_sys":"nanobot"`, `"reasoning_effort":"high"`} {
		if !strings.Contains(string(got.Metadata), want) {
			t.Errorf("%s is not in %s", want, got.Metadata)
		}
	}
}

// Neither the agent nor the user sees how they are judged, or who the user is.
func TestWhatEachRoleSees(t *testing.T) {
	t.Parallel()
	got := load(t, "testdata/good", sample, "")
	for role, want := range map[task.Role]string{task.RoleAgent: "skills/tables skills/web-search sources", task.RoleVerifier: "references/eval_rule.md skills/tables skills/web-search sources", task.RoleUser: "sources"} {
		var names []string
		for _, r := range got.View(role, "main").Resources {
			names = append(names, r.Name)
		}
		raw, err := json.Marshal(got.View(role, "main"))
		if err != nil {
			t.Fatal(err)
		}
		for _, hidden := range []string{"busy person", "Open every file", "eval_rule", "server.py", "threshold"} {
			if role != task.RoleVerifier && strings.Contains(string(raw), hidden) {
				t.Errorf("%s sees %q", role, hidden)
			}
		}
		if slices.Sort(names); strings.Join(names, " ") != want {
			t.Errorf("%s sees %q, want %s", role, names, want)
		}
	}
}

func TestWhatIsLeftOutHasItsUsualValue(t *testing.T) {
	t.Parallel()
	got := load(t, dataset(t, nil), "tasks/c/t.yaml", "")
	if s := &got.Stages[0]; s.Agent.Time.Std() != 20*time.Minute || got.Interaction.Total.Std() != 30*time.Minute || got.Interaction.MaxFollowUps != 2 ||
		!strings.Contains(string(s.Verifiers[1].Settings), `"threshold":1`) || got.Skills != nil || got.Services != nil || s.Agent.Env != nil {
		t.Errorf("%+v", got)
	}
}

// The settings of a dataset say which sources and which instruction a task has.
func TestSettings(t *testing.T) {
	t.Parallel()
	entries := func(tk *task.Task) (paths []string) {
		for i := range tk.Resources {
			if tk.Resources[i].Name == "sources" {
				for _, e := range tk.Resources[i].Entries {
					paths = append(paths, e.Path)
				}
			}
		}
		return paths
	}
	live, kept := load(t, "testdata/good", sample, ""), load(t, "testdata/good", sample, `{"snapshot": true, "image": "claw:1"}`)
	if got := entries(live); !slices.Equal(got, []string{"inbox.json", "sub/note.txt"}) {
		t.Errorf("live: %q", got)
	}
	if got := entries(kept); !slices.Equal(got, []string{"inbox.json", "inbox_snapshot.json", "sub/note.txt"}) {
		t.Errorf("snapshot: %q", got)
	}
	if !strings.Contains(kept.Stages[0].Instruction[0].Text, "the copy of the inbox") || kept.Environment.Image != "claw:1" || live.Environment.Image != "" {
		t.Errorf("%q, %q", kept.Stages[0].Instruction[0].Text, kept.Environment.Image)
	}
	if kept.Stages[0].VerifyIn != nil {
		t.Errorf("the supervisor has the environment %+v", kept.Stages[0].VerifyIn)
	}
	if in := load(t, "testdata/good", sample, `{"image": "claw:1", "judge_image": "office:1"}`).Stages[0].VerifyIn; in == nil || in.Image != "office:1" || in.Network.Mode != task.NetworkNone {
		t.Errorf("the supervisor has the environment %+v", in)
	}
	if kept.Interaction.Hold != "" {
		t.Errorf("without live sites the sandbox stands still until %s", kept.Interaction.Hold)
	}
	if live.Digest != kept.Digest {
		t.Error("settings change the digest of the content")
	}
	dir := dataset(t, map[string]string{"tasks/c/a_template.yaml": "", "tasks/c/b.yml": "", "tasks/c/.hidden.yaml": "", "tasks/README.md": "", "tasks/a.b/x.yaml": ""})
	for config, want := range map[string]string{"": "tasks/a.b/x.yaml tasks/c/a_template.yaml tasks/c/t.yaml", `{"published_list": true}`: "tasks/a.b/x.yaml tasks/c/t.yaml"} {
		found, err := Format{}.Find(t.Context(), dir, task.Options{Config: json.RawMessage(config)})
		if err != nil || strings.Join(found, " ") != want {
			t.Errorf("%s: %q, %v; want %s", config, found, err, want)
		}
	}
}

// What is wrong with a task is reported by file and line.
func TestWhatIsWrongIsReportedByFileAndLine(t *testing.T) {
	t.Parallel()
	const rest = "references: [references/eval_rule.md]\n"
	reported(t, map[string]wrong{
		"an unknown key":            {text: least + "timeout_second: 5\n", want: []string{`tasks/c/t.yaml:5:1: Unknown key: "timeout_second" is not known here. Did you mean "timeout_seconds"?`}},
		"an unknown key of a block": {text: least + "codex:\n  supervisors: {}\n", want: []string{`tasks/c/t.yaml:6:3: Unknown key: "supervisors" is not known here. Did you mean "supervisor"?`}},
		"a key of another version":  {text: least + "privacy: [A]\n", want: []string{"tasks/c/t.yaml:5:1: Key is refused. Name the variables"}},
		"the live task":             {text: least + "task_live: x\n", want: []string{"tasks/c/t.yaml:5:1: Key is refused. Write the instruction under task"}},
		"a path out of the task":    {text: least + "sources: [../x]\n", want: []string{`tasks/c/t.yaml:5:11: Path leaves the task's files: "../x"`}},
		"an absolute path":          {text: least + "sources: [/etc/passwd]\n", want: []string{`tasks/c/t.yaml:5:11: Path leaves the task's files: "/etc/passwd"`}},
		"a hidden way out":          {text: least + "sources: [sources/../../../x]\n", want: []string{"Path leaves the task's files"}},
		"tests as sources":          {text: least + "sources: [references/eval_rule.md]\n", want: []string{"tasks/c/t.yaml:5:11: File is missing. There is no sources/references/eval_rule.md in injection/c/t."}},
		"headed: maybe":             {text: least + "headed: maybe\n", want: []string{`tasks/c/t.yaml:5:1: Wrong value: headed is "maybe": write one of auto, true, false.`}},
		"a recording and no window": {
			text: least + "recording: high\nheaded: false\n", want: []string{"tasks/c/t.yaml:6:1: Settings contradict each other"},
		},
		"no such skill":      {text: least + "skills: [ocr]\n", want: []string{`tasks/c/t.yaml:5:10: Skill is missing. There is no skills/ocr in injection/c/t, and "ocr" is not one of the base skills: agent-browser-control, `}},
		"a way to a skill":   {text: least + "skills: [web-search, ../web-search]\n", want: []string{`tasks/c/t.yaml:5:22: Path leaves the task's files: "../web-search"`}},
		"not a base skill":   {text: least + "skills: [x/web-search]\n", want: []string{"Skill is missing. There is no skills/x/web-search"}},
		"a file as a skill":  {text: least + "skills: [ocr]\n", files: map[string]string{"injection/c/t/skills/ocr": "x"}, want: []string{"tasks/c/t.yaml:5:10: Not a skill: skills/ocr must be a folder"}},
		"all skills at once": {text: least + "skills: [skills]\n", files: map[string]string{"injection/c/t/skills/ocr/SKILL.md": "x"}, want: []string{"Not a skill"}},
		"two skills of one name": {
			text: least + "skills: [a/ocr, ocr]\n", files: map[string]string{"injection/c/t/skills/ocr/SKILL.md": "x", "injection/c/t/skills/a/ocr/SKILL.md": "x"},
			want: []string{`tasks/c/t.yaml:5:17: Two skills of one name: "ocr" would be placed in /root/skills/ocr, as skills/a/ocr is.`},
		},
		"a huge file": {text: least + strings.Repeat("#\n", 3<<20), want: []string{"tasks/c/t.yaml:1: File cannot be read. It is larger than 1 MiB."}},
		"huge names":  {text: least, files: map[string]string{"injection/c/t/.privacy": strings.Repeat("#\n", 3<<20)}, want: []string{"injection/c/t/.privacy:1: File cannot be read. It is larger than 1 MiB."}},
		"not only ASCII": {
			text: "task_id: 任务\ncategory: c\ntask: x\n" + rest, want: []string{`tasks/c/t.yaml:1:1: Not an id: task_id is "任务": use letters`},
		},
		"a pointer": {
			text: least, files: map[string]string{"injection/c/t/sources/a.bin": "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"},
			want: []string{"injection/c/t/sources/a.bin:1: File is a pointer of git-LFS"},
		},
		"a service without files": {text: least + "services:\n  - name: s\n    start: x\n", want: []string{"tasks/c/t.yaml:6:5: Service without files. There is nothing in injection/c/t/services/s."}},
		"a service that leaves":   {text: least + "services: [{name: s, path: ../x, start: x}]\n", want: []string{`tasks/c/t.yaml:5:22: Path leaves the task's files: "../x"`}},
		"a service without start": {text: least + "services: [{name: s}]\n", want: []string{"services[0].start is required"}},
		"a service in its folder": {text: least + "services: [{name: s, path: ./, start: x}]\n", want: []string{`tasks/c/t.yaml:5:22: Path leaves the task's files: "./"`}},
		"a service without name":  {text: least + "services: [{name: s/t, path: s, start: x}]\n", want: []string{`tasks/c/t.yaml:5:13: Not a name: name is "s/t"`}},
		"only for snapshots":      {text: "task_id: t\ncategory: c\ntask_snapshot: x\n" + rest, want: []string{"Key is missing: task is required"}},
		"programs for the host":   {text: least + "pre_exec:\n  - rm -rf /\npre_exec_parallel_safe: true\n", want: []string{"tasks/c/t.yaml:5:1: Programs for the host are refused. The task wants rm -rf / to run outside"}},
		"another id":              {text: "task_id: u\ncategory: d\ntask: x\n" + rest, want: []string{`tasks/c/t.yaml:1:1: Another id than that of the file: task_id is "u"`, `tasks/c/t.yaml:2:1: Another id`}},
		"no id":                   {text: "category: c\ntask: x\n" + rest, want: []string{"Key is missing: task_id is required"}},
		"not an id":               {text: "task_id: a/b\ncategory: c\ntask: x\n" + rest, want: []string{"tasks/c/t.yaml:1:1: Not an id"}},
		"a number as id":          {text: "task_id: 7\ncategory: c\ntask: x\n" + rest, want: []string{"tasks/c/t.yaml:1:1: Wrong type: task_id must be a text (put it in quotes), got the number 7"}},
		"no instruction":          {text: "task_id: t\ncategory: c\ntask: ''\n" + rest, want: []string{"tasks/c/t.yaml:3:1: Key is missing: task is required"}},
		"a threshold of 2":        {text: least + "success_threshold: 2\n", want: []string{"success_threshold is 2: it must be from 0 to 1"}},
		"no number":               {text: least + "success_threshold: .nan\ntimeout_seconds: 1.5\n", want: []string{"tasks/c/t.yaml:5:1: Wrong value", "tasks/c/t.yaml:6:1: Wrong value: timeout_seconds is 1.5: it must be a whole number"}},
		"a huge number":           {text: least + "timeout_seconds: 99999999999999999999999\n", want: []string{"tasks/c/t.yaml:5:1: Wrong type: timeout_seconds must be a number"}},
		"a list as mapping":       {text: least + "codex: [1]\n", want: []string{"tasks/c/t.yaml:5:1: Wrong type: codex must be a mapping, got a list"}},
		"not YAML":                {text: "task_id: [\n", want: []string{"tasks/c/t.yaml:1:", "Not valid YAML"}},
		"empty":                   {text: "# nothing\n", want: []string{"tasks/c/t.yaml: File is empty"}},
		"a list":                  {text: "- a\n", want: []string{"the file must be a mapping, got a list"}},
		"two documents":           {text: least + "---\n" + least, want: []string{"tasks/c/t.yaml:6:1: More than one document"}},
		"an alias":                {text: "task_id: &a t\ncategory: c\ntask: *a\n" + rest, want: []string{"an anchor, an alias or a tag, which are not read"}},
		"a merge":                 {text: least + "<<: {a: b}\n", want: []string{"tasks/c/t.yaml:5:1: Merge key"}},
		"a key twice":             {text: least + "task: y\n", want: []string{"tasks/c/t.yaml:5:"}},
		"too deep":                {text: least + "sources: " + strings.Repeat("[", 5000) + "\n", want: []string{"nested too deeply"}},
		"a bad variable":          {text: least, files: map[string]string{"injection/c/t/.privacy": "GOOD\nKEY=secret\n"}, want: []string{"injection/c/t/.privacy:2:1: Not the name of a variable"}},
	})
}

// A rubric that is not a file is reported, too.
func TestARubricHasToBeAFile(t *testing.T) {
	t.Parallel()
	reported(t, map[string]wrong{
		"no rubric": {text: "task_id: t\ncategory: c\ntask: x\n", want: []string{"tasks/c/t.yaml:1:1: The rubric is missing: references must have references/eval_rule.md"}},
		"a rubric that is not there": {
			text: least, files: map[string]string{"injection/c/t/references/eval_rule.md": "-", "injection/c/t/references/other.md": "x"},
			want: []string{"tasks/c/t.yaml:4:14: File is missing. There is no references/eval_rule.md in injection/c/t", "The rubric is missing"},
		},
		"a rubric that is not in its folder": {
			text: "task_id: t\ncategory: c\ntask: x\nreferences: [references]\n", files: map[string]string{"injection/c/t/references/eval_rule.md": "-", "injection/c/t/references/other.md": "x"},
			want: []string{"tasks/c/t.yaml:4:1: The rubric is missing"},
		},
		"a rubric that is a folder": {
			text: least, files: map[string]string{"injection/c/t/references/eval_rule.md": "-", "injection/c/t/references/eval_rule.md/x": "x"},
			want: []string{"tasks/c/t.yaml:4:1: The rubric is not a file"},
		},
	})
}

// wrong is a task that cannot be used.
type wrong struct {
	text  string
	files map[string]string // besides the rubric
	want  []string          // in what is reported
}

// reported checks what is reported of tasks.
func reported(t *testing.T, all map[string]wrong) {
	t.Helper()
	for name, tt := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{"tasks/c/t.yaml": tt.text}
			maps.Copy(files, tt.files)
			got, problems, err := Format{}.Load(t.Context(), filepath.Join(dataset(t, files), "tasks/c/t.yaml"), task.Options{})
			if got != nil || err != nil {
				t.Fatalf("%v, %v", got, err)
			}
			all := fmt.Sprintln()
			for _, p := range problems {
				all += p.String() + "\n"
			}
			for _, want := range tt.want {
				if !strings.Contains(all, want) {
					t.Errorf("no %q in:%s", want, all)
				}
			}
			if strings.Contains(all, "secret") {
				t.Error("the value of a variable is in a message")
			}
		})
	}
}

// A task may have an instruction for the copies of live sites alone.
func TestATaskForSnapshotsAlone(t *testing.T) {
	t.Parallel()
	dir := dataset(t, map[string]string{"tasks/c/t.yaml": strings.Replace(least, "task: Do it.", "task_snapshot: Use the copy.", 1)})
	got := load(t, dir, "tasks/c/t.yaml", `{"snapshot": true}`)
	if !strings.Contains(got.Stages[0].Instruction[0].Text, "Use the copy.") {
		t.Errorf("%q", got.Stages[0].Instruction[0].Text)
	}
}

// The files of a service may lie deeper. Only root can read them, and the folders
// that they are in.
func TestAServiceInAFolderOfFolders(t *testing.T) {
	t.Parallel()
	dir := dataset(t, map[string]string{
		"tasks/c/t.yaml":                         least + "services: [{name: mail, path: web/./mail, start: sh run.sh}]\n",
		"injection/c/t/services/web/mail/run.sh": "x", "injection/c/t/services/web/other": "x",
	})
	got := load(t, dir, "tasks/c/t.yaml", "")
	if got.Services[0].Command.Dir != "/opt/clawbench/.harness/services/t/web/mail" {
		t.Errorf("%+v", got.Services)
	}
	i := slices.IndexFunc(got.Resources, func(r task.Resource) bool { return r.Name == "services" })
	var all []string
	for _, e := range got.Resources[i].Entries {
		all = append(all, fmt.Sprintf("%s %o", e.Path, e.Mode))
	}
	if want := "web 700, web/mail 700, web/mail/run.sh 600"; strings.Join(all, ", ") != want || len(got.Resources[i].Audience) > 0 {
		t.Errorf("%q for %q, want %s", all, got.Resources[i].Audience, want)
	}
}

// A list of the dataset has each file as a task, can select them by folder, and
// an edit of one task leaves the others as they are.
func TestADatasetIsListed(t *testing.T) {
	t.Parallel()
	dir := dataset(t, map[string]string{
		"tasks/c/u.yaml": strings.Replace(least, "task_id: t", "task_id: u", 1), "injection/c/u/references/eval_rule.md": "x",
		"tasks/d/v.yaml": "task_id: v\n",
	})
	list := func(o task.ListOptions) (names []string, items []task.Item) {
		t.Helper()
		l, err := task.List(t.Context(), Format{}, filepath.Dir(dir), o) // also from above
		if err != nil {
			t.Fatal(err)
		}
		for i := range l.Items {
			names = append(names, l.Items[i].Name())
		}
		return names, l.Items
	}
	names, items := list(task.ListOptions{})
	if !slices.Equal(names, []string{"c/t", "c/u", "v"}) || items[2].Task != nil || items[0].Path != filepath.Base(dir)+"/tasks/c/t.yaml" {
		t.Errorf("%q", names)
	}
	if names, _ = list(task.ListOptions{Include: []string{"*/tasks/c"}, Exclude: []string{"u"}}); !slices.Equal(names, []string{"c/t"}) {
		t.Errorf("selected %q", names)
	}
	root, pattern, ok := task.Enclosing(Format{}, filepath.Join(dir, "tasks", "c", "t.yaml"))
	if !ok || root != dir || pattern != "tasks/c/t.yaml" {
		t.Errorf("%s, %s, %v", root, pattern, ok)
	}
	files := task.Files(Format{}, items[0].Task)
	if want := []string{filepath.Join(dir, "tasks/c/t.yaml"), filepath.Join(dir, "injection/c/t")}; !slices.Equal(files, want) {
		t.Errorf("files %q", files)
	}
}

// A solution is the oracle's alone, is part of the task's digest, and is one of the
// files that the task depends on.
func TestSolutionsAreBesideThePublishedFiles(t *testing.T) {
	t.Parallel()
	dir := dataset(t, map[string]string{"answers/c/t/solve.sh": "echo 1\n", "answers/c/t/data/x": "y"})
	const config = `{"solutions": "answers"}`
	got, without := load(t, dir, "tasks/c/t.yaml", config), load(t, dir, "tasks/c/t.yaml", "")
	ref := got.Stages[0].Reference
	if without.Stages[0].Reference != nil || ref == nil || !slices.Equal(ref.Argv, []string{"sh", "/solution/solve.sh"}) {
		t.Fatalf("reference %+v, without the setting %+v", ref, without.Stages[0].Reference)
	}
	for _, role := range []task.Role{task.RoleAgent, task.RoleVerifier, task.RoleUser} {
		if raw, err := json.Marshal(got.View(role, "main")); err != nil || strings.Contains(string(raw), "solve.sh") {
			t.Errorf("%s sees the solution: %s, %v", role, raw, err)
		}
	}
	i := slices.IndexFunc(got.Resources, func(r task.Resource) bool { return r.Name == ref.Resource })
	if r := got.Resources[i]; len(r.Entries) != 2 || got.HostFile(&r, &r.Entries[0]) != filepath.Join(dir, "answers/c/t/data/x") {
		t.Errorf("%+v", r)
	}
	if files := (Format{}).Files(got); !slices.Contains(files, filepath.Join(dir, "answers/c/t")) {
		t.Errorf("the task depends on %q", files)
	}
	if err := os.WriteFile(filepath.Join(dir, "answers/c/t/solve.sh"), []byte("echo 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := load(t, dir, "tasks/c/t.yaml", config); again.Digest == got.Digest || got.Digest == without.Digest {
		t.Errorf("digests %s, %s, %s", without.Digest, got.Digest, again.Digest)
	}
	if _, _, err := (Format{}).Load(t.Context(), filepath.Join(dir, "tasks/c/t.yaml"), task.Options{Config: json.RawMessage(`{"solutions": "../x"}`)}); err == nil ||
		!strings.Contains(err.Error(), "folder in the dataset") {
		t.Errorf("a folder elsewhere: %v", err)
	}
}

func TestThePageIsComplete(t *testing.T) {
	t.Parallel()
	top := (&document.Reader{}).YAML([]byte("{codex: {}}"))
	all(top, false, false)
	codex := (&document.Reader{}).In("codex", nil)
	new(keys).codex(codex)
	words := slices.DeleteFunc(append(top.Known, codex.Known...), func(key string) bool { return key == "codex" })
	if len(words) < 22 {
		t.Errorf("keys %q", words)
	}
	pagetest.Complete(t, "closed-loop.md", []any{&Config{}}, words...)
}
