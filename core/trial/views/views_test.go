package views_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/trial/views"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/task"
)

// write makes files below dir.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, body := range files {
		p := filepath.Join(dir, name)
		testlevel.Must(t, errors.Join(os.MkdirAll(filepath.Dir(p), 0o700), os.WriteFile(p, []byte(body), 0o640)))
	}
}

// everything is all file names and contents below dir, as one text.
func everything(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		fmt.Fprintln(&b, rel)
		if d.Type().IsRegular() {
			body, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			b.Write(body)
		}
		return nil
	})
	testlevel.Must(t, err)
	return b.String()
}

// planted is a task with a marker in everything that has an audience. Markers
// are named after who may see them.
func planted(t *testing.T) *task.Task {
	t.Helper()
	dir := t.TempDir()
	resource := func(name string, stage string, audience ...task.Role) task.Resource {
		write(t, dir, map[string]string{"data/" + name: "MARK-content-" + name})
		return task.Resource{Name: "references/" + name, Path: "data/" + name, Audience: audience, Stage: stage}
	}
	folder := resource("tests/inner", "", task.RoleVerifier)
	folder.Name, folder.Path, folder.Folder = "tests", "data/tests", true
	folder.Entries = []task.Entry{{Path: "inner", Mode: 0o755, Size: 1}}
	atLeast := 0.77123
	stage := func(name string) task.Stage {
		return task.Stage{
			Name: name, Instruction: []task.Part{{Text: "MARK-instruction-" + name}},
			Agent:     task.Phase{Env: task.Text(map[string]string{"A": "MARK-agentenv-" + name})},
			Verify:    task.Phase{Env: task.Text(map[string]string{"V": "MARK-verifyenv-" + name})},
			Verifiers: []task.VerifierUse{{Name: "script", Settings: json.RawMessage(`{"rubric":"MARK-settings-` + name + `"}`)}},
			Reference: &task.Reference{Resource: "references/oracle", Argv: []string{"MARK-solve-" + name}},
			Hooks:     []task.Command{{Argv: []string{"MARK-hook-" + name}}}, Setup: []task.Command{{Argv: []string{"MARK-setup-" + name}}},
			Artifacts: []task.Artifact{{Source: "/MARK-artifact-" + name}}, MinScores: map[string]float64{"MARK-min-" + name: atLeast},
			Captures: []task.Capture{{Name: "MARK-capture-" + name}},
		}
	}
	return &task.Task{
		Name: "t", Dir: dir, Stages: []task.Stage{stage("one"), stage("two")},
		Metadata: json.RawMessage(`{"k":"MARK-metadata"}`), Labels: task.Labels{Tags: []string{"MARK-label-tag"}, Category: "MARK-label-category", Difficulty: "MARK-label-difficulty"},
		Resources: []task.Resource{
			resource("public", "", task.Public()...), resource("agent", "", task.RoleAgent), resource("verifier", "", task.RoleVerifier),
			resource("user", "", task.RoleUser), resource("oracle", "", task.RoleOracle), resource("nobody", ""),
			resource("agent2", "two", task.RoleAgent), folder,
		},
		Interaction: &task.Interaction{User: "references/user", MaxFollowUps: 2},
		Environment: task.Environment{OS: "linux", Settings: json.RawMessage(`{"level":"MARK-envsettings"}`), Env: task.Text(map[string]string{"E": "MARK-taskenv"})},
		Services:    []task.Service{{Name: "MARK-service", Command: task.Command{Argv: []string{"x"}}}},
	}
}

// sees says which markers each role may see of stage one; all others must not
// be in its view.
var sees = map[task.Role][]string{
	task.RoleAgent:  {"content-public", "content-agent", "instruction-one"},
	task.RoleOracle: {"content-public", "content-agent", "content-oracle", "instruction-one", "solve-one"},
	task.RoleUser:   {"content-public", "content-user", "instruction-one"},
	task.RoleVerifier: {
		"content-public", "content-verifier", "content-tests/inner", "instruction-one", "instruction-two", "metadata", "label-tag", "label-category", "label-difficulty",
		"agentenv-one", "agentenv-two", "verifyenv-one", "verifyenv-two", "settings-one", "settings-two", "hook-one", "hook-two",
		"setup-one", "setup-two", "artifact-one", "artifact-two", "min-one", "min-two", "capture-one", "capture-two",
		"envsettings", "taskenv", "service",
	},
}

