package command

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// runnable writes a task whose tests say r=1 if condition holds.
func runnable(t *testing.T, dir, name, condition string, more map[string]string) {
	t.Helper()
	task(t, dir, name, "echo done > /app/word")
	e2etest.Write(t, filepath.Join(dir, name), map[string]string{
		"tests/test.sh": "#!/bin/sh\nr=0\nif " + condition + "; then r=1; fi\necho $r > /logs/verifier/reward.txt\n",
	})
	e2etest.Write(t, filepath.Join(dir, name), more)
}

// verdicts runs a task and returns the verdicts of its checks as text.
func verdicts(t *testing.T, dir, name string, code, times int) []string {
	t.Helper()
	r := berth(t, dir, "task", "check", "--run", name, "--repeat", fmt.Sprint(times), "--json")
	r.want(t, code)
	res := answer[types.TaskCheck](t, r, "cli-task-check")
	if len(res.Tasks) != 1 || res.Tasks[0].Run == nil {
		t.Fatalf("%+v", res)
	}
	var texts []string
	for _, v := range res.Tasks[0].Run.Verdicts {
		texts = append(texts, strings.TrimSpace(fmt.Sprintf("%s %s %s: %s %s: %s", v.Check, v.Subject, v.Mode, v.Verdict, v.File, v.Detail)))
	}
	return texts
}

func contains(t *testing.T, texts []string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !slices.ContainsFunc(texts, func(s string) bool { return strings.HasPrefix(s, w) }) {
			t.Errorf("no verdict %q in:\n%s", w, strings.Join(texts, "\n"))
		}
	}
}

// A sound task fails no check, and a cheat that passes is named.
func TestATaskIsCheckedByRunningIt(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	same := `[ "$(cat /app/word)" = done ]`
	runnable(t, dir, "good", same, map[string]string{"cheat/reward.sh": "#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n"})
	got := verdicts(t, dir, "good", 0, 2)
	for _, mode := range []string{"live", "restarted", "image"} {
		contains(t, got, "oracle  "+mode+": held : passed 2 of 2", "nop  "+mode+": held : passed 0 of 2", "cheat reward "+mode+": held")
	}
	contains(t, got, "oracle  separate: skipped : task declares no artifacts", "flaky  : held", "network  : skipped", "answers  : held", "history  : held")
}

// A task whose tests accept a cheat, and whose sandbox has the answer as a file and in
// the history of a repository.
func TestATaskThatGivesItsAnswerAway(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	runnable(t, dir, "leaky", "[ -e /app/word ]", map[string]string{
		"tests/expected.txt":        "the answer to the whole task\n",
		"environment/notes.txt":     "the answer to the whole task\n",
		"environment/Dockerfile":    "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY . /app/\nCOPY hint \\\n  /tests/\n",
		"environment/hint":          "another answer of the tests\n",
		"tests/hint":                "another answer of the tests\n",
		"environment/repo/main.txt": "before\n",
		"cheat/touch/solve.sh":      "#!/bin/sh\n: > /app/word\n",
	})
	git := exec.CommandContext(t.Context(), "sh", "-ec", `git init -q .; git add .; git commit -qm before; echo after > main.txt; git commit -qam 'Fix it'; git reset -q --hard HEAD~1`)
	git.Dir = filepath.Join(dir, "leaky", "environment", "repo")
	git.Env = append(git.Environ(), "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org", "GIT_CONFIG_GLOBAL=/dev/null")
	if out, err := git.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	contains(t, verdicts(t, dir, "leaky", 1, 1),
		"cheat touch live: failed cheat/touch/solve.sh:",
		"answers  : failed tests/expected.txt: the agent can read it as /app/notes.txt",
		"history  : failed environment: the repository /app/repo has the commit ")
}
