package uniclaw

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/plugins/task"
)

// Names are those of the published tasks, without the folder of the list, or with it.
// A folder of the task wins over a base skill of the same name.
func TestNamesOfSourcesAndSkills(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"injection/c/t/sources/a.txt": "x", "injection/c/t/sources/sub/b.txt": "x", "injection/c/t/sources/sources/c.txt": "x",
		"injection/c/t/skills/ocr/SKILL.md": "x", "injection/c/t/skills/group/pdf/SKILL.md": "x", "injection/c/t/skills/web-search/SKILL.md": "x",
		"docker/base_skills/web-search/SKILL.md": "other", "docker/base_skills/desktop-control/SKILL.md": "x", "docker/base_skills/desktop-control/tool.py": "x",
	}
	for _, names := range []string{
		"sources: [a.txt, sub/, ./sub/b.txt, sources]\nskills: [ocr, group/pdf, web-search, desktop-control]\n",
		"sources: [sources/a.txt, sources/sub, sources/]\nskills: [skills/ocr, skills/group/pdf/, skills/web-search, skills/desktop-control, ocr]\n",
	} {
		files["tasks/c/t.yaml"] = least + names
		dir := dataset(t, files)
		got := load(t, dir, "tasks/c/t.yaml", "")
		var all []string
		for _, r := range got.Resources {
			for _, e := range r.Entries {
				if r.Place != "" {
					all = append(all, got.HostFile(&r, &e)[len(dir)+1:]+" "+r.Place+"/"+e.Path)
				}
			}
		}
		slices.Sort(all)
		want := []string{
			"docker/base_skills/desktop-control/SKILL.md /root/skills/desktop-control/SKILL.md", "docker/base_skills/desktop-control/tool.py /root/skills/desktop-control/tool.py",
			"injection/c/t/skills/group/pdf/SKILL.md /root/skills/pdf/SKILL.md", "injection/c/t/skills/ocr/SKILL.md /root/skills/ocr/SKILL.md",
			"injection/c/t/skills/web-search/SKILL.md /root/skills/web-search/SKILL.md", "injection/c/t/sources/a.txt /tmp_workspace/clawbench/sources/a.txt",
			"injection/c/t/sources/sources/c.txt /tmp_workspace/clawbench/sources/sources/c.txt", "injection/c/t/sources/sub/b.txt /tmp_workspace/clawbench/sources/sub/b.txt",
		}
		if !slices.Equal(all, want) || !reflect.DeepEqual(got.Skills, []task.Skill{{Dir: "/root/skills"}}) {
			t.Errorf("%s: %s, skills %+v", names, strings.Join(all, "\n"), got.Skills)
		}
		if own := filepath.Join(dir, "docker/base_skills/desktop-control"); !slices.Contains(Format{}.Files(got), own) {
			t.Errorf("the task does not depend on %s", own)
		}
	}
}

// A base skill that the dataset does not have must be in the image, or the task does
// not begin.
func TestABaseSkillThatIsNotPlaced(t *testing.T) {
	t.Parallel()
	dir := dataset(t, map[string]string{"tasks/c/t.yaml": least + "skills: [web-search]\n", "more/web-search/SKILL.md": "x"})
	got, problems, err := Format{}.Load(t.Context(), filepath.Join(dir, "tasks/c/t.yaml"), task.Options{})
	if err != nil || got == nil || len(problems) != 1 || problems[0].String() !=
		"tasks/c/t.yaml:5:10: warning: Base skill is not placed. There is no docker/base_skills/web-search in the dataset: the image must have /root/skills/web-search, or the agent a block skill \"web-search\"." {
		t.Fatalf("%v, %v", problems, err)
	}
	if want := []task.Skill{{Dir: "/root/skills", FromImage: []string{"web-search"}}}; !reflect.DeepEqual(got.Skills, want) || !strings.Contains(got.Stages[0].Instruction[0].Text, "\n- web-search\n") {
		t.Errorf("skills %+v, %s", got.Skills, got.Stages[0].Instruction[0].Text)
	}
	if got = load(t, dir, "tasks/c/t.yaml", `{"base_skills": "more"}`); got.Skills[0].FromImage != nil || len(got.Resources) != 2 {
		t.Errorf("skills %+v, resources %+v", got.Skills, got.Resources)
	}
}

