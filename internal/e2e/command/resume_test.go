package command

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
)

// asked makes a folder with a complete run of an experiment that has a model
// with a key, a file that a function reads, and replies in a file.
func asked(t *testing.T) (dir, run string) {
	t.Helper()
	tree.NeedsSandbox(t)
	dir = t.TempDir()
	task(t, filepath.Join(dir, "tasks"), "one", "touch /app/done")
	experiment(t, dir, "agent.keyed, agent.scripted", "")
	text, err := os.ReadFile(filepath.Join(dir, "experiment.hcl"))
	e2etest.Must(t, err)
	e2etest.Write(t, dir, map[string]string{
		"replies.yaml": "replies:\n  - text: '{\"analysis\": \"\", \"plan\": \"\", \"commands\": [], \"task_complete\": true}'\n", "note.txt": "first",
		"experiment.hcl": string(text) + `
agent "keyed" {
  plugin = "nop"
  model  = model.keyed
  env    = { NOTE = file("note.txt") }
}
model "keyed" {
  provider = "openai-chat"
  name     = "m"
  base_url = "http://127.0.0.1:9/v1"
  api_key  = secret("THE_KEY")
  price {
    input  = 1
    output = 1
  }
}
agent "scripted" {
  plugin = "nop"
  model  = model.scripted
}
model "scripted" {
  provider = "script"
  script   = "./replies.yaml"
}
`,
	})
	keyed(t, dir, "run").want(t, 0)
	runs := e2etest.Found(t, 1, dir, "runs", "*")
	return dir, runs[0]
}

// keyed runs berth with the keys of the experiment.
func keyed(t *testing.T, dir string, args ...string) result {
	t.Helper()
	cmd, out, stderr := tree.Command(t, dir, args...)
	cmd.Env = append(cmd.Env, "THE_KEY=sk-first", "OTHER_KEY=sk-other")
	return ended(t, cmd, cmd.Run(), out, stderr)
}

// edit replaces a text in a file.
func edit(t *testing.T, file, old, with string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err == nil && !strings.Contains(string(b), old) {
		err = errors.New(old + " is not in " + file)
	}
	if err == nil {
		err = os.WriteFile(file, []byte(strings.Replace(string(b), old, with, 1)), 0o644) //nolint:gosec // as it was
	}
	e2etest.Must(t, err)
}

func refused(t *testing.T, r result, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if r.code != 2 || !strings.Contains(r.stderr, part) {
			t.Errorf("code %d, want 2 and %q:\n%s", r.code, part, r.stderr)
		}
	}
}

// One edited line could send the key to the author of the edit.
func TestAKeptExperimentThatWasChangedIsNotResumed(t *testing.T) {
	t.Parallel()
	e2etest.Damages(t)
	dir, run := asked(t)
	kept := filepath.Join(run, "experiment")
	for name, change := range map[string]func() error{
		"experiment.hcl: was changed": func() error {
			edit(t, filepath.Join(kept, "experiment.hcl"), "127.0.0.1:9", "evil.example")
			return nil
		},
		"note.txt: is missing":            func() error { return os.Remove(filepath.Join(kept, "note.txt")) },
		"more.hcl: was added":             func() error { return os.WriteFile(filepath.Join(kept, "more.hcl"), []byte("locals {}\n"), 0o600) },
		"link.hcl: is not a regular file": func() error { return os.Symlink(filepath.Join(dir, "experiment.hcl"), filepath.Join(kept, "link.hcl")) },
	} {
		e2etest.Must(t, change())
		refused(t, keyed(t, dir, "resume", "last", "--trust"), "experiment/"+name, "--experiment")
	}
	refused(t, keyed(t, dir, "resume", "last"), "link.hcl is a link", "--trust")
	e2etest.Must(t, os.Remove(filepath.Join(kept, "link.hcl")))
	// The user may name another experiment explicitly.
	keyed(t, dir, "resume", "last", "--experiment", "experiment.hcl").want(t, 0)
}

func TestAnotherAddressOrKeyIsDrift(t *testing.T) {
	t.Parallel()
	dir, run := asked(t)
	own := filepath.Join(dir, "experiment.hcl")
	before := e2etest.Read(t, filepath.Join(run, "manifest.jsonl"))
	edit(t, own, "  datasets", "  repeat = 2\n  datasets")
	edit(t, own, "127.0.0.1:9", "127.0.0.1:10")
	edit(t, own, "THE_KEY", "OTHER_KEY")
	r := keyed(t, dir, "resume", "last", "--experiment", "experiment.hcl")
	refused(t, r, `models.agent.default.address: "http://127.0.0.1:9/v1" → "http://127.0.0.1:10/v1"`, "OTHER_KEY", "--accept-drift")
	if strings.Contains(r.stderr, "sk-") {
		t.Errorf("a key was printed: %s", r.stderr)
	}
	if e2etest.Read(t, filepath.Join(run, "manifest.jsonl")) != before {
		t.Error("a resume that was refused has extended the run")
	}
	r = keyed(t, dir, "resume", "last", "--experiment", "experiment.hcl", "--accept-drift")
	r.want(t, 0)
	if !strings.Contains(r.out, "drift accepted") || strings.Contains(r.out, "sk-") {
		t.Errorf("not marked: %s", r.out)
	}
}

func TestARunThatOthersCanChangeNeedsTrust(t *testing.T) {
	t.Parallel()
	dir, run := asked(t)
	for name, spoil := range map[string]func(undo bool) error{
		"can be written to by others": func(undo bool) error {
			mode := os.FileMode(0o666)
			if undo {
				mode = 0o644
			}
			return os.Chmod(filepath.Join(run, "experiment", "experiment.hcl"), mode)
		},
		"belongs to user 12345": func(undo bool) error {
			if undo {
				return os.Chown(run, os.Getuid(), -1)
			}
			return os.Chown(run, 12345, -1)
		},
	} {
		if strings.Contains(name, "12345") && os.Getuid() != 0 {
			continue // these files always belong to the user
		}
		e2etest.Must(t, spoil(false))
		refused(t, keyed(t, dir, "resume", "last"), name, "--trust")
		keyed(t, dir, "resume", "last", "--trust").want(t, 0)
		e2etest.Must(t, spoil(true))
	}
	keyed(t, dir, "resume", "last").want(t, 0)
}

// The run contains the files that the experiment reads: the originals may have
// changed since, or be gone.
func TestARunIsResumedWithTheFilesThatItKeeps(t *testing.T) {
	t.Parallel()
	dir, _ := asked(t)
	edit(t, filepath.Join(dir, "note.txt"), "first", "second")
	e2etest.Must(t, os.Remove(filepath.Join(dir, "replies.yaml")))
	r := keyed(t, dir, "resume", "last")
	r.want(t, 0)
	if strings.Count(r.stderr, "has changed since") != 1 || !strings.Contains(r.stderr, "note: note.txt has changed since the run was made. The run continues with its stored copy\n") {
		t.Errorf("stderr: %s", r.stderr)
	}
}
