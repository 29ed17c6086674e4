package scaffolds

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
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

// find returns the engine of that name if it has both images. Otherwise it
// skips the test and says why.
func find(t *testing.T, name string) engine {
	t.Helper()
	return engine{e2etest.FindEngine(t, name, debian, busybox)}
}

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

// programs makes a folder with the programs of a release.
func (e engine) programs(t *testing.T) string {
	t.Helper()
	return e.Release(t, tree.Root, "terminus", "scaffolds", "script", "persona", "supervisor")
}

// folder makes a folder with the programs and the example, with a task for each
// place. The folder belongs to the user of the engine. config is added to the
// configuration of the environment.
func (e engine) folder(t *testing.T, places map[string]place, config string) string {
	t.Helper()
	dir := e.programs(t)
	example := filepath.Join(tree.Root, "examples", "scaffolds")
	text := func(name string) string { return e2etest.Read(t, example, name) }
	change := func(s, from, to string) string { return change(t, s, from, to) }
	e2etest.Write(t, dir, map[string]string{
		"x/replies.yaml": text("replies.yaml"),
		"x/berth.hcl":    e.used(t, text("berth.hcl"), config),
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
		e2etest.Write(t, filepath.Join(to, "environment"), with.files)
	}
	e.Own(t, dir)
	return dir
}

// lay writes an experiment of a scaffold with one task for each trial, in an
// image of the engine. It returns the folder of the programs and that of the
// experiment.
func (e engine) lay(t *testing.T, s scaffold, trials map[string]ending) (dir, x string) {
	t.Helper()
	dir = e.programs(t)
	x = filepath.Join(dir, "x")
	s.lay(t, x, trials)
	files := map[string]string{"berth.hcl": e.used(t, e2etest.Read(t, x, "berth.hcl"), "")}
	for name := range trials {
		file := filepath.Join("tasks", name, "environment", "Dockerfile")
		files[file] = change(t, e2etest.Read(t, x, file), "debian:bookworm-slim", debian)
	}
	e2etest.Write(t, x, files)
	return dir, x
}

// used returns an experiment with this engine instead of local.
func (e engine) used(t *testing.T, experiment, config string) string {
	t.Helper()
	return change(t, experiment, "  plugin = \"local\"\n", fmt.Sprintf("  plugin = %q\n  config {\n    socket = %q\n%s  }\n", e.Name, e.Socket, config))
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
// task.toml and to its test, and files beside its Dockerfile.
type place struct {
	image, build, toml, test string
	files                    map[string]string
}

// muslPlace is an image whose C library is musl, as in Alpine: the package of
// Debian and a static busybox, without glibc.
func muslPlace(t *testing.T) place {
	t.Helper()
	dir := t.TempDir()
	e2etest.Must(t, os.Chmod(dir, 0o777)) //nolint:gosec // apt downloads as a user of its own
	for _, argv := range [][]string{{"apt-get", "download", "-qq", "musl"}, {"sh", "-c", "dpkg-deb -x musl_*.deb root"}} {
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			testlevel.Cannot(t, "Debian's musl cannot be downloaded: run the test with a network", fmt.Sprintf("%v: %s", err, out))
		}
	}
	found, err := filepath.Glob(filepath.Join(dir, "root", "lib", "*", "libc.so"))
	e2etest.Must(t, err)
	if len(found) != 1 {
		t.Skipf("Debian's musl is not where it is expected: %q", found)
	}
	loader := "ld-musl-" + strings.TrimSuffix(filepath.Base(filepath.Dir(found[0])), "-linux-musl") + ".so.1"
	return place{
		image: busybox, build: "COPY " + loader + " /lib/" + loader + "\n", files: map[string]string{loader: e2etest.Read(t, filepath.Dir(found[0]), "libc.so")},
		test: "case $(/lib/" + loader + " 2>&1) in \"musl libc\"*) ;; *) exit 1 ;; esac\n[ -e /lib/x86_64-linux-gnu ] || [ -e /lib64 ] || [ -e /usr/lib ] && exit 1\n",
	}
}

// The example works in an image with musl, as in Alpine.
func TestTheExampleWithMusl(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"docker", "podman"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := find(t, name)
			e.try(t, map[string]place{"musl": muslPlace(t)}, "")
		})
	}
}

// On real engines, agents that differ by one word solve the same task in a
// Debian, in an image without a C library, and as a user of the image.
func TestTheExampleOnEngines(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"docker", "podman"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := find(t, name)
			e.try(t, places, "")
		})
	}
}

// The real programs work with a home on a read-only file system and leave it
// unchanged, also as root, whom file modes do not restrict.
func TestAReadOnlyHome(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"docker", "podman"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := find(t, name)
			home, err := os.MkdirTemp(testlevel.Tmp(), "bsh")
			e2etest.Must(t, err)
			t.Cleanup(func() { _ = os.RemoveAll(home) })
			e2etest.Must(t, os.Chmod(home, 0o755)) //nolint:gosec // another user mounts it
			e2etest.Write(t, home, map[string]string{"mark": "MARK"})
			e.try(t, map[string]place{
				"home": {image: busybox, test: "[ \"$(ls -A /root)\" = mark ] && ! touch /root/x || exit 1\n"},
			}, fmt.Sprintf("    mount {\n      source = %q\n      target = \"/root\"\n    }\n", home))
		})
	}
}

// Each of the real programs solves a task in a container. At its deadline it
// ends before the verifier begins.
func TestEachOnEngines(t *testing.T) {
	t.Parallel()
	if !testlevel.All() {
		t.Skip("it takes long: run make test-scaffolds BERTH_TEST=all")
	}
	for _, name := range []string{"docker", "podman"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := find(t, name)
			for _, s := range scaffolds {
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					needs(t, s)
					e.each(t, s)
				})
			}
		})
	}
}

func (e engine) each(t *testing.T, s scaffold) {
	t.Helper()
	trials := s.trials()
	maps.DeleteFunc(trials, func(name string, _ ending) bool { return name != "solve" && name != "deadline" })
	for name, tr := range trials {
		tr.verify += ` && [ "$(wc -l </proc/net/route)" -le 1 ]`
		trials[name] = tr
	}
	dir, x := e.lay(t, s, trials)
	e.Own(t, dir)
	if out, err := e.as(t, x, filepath.Join(dir, "bin", "berth"), "run", "--require", "passed = planned"); err != nil {
		t.Errorf("run: %v\n%s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(x, "runs", "*", "trials", "*", "attempt-1", "result.json"))
	e2etest.Must(t, err)
	if len(found) != len(trials) {
		t.Errorf("%d results, want %d", len(found), len(trials))
	}
	for _, f := range found {
		r := e2etest.Result(t, filepath.Dir(f))
		name := strings.TrimPrefix(r.Task, "e2e/")
		t.Run(name, func(t *testing.T) { s.judge(t, name, trials[name], filepath.Dir(f)) })
	}
}

// try runs the example in all places and checks each trial.
func (e engine) try(t *testing.T, places map[string]place, config string) {
	t.Helper()
	for _, s := range scaffolds {
		if slices.Contains(always, s.name) {
			bundled(t, s)
		}
	}
	dir := e.folder(t, places, config)
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