// A copy of live sites is left out of live runs of a task that can use it, and of no
// other. If nothing is left, nothing is placed.
func TestCopiesOfLiveSites(t *testing.T) {
	t.Parallel()
	const live, copies = "", `{"snapshot": true}`
	for name, c := range map[string]struct {
		text, privacy, config string
		placed                string // of the sources
		vars                  string // of the host
		fails                 bool
	}{
		"live":                         {"", "SNAPSHOT_MODE\nKEY\n", live, "", "KEY", false},
		"copies":                       {"", "KEY\nSNAPSHOT_MODE\r\n", copies, "a_snapshot.json b_snapshot.json/x sub/c_snapshot.json", "", false},
		"it has none, live":            {"", "KEY\n", live, "a_snapshot.json b_snapshot.json/x sub/c_snapshot.json", "KEY", false},
		"it has none, copies":          {"", "KEY\n", copies, "a_snapshot.json b_snapshot.json/x sub/c_snapshot.json", "KEY", false},
		"an instruction alone":         {"task_snapshot: y\n", "KEY\n", copies, "a_snapshot.json b_snapshot.json/x sub/c_snapshot.json", "", false},
		"programs on the host, live":   {"pre_exec: [ops/fill.py]\n", "SNAPSHOT_MODE\n", live, "", "", true},
		"programs on the host, copies": {"pre_exec: [ops/fill.py]\n", "SNAPSHOT_MODE\n", copies, "a_snapshot.json b_snapshot.json/x sub/c_snapshot.json", "", false},
		"programs and no copies":       {"pre_exec: [ops/fill.py]\n", "", copies, "", "", true},
	} {
		dir := dataset(t, map[string]string{
			"tasks/c/t.yaml": least + "sources: [a_snapshot.json]\n" + c.text, "injection/c/t/.privacy": c.privacy, "injection/c/t/sources/a_snapshot.json": "{}",
			"injection/c/t/sources/b_snapshot.json/x": "{}", "injection/c/t/sources/sub/c_snapshot.json": "{}",
		})
		got, problems, err := Format{}.Load(t.Context(), filepath.Join(dir, "tasks/c/t.yaml"), task.Options{Config: json.RawMessage(c.config)})
		if c.fails {
			hint := strings.Contains(fmt.Sprint(problems), "With snapshot = true")
			if got != nil || !strings.Contains(fmt.Sprint(problems), "The task wants ops/fill.py to run") || hint != (c.config == live) {
				t.Errorf("%s: %v", name, problems)
			}
			continue
		}
		if err != nil || got == nil {
			t.Fatalf("%s: %v, %v", name, problems, err)
		}
		var placed []string
		for _, r := range got.Resources {
			for _, e := range r.Entries {
				placed = append(placed, e.Path)
			}
		}
		if told := strings.Contains(got.Stages[0].Instruction[0].Text, "/tmp_workspace/clawbench/sources"); told != (c.placed != "") {
			t.Errorf("%s: the agent is told of sources: %v", name, told)
		}
		if strings.Join(placed, " ") != c.placed || strings.Join(got.HostVars(), " ") != c.vars {
			t.Errorf("%s: %q is placed, of the host it needs %q", name, placed, got.HostVars())
		}
	}
}

// A task that is not in a category is named, and the others are read.
func TestATaskElsewhereIsRefused(t *testing.T) {
	t.Parallel()
	dir := dataset(t, map[string]string{"tasks/flat.yaml": least, "tasks/c/sub/deep.yaml": least, "tasks/.git/x.yaml": least})
	list, err := task.List(t.Context(), Format{}, dir, task.ListOptions{})
	if err != nil || len(list.Items) != 3 {
		t.Fatalf("%+v, %v", list.Items, err)
	}
	for _, it := range list.Items {
		want := it.Path != "tasks/c/t.yaml"
		if got := strings.Contains(fmt.Sprint(it.Problems), "a task is a file tasks/CATEGORY/TASK_ID.yaml"); got != want || (it.Task == nil) != want {
			t.Errorf("%s: %v", it.Path, it.Problems)
		}
	}
}
