package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/cli"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/tasks/harbor"
	"github.com/berth-eval/berth/tasks/uniclaw"
)

// taskCheck runs `berth task check` with two formats.
func taskCheck(t *testing.T, args ...string) *ran {
	t.Helper()
	var out, stderr bytes.Buffer
	p := cli.Process{In: strings.NewReader(""), Out: &out, Err: &stderr, Env: os.LookupEnv}
	args = append([]string{"task", "check"}, args...)
	return &ran{t, args, p.Run(t.Context(), args, harbor.Format{}, uniclaw.Format{}), out.String(), stderr.String()}
}

// Tasks are counted by the folder that they are in.
func TestTasksAreCountedBySuite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for id, more := range map[string]string{"101_office/a": "", "101_office/b": "colour: red\n", "102_text/c": ""} {
		category, task := filepath.Split(id)
		file("tasks/"+id+".yaml", "task_id: "+task+"\ncategory: "+filepath.Clean(category)+"\ntask: Do it.\nreferences: [references/eval_rule.md]\n"+more)
		file("injection/"+id+"/references/eval_rule.md", "Judge.\n")
	}
	taskCheck(t, dir).must(exit(2), prints("\n\ntasks/101_office: 1 of 2 valid\ntasks/102_text: 1 of 1 valid\n2 of 3 tasks valid\n"))
	var res output.TaskCheck
	r := taskCheck(t, dir, "--json")
	if err := json.Unmarshal([]byte(r.out), &res); err != nil || len(res.Suites) != 2 || res.Suites[0] != (output.TaskSuite{Path: "tasks/101_office", Valid: 1, Tasks: 2}) {
		t.Errorf("%v, %+v", err, res.Suites)
	}
	if r = taskCheck(t, filepath.Join(dir, "tasks", "102_text")); strings.Contains(r.out, "102_text: 1 of") {
		t.Errorf("one suite is counted: %s", r.out)
	}
	file("task.toml", "")
	taskCheck(t, dir).must(exit(2), complains(dir+" has tasks of the formats harbor and uniclaw: keep them in separate folders"))
}
