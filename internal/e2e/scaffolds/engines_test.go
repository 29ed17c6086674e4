package scaffolds

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// scripts/engines-for-tests provides these images: a Debian, and one with a
// static busybox and no library.
const (
	debian  = "localhost/berth-test/debian:1"
	busybox = "localhost/berth-test/base:1"
)

// patience is the longest time that an engine or a run may take.
const patience = 15 * time.Minute // it only ends a test that hangs

// engine is a container engine that can be used here, with its user.
type engine struct{ e2etest.Engine }

// as runs a program as the engine's user.
func (e engine) as(t *testing.T, dir, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := e.Command(ctx, t, dir, program, args...)
	cmd.Env = append(cmd.Env, "BERTH_BUNDLES="+bundles)
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// folder makes a folder with the programs and the example, with a task for each
// place. The folder belongs to the user of the engine.
func (e engine) folder(t *testing.T) string {
	t.Helper()
	dir := e.Release(t, tree.Root, "terminus", "scaffolds", "script")
	example := filepath.Join(tree.Root, "examples", "scaffolds")
	text := func(name string) string { return e2etest.Read(t, example, name) }
	change := func(s, from, to string) string { return change(t, s, from, to) }
	e2etest.Write(t, dir, map[string]string{
		"x/replies.yaml": text("replies.yaml"),
		"x/berth.hcl":    change(text("berth.hcl"), "  plugin = \"local\"\n", fmt.Sprintf("  plugin = %q\n  config {\n    socket = %q\n  }\n", e.Name, e.Socket)),
	})
	for name, with := range places {
		to := filepath.Join(dir, "x", "tasks", name)
		e2etest.Must(t, os.CopyFS(to, os.DirFS(filepath.Join(example, "tasks", "total"))))
		toml := change(text("tasks/total/task.toml"), "berth/total", "e2e/"+name)
		e2etest.Write(t, to, map[string]string{
			"task.toml":              change(toml, "timeout_sec = 300\n", "timeout_sec = 400\n"+with.toml),
			"environment/Dockerfile": change(text("tasks/total/environment/Dockerfile"), "debian:13-slim", with.image) + with.build,
			"tests/test.sh":          change(text("tasks/total/tests/test.sh"), "reward=0\n", "reward=0\n"+alone+with.test),
		})
	}
	e.Own(t, dir)
	return dir
}

// change replaces a part of a text that must be there.
func change(t *testing.T, text, from, to string) string {
	t.Helper()
	if !strings.Contains(text, from) {
		t.Fatalf("nothing to change: %q is not in\n%s", from, text)
	}
	return strings.Replace(text, from, to, 1)
}

// alone ends a test without a reward if there is a network, or a process of the
// bundle.
const alone = `[ "$(wc -l </proc/net/route)" -le 1 ] || exit 1
(` + nothingOfTheBundle + `) || exit 1
`

// places are the images in which the same bundle runs. In busybox the home
// belongs to root, so that its user can only read it.
var places = map[string]place{
	"debian":  {image: debian, test: "[ -e /lib/x86_64-linux-gnu ] || [ -e /lib/aarch64-linux-gnu ] || exit 1\n"},
	"busybox": {image: busybox, test: "[ -e /lib ] || [ -e /lib64 ] || [ -e /usr/lib ] && exit 1\n"},
	"user": {
		image: busybox, build: "RUN chown -R agent /app\n", toml: "user = \"agent\"\n",
		test: "[ \"$(stat -c %U /app/total.txt /home)\" = \"$(printf 'agent\nroot')\" ] && [ -z \"$(ls -A /home)\" ] || exit 1\n",
	},
}

// place is a task: what is added to its Dockerfile, to the agent block of its
// task.toml and to its test.
type place struct{ image, build, toml, test string }

// On real engines, agents that differ by one word solve the same task in a
// Debian, in an image without a C library, and as a user of the image.
func TestTheExampleOnEngines(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"docker", "podman"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine{e2etest.FindEngine(t, name, debian, busybox)}.try(t)
		})
	}
}

// try runs the example in all places and checks each trial.
func (e engine) try(t *testing.T) {
	t.Helper()
	for _, s := range scaffolds {
		if slices.Contains(always, s.name) {
			bundled(t, s)
		}
	}
	dir := e.folder(t)
	if out, err := e.as(t, filepath.Join(dir, "x"), filepath.Join(dir, "bin", "berth"), "run", ".", "--require", "passed = planned"); err != nil {
		t.Errorf("run: %v\n%s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(dir, "x", "runs", "*", "trials", "*", "attempt-1", "result.json"))
	e2etest.Must(t, err)
	if want := 4 * len(places); len(found) != want {
		t.Errorf("%d results, want %d", len(found), want)
	}
	for _, f := range found {
		counted(t, filepath.Dir(f))
	}
}

// counted checks the record of one trial of the example: all counts of tokens
// are those of replies.yaml.
func counted(t *testing.T, dir string) {
	t.Helper()
	r := e2etest.Result(t, dir)
	who := r.Task + " of " + r.Cell["plugin"]
	if r.Outcome != record.Passed || r.AgentEnd != record.Yielded {
		t.Errorf("%s: %s / %s: %+v\n%s", who, r.Outcome, r.AgentEnd, r.Error, e2etest.Read(t, dir, "turns.jsonl"))
		return
	}
	requests, in, cached, out := 3, int64(4100), int64(3500), int64(160)
	if r.Cell["plugin"] == "terminus" { // is asked whether it is sure
		requests, in, cached, out = 4, 5700, 5000, 190
	} else if len(r.Bundles) != 1 || len(r.Claimed) != 1 || *r.Claimed[0].Input != in || *r.Claimed[0].Output != out {
		t.Errorf("%s: bundles %+v, claimed %+v; want one of each, with %d and %d tokens", who, r.Bundles, r.Claimed, in, out)
	}
	if len(r.Usage) != 1 {
		t.Fatalf("%s: usage %+v", who, r.Usage)
	}
	if u := r.Usage[0]; int(u.Requests) != requests || u.InputTokens != in || u.CachedTokens != cached || u.OutputTokens != out {
		t.Errorf("%s: usage %+v; want %d requests, %d, %d and %d tokens", who, u, requests, in, cached, out)
	}
	for _, f := range r.Findings {
		if slices.Contains([]string{"trajectory", "usage_differs", "other_model"}, f.Code) {
			t.Errorf("%s: finding %s: %s", who, f.Code, f.Text)
		}
	}
	raw := []byte(e2etest.Read(t, dir, "trajectory.json"))
	for _, v := range trajectory.Validate(raw) {
		t.Errorf("%s: trajectory: %s", who, v)
	}
	var tr trajectory.Trajectory
	e2etest.Must(t, json.Unmarshal(raw, &tr))
	if f := tr.FinalMetrics; f == nil || *f.PromptTokens != in || *f.CompletionTokens != out {
		t.Errorf("%s: final metrics %+v", who, f)
	}
}