var allMarkers = []string{
	"content-public", "content-agent\n", "content-agent2", "content-verifier", "content-user", "content-oracle", "content-nobody", "content-tests/inner",
	"instruction-one", "instruction-two", "metadata", "label-tag", "label-category", "label-difficulty", "envsettings", "taskenv", "service",
	"agentenv-one", "agentenv-two", "verifyenv-one", "verifyenv-two", "settings-one", "settings-two", "solve-one", "solve-two",
	"hook-one", "hook-two", "setup-one", "setup-two", "artifact-one", "artifact-two", "min-one", "min-two", "capture-one", "capture-two",
}

func TestEachRoleSeesItsOwnAndNothingElse(t *testing.T) {
	t.Parallel()
	for role, may := range sees {
		t.Run(string(role), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "view")
			testlevel.Must(t, views.Build(dir, planted(t), role, "one"))
			text := everything(t, dir) + "\n"
			text = strings.ReplaceAll(text, "MARK-content-agent", "MARK-content-agent\n")
			text = strings.ReplaceAll(text, "MARK-content-agent\n2", "MARK-content-agent2")
			for _, m := range allMarkers {
				want := slices.Contains(may, strings.TrimSpace(m))
				if got := strings.Contains(text, "MARK-"+m); got != want {
					t.Errorf("marker %q is in the view: %v; want %v", m, got, want)
				}
			}
		})
	}
}

func TestOfTheAttemptEachRoleSeesItsPart(t *testing.T) {
	t.Parallel()
	attempt := t.TempDir()
	write(t, attempt, map[string]string{
		"turns.jsonl": `{"kind":"yield","turn":1,"message":"MARK-words","reason":"MARK-reason"}` + "\n",
		"steps.jsonl": `{"role":"agent","step":{"message":"MARK-said","reasoning_content":"MARK-thought"}}` + "\n" +
			`{"role":"user","step":{"message":"MARK-usersaid"}}` + "\n" + `{"role":"agent","step":{"message":"MARK-torn"`,
		"surface.jsonl":        `{"observation":"MARK-seen","reward":"MARK-reward","info":"MARK-info"}` + "\n",
		"verdicts.jsonl":       `{"round":1,"decision":"continue","rationale":"MARK-rationale","handoff":"MARK-handoff"}` + "\n",
		"events.jsonl":         `{"type":"MARK-event"}` + "\n",
		"artifacts/a\xff/a":    "MARK-artifact",
		"artifacts/out/deep/o": "MARK-shown",
		"artifacts/output":     "MARK-beside",
		"artifacts/f":          "MARK-single",
		"captures/c":           "MARK-capture",
		"frames/f":             "MARK-frame",
		"agent/debug":          "MARK-debug",
		"verifier/test-output": "MARK-output",
	})
	testlevel.Must(t, os.Symlink("/etc/passwd", filepath.Join(attempt, "artifacts", "link")))
	want := map[task.Role][]string{
		task.RoleAgent:    {},
		task.RoleUser:     {"words", "said", "seen", "handoff", "frame", "shown", "single"},
		task.RoleVerifier: {"shown", "beside", "single", "words", "reason", "said", "thought", "usersaid", "seen", "reward", "info", "rationale", "handoff", "artifact", "capture", "frame"},
	}
	shown := map[task.Role][]string{task.RoleUser: {"out", "f"}}
	for role, may := range want {
		view := t.TempDir()
		testlevel.Must(t, views.Attempt(view, attempt, views.Copies{Dir: filepath.Join(attempt, "artifacts"), Shown: shown[role]}, role))
		text := everything(t, view)
		for _, m := range []string{
			"words", "reason", "said", "thought", "usersaid", "torn", "seen", "reward", "info", "rationale", "handoff", "event",
			"artifact", "capture", "frame", "debug", "output", "shown", "beside", "single",
		} {
			if got := strings.Contains(text, "MARK-"+m); got != slices.Contains(may, m) {
				t.Errorf("%s sees %q: %v; want %v", role, m, got, !got)
			}
		}
		if strings.Contains(text, "link") {
			t.Errorf("%s sees a link", role)
		}
	}
}

