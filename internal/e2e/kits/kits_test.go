package kits

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

var tree e2etest.Checkout

func TestMain(m *testing.M) { os.Exit(tree.Main(m)) }

// quick are the plugins that `make test` tries: one of each kind.
var quick = []string{"oracle", "local", "script"}

// refused is the exit code of `berth plugin test` where the plugin cannot work on this
// machine.
const refused = 2

// try runs the kit on a plugin. Where the plugin cannot work on this machine, the test
// is skipped with what the kit says.
func try(t *testing.T, plugin string, args ...string) {
	t.Helper()
	if why := kit(t, plugin, args...); why != "" {
		testlevel.Cannot(t, filepath.Base(plugin)+": "+reason(why), why)
	}
}

// kit runs the kit on a plugin, and returns what it says if the plugin was not seen at
// work on this machine.
func kit(t *testing.T, plugin string, args ...string) (why string) {
	t.Helper()
	code, out, stderr := tree.Berth(t, tree.Root, append([]string{"plugin", "test", plugin}, args...)...)
	switch code {
	case 0:
		return ""
	case refused:
		return stderr
	default:
		t.Errorf("exit code %d\n%s%s", code, failed(out), stderr)
		return ""
	}
}

// reason is the sentence in the first error of the kit that says what is missing.
func reason(stderr string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(stderr), "\n")
	if _, after, ok := strings.Cut(line, "the clauses that passed say little: "); ok {
		line = after
	}
	return strings.TrimSuffix(strings.TrimPrefix(line, "it refuses: "), " (refused)")
}

// failed returns the clauses that failed, with what is said about them.
func failed(out string) string {
	return strings.Join(regexp.MustCompile(`(?m)^fail.*\n(?:        .*\n)*`).FindAllString(out, -1), "")
}

func TestPluginsPassTheirKits(t *testing.T) {
	t.Parallel()
	found, err := filepath.Glob(filepath.Join(tree.Root, "bin", "plugins", "berth-plugin-*"))
	e2etest.Must(t, err)
	for _, path := range found {
		name := strings.TrimPrefix(filepath.Base(path), "berth-plugin-")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !slices.Contains(quick, name) {
				testlevel.Long(t, "test-kits")
			}
			switch name {
			case "docker", "podman":
				onEngine(t, path, name)
			case "scaffolds":
				if why := kit(t, path); why != "" {
					t.Logf("what needs a bundle is tried by make test-scaffolds: %s", why)
				}
			case "human":
				byHand(t, path)
			default:
				try(t, path, options(t, name)...)
			}
		})
	}
	if len(found) < 10 {
		t.Errorf("found %d plugins", len(found))
	}
}

// options returns what a plugin needs to be tried, from its testdata.
func options(t *testing.T, name string) (args []string) {
	t.Helper()
	for flag, file := range map[string]string{
		"--replies": "agents/" + name + "/testdata/kit/replies.yaml",
		"--case":    "verifiers/" + name + "/testdata/kit",
	} {
		if _, err := os.Stat(filepath.Join(tree.Root, file)); err == nil {
			args = append(args, flag, file)
		}
	}
	for flag, file := range map[string]string{
		"--config": "agents/" + name + "/testdata/kit/config.json",
		"--level":  "environments/" + name + "/testdata/level",
	} {
		if text, err := os.ReadFile(filepath.Join(tree.Root, file)); err == nil {
			args = append(args, flag, string(text))
		}
	}
	return args
}

// onEngine tries an environment over a container engine, as the user of the engine.
func onEngine(t *testing.T, path, name string) {
	t.Helper()
	const image = "localhost/berth-test/base:1"
	e := e2etest.FindEngine(t, name, image)
	dir := e.Release(t, tree.Root)
	e.Own(t, dir)
	cmd := e.Command(t.Context(), t, dir, filepath.Join(dir, "bin", "berth"), "plugin", "test",
		filepath.Join(dir, "bin", "plugins", filepath.Base(path)), "--image", image, "--config", `{"socket": "`+e.Socket+`"}`)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, failed(string(out)))
	}
}

// byHand tries the agent for persons on a terminal of its own: a shell that does what
// the kit asks for takes the place of the person.
func byHand(t *testing.T, path string) {
	t.Helper()
	script := testlevel.Program(t, "script", "bsdutils") // which makes a terminal
	cmd := exec.CommandContext(t.Context(), script, "--quiet", "--return", "--command",
		`exec `+tree.Binary+` plugin test "$PLUGIN" --config "{\"terminal\":\"$(tty)\",\"words\":false,\"shell\":[\"sh\",\"-c\",\"echo 42 > answer.txt\"]}"`, "/dev/null")
	cmd.Dir, cmd.Env = tree.Root, append(os.Environ(), "PLUGIN="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Plugins in a module of their own, like those of other authors: they build outside
// this tree's go.mod, pass their own tests, and do not import what only the core needs.
func TestPluginsInAModuleOfTheirOwn(t *testing.T) {
	t.Parallel()
	testlevel.Long(t, "test-kits")
	dir, out := filepath.Join(tree.Root, "examples", "plugins"), t.TempDir()
	do := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, text)
		}
		return string(text)
	}
	do("vet", "./...")
	do("test", "./...")
	do("build", "-o", out+"/", "./...")
	heavy := regexp.MustCompile(`(?m)^(github\.com/(containers|moby|docker|hashicorp/hcl|spf13|chromedp)|charm\.land)/.*`)
	if imported := heavy.FindString(do("list", "-deps", "./...")); imported != "" {
		t.Errorf("a plugin in a module of its own must not need %s", imported)
	}
	found, err := os.ReadDir(out)
	e2etest.Must(t, err)
	for _, f := range found {
		t.Run(f.Name(), func(t *testing.T) {
			t.Parallel()
			var args []string
			if works := filepath.Join(dir, f.Name(), "testdata", "kit"); isDir(works) {
				args = append(args, "--case", works)
			}
			try(t, filepath.Join(out, f.Name()), args...)
		})
	}
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// Plugins in Python, with the interpreter and the grpcio of the distribution.
func TestPluginsInPython(t *testing.T) {
	testlevel.Long(t, "test-kits")
	t.Setenv("PATH", "/usr/bin:/bin:"+os.Getenv("PATH")) // before any other Python of the user
	t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	python := func(t *testing.T, args ...string) ([]byte, error) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "python3", args...)
		cmd.Dir = tree.Root
		return cmd.CombinedOutput()
	}
	testlevel.PluginsInPython(t)
	for _, tests := range []string{"python/tests", "environments/football/tests"} {
		t.Run(tests, func(t *testing.T) {
			if out, err := python(t, "-m", "unittest", "discover", "--quiet", "--start-directory", tests); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	plugins, err := filepath.Glob(filepath.Join(tree.Root, "examples", "plugins-python", "*", "berth-plugin-*"))
	e2etest.Must(t, err)
	for _, plugin := range plugins {
		t.Run(filepath.Base(plugin), func(t *testing.T) {
			try(t, plugin)
		})
	}
	if len(plugins) < 3 {
		t.Errorf("found %d plugins in Python", len(plugins))
	}
}