func TestAViewDoesNotFollowLinksOutOfTheTask(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "host-secret")
	testlevel.Must(t, os.WriteFile(secret, []byte("MARK-host"), 0o600))
	dir := t.TempDir()
	write(t, dir, map[string]string{"ok": "x"})
	testlevel.Must(t, os.Symlink(secret, filepath.Join(dir, "trap")))
	for _, r := range []task.Resource{
		{Name: "a", Path: "trap", Audience: task.Public()},
		{Name: "a", Path: "../" + filepath.Base(filepath.Dir(secret)) + "/host-secret", Audience: task.Public()},
		{Name: "../a", Path: "ok", Audience: task.Public()},
		{Name: "a", Path: ".", Folder: true, Entries: []task.Entry{{Path: "../../x", From: "ok"}}, Audience: task.Public()},
		{Name: "a", Path: ".", Folder: true, Entries: []task.Entry{{Path: "l", Link: "../../../etc/passwd"}}, Audience: task.Public()},
		{Name: "a", Path: ".", Folder: true, Entries: []task.Entry{{Path: "l", Link: "/etc/passwd"}}, Audience: task.Public()},
	} {
		tk := &task.Task{Name: "t", Dir: dir, Stages: []task.Stage{{Name: "s"}}, Resources: []task.Resource{r}}
		view := filepath.Join(t.TempDir(), "view")
		if err := views.Build(view, tk, task.RoleAgent, "s"); err == nil {
			t.Errorf("%+v was taken into a view: %s", r, everything(t, view))
		}
	}
}

func TestArchiveHoldsTheEntriesAndTheirSums(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, map[string]string{"tests/test.sh": "#!/bin/sh\n", "shared/util": "u", "one": "1"})
	tk := &task.Task{Name: "t", Dir: dir}
	r := &task.Resource{Name: "tests", Path: "tests", Folder: true, Entries: []task.Entry{
		{Path: "test.sh", Mode: 0o755},
		{Path: "deep", Folder: true, Mode: 0o700},
		{Path: "deep/util", From: "shared/util", Mode: 0o644},
		{Path: "link", Link: "test.sh"},
		{Path: "made", Text: "made\n", Size: 5},
	}}
	var b, again bytes.Buffer
	sums, err := views.Archive(&b, tk, r, "/tests")
	testlevel.Must(t, err)
	if _, err = views.Archive(&again, tk, r, "/tests"); err != nil || !bytes.Equal(b.Bytes(), again.Bytes()) {
		t.Errorf("the second archive differs (%v)", err)
	}
	if got := list(t, &b); !slices.Equal(got, []string{"test.sh 755 10", "deep/ 700 0", "deep/util 644 1", "link 777 0 -> test.sh", "made 644 5"}) {
		t.Errorf("archive holds %q", got)
	}
	const sumOfU = "0bfe935e70c321c7ca3afc75ce0d0ca2f98b5422e008bb31c00c6d7f1f1c0ad6"
	if len(sums) != 3 || sums["/tests/deep/util"] != sumOfU {
		t.Errorf("sums %v", sums)
	}
	one := &task.Resource{Name: "one", Path: "one"}
	var c bytes.Buffer
	if sums, err = views.Archive(&c, tk, one, "/etc/one.conf"); err != nil || sums["/etc/one.conf"] == "" {
		t.Errorf("sums %v, %v", sums, err)
	}
	if got := list(t, &c); !slices.Equal(got, []string{"one.conf 640 1"}) || views.Target(one, "/etc/one.conf") != "/etc" {
		t.Errorf("archive of a file holds %q", got)
	}
}

func list(t *testing.T, r io.Reader) (out []string) {
	t.Helper()
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		testlevel.Must(t, err)
		s := fmt.Sprintf("%s %o %d", h.Name, h.Mode, h.Size)
		if h.Linkname != "" {
			s += " -> " + h.Linkname
		}
		out = append(out, s)
	}
}

func TestInstructionWithPictures(t *testing.T) {
	t.Parallel()
	s := &task.Stage{Instruction: []task.Part{{Text: "Look at"}, {Resource: "references/map.png"}, {Text: "and go."}}}
	if got := views.Instruction(s); got != "Look at\n(references/map.png)\nand go." {
		t.Errorf("instruction %q", got)
	}
	if got := views.Files(s); !slices.Equal(got, []string{"references/map.png"}) {
		t.Errorf("files %q", got)
	}
}
