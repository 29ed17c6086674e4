package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/schemas"
)

// A command that cannot begin exits with 2, says why in one place, and prints
// no answer.
func TestErrorsOfUsage(t *testing.T) {
	dir := experiment(t)
	write(t, dir, map[string]string{
		"broken/x.hcl": "experiment \"x\" {\n  repeet = 2\n}\n",
		"pbs/x.hcl":    strings.Replace(experimentText, "./tasks", "../tasks", 1) + "executor \"pbs\" {}\n",
		"empty/readme": "nothing\n",
	})
	t.Chdir(dir)
	for _, tt := range []struct {
		args, err string
	}{
		{"frobnicate", `unknown command "frobnicate" for "berth". See berth --help`},
		{"plna", `Did you mean "berth plan"?`},
		{"plugin lits", `Did you mean "berth plugin list"?`},
		{"help frobnicate", `unknown command "frobnicate". See berth --help`},
		{"run . --in-flight x", `--in-flight must be a whole number of at least 1, got "x". See berth run --help`},
		{"gc --dry-run=x", `--dry-run must be true or false, got "x"`},
		{"run --frobnicate", "unknown flag: --frobnicate. See berth run --help"},
		{"run --in-flihgt 2", "unknown flag: --in-flihgt. Did you mean --in-flight?"},
		{"run a b", "berth run: expected at most 1 argument (PATH), got 2. Example: berth run"},
		{"gc x", `berth gc: unexpected argument "x". See berth gc --help`},
		{"run nowhere.hcl", "nowhere.hcl"},
		{"run broken", "repeat"},
		{"run pbs", `executor "pbs" is not known`},
		{"run . --in-flight 0", "--in-flight must be a whole number of at least 1, got \"0\""},
		{"run . --in-flight -1", "--in-flight must be a whole number of at least 1, got \"-1\""},
		{"compare last --seed x", "unknown flag: --seed"},
		{"run . --require nonsense", `requirement "nonsense"`},
		{"task check nowhere", "no such folder: nowhere"},
		{"run . --var x", "x"},
		{"plan broken", "repeet"},
		{"validate pbs", `executor "pbs" is not known`},
		{"validate broken", "repeet"},
		{"try", "berth try: expected 1 argument (DIR), got none. Example: berth try tasks/hello"},
		{"try nowhere", "no such folder: nowhere"},
		{"try empty", "no task at or below empty"},
		{"try tasks/one --agent nobody", "Error: --agent: Plugin \"nobody\" cannot be used\n"},
		{"try tasks/one --agent orcale", `did you mean "oracle"?`},
		{"try tasks/one --environment locla", "Error: --environment: Plugin \"locla\" cannot be used\n"},
		{"try tasks/one --verify liv", "Error: --verify: Wrong value\n\nGot \"liv\". Did you mean \"live\"? Write one of"},
		{"try tasks/one --repeat 0", "Error: --repeat: Wrong value\n"},
		{"resume nowhere", `no run "nowhere"`},
		{"resume tasks", "not a run folder"},
		{"resume last", "no run in ./runs yet"},
		{"resume x --again passed", "this outcome is a result"},
		{"resume x --again lost", "unknown outcome"},
		{"show nowhere", `no run "nowhere"`},
		{"task check empty", "no task at or below empty"},
		{"plugin info none", `no plugin "none"`},
		{"plugin info orcle", `no plugin "orcle": did you mean "oracle"?`},
		{"plugin info verifer\x00script", `"verifer" is not a kind of plugin: did you mean "verifier"?`},
		{"run . --require agnet=oracle:passed=1", "no cell is like that"},
		{"run . --require passd=1", `unknown metric "passd": did you mean "passed"?`},
		{"plugin info script-", `no plugin "script-"`},
		{"plugin test none", "test none: no such file or directory. Example: berth plugin test bin/plugins/berth-plugin-local"},
		{"plugin test experiment.hcl --config x", `--config "x" is not JSON`},
		{"init .", "experiment.hcl exists"},
	} {
		args := strings.Fields("berth " + tt.args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "\x00", " ")
		}
		run(t, args...).must(usage(tt.err))
	}
	if entries, err := os.ReadDir("runs"); err == nil {
		t.Errorf("something was begun: %v", entries)
	}
}

// An error about the working folder says what to do.
func TestPlacesThatDoNotDo(t *testing.T) {
	dir := experiment(t)
	if err := os.Rename(filepath.Join(dir, "experiment.hcl"), filepath.Join(dir, "own.hcl")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	words(t, "init").must(usage("own.hcl exists, and all *.hcl files of a folder are one experiment: choose another folder"))
	write(t, dir, map[string]string{"runs": "a file"})
	for _, line := range []string{"run", "show", "show last"} {
		if r := words(t, line).must(usage("runs", "not a directory")); strings.Contains(r.stderr, "yet") {
			t.Errorf("%s: %s", line, r.stderr)
		}
	}
	for line, code := range map[string]int{"validate": 2, "show last": 2, "init": 2, "--version": 0, "help run": 0} {
		gone := filepath.Join(dir, "gone")
		if err := os.Mkdir(gone, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Chdir(gone)
		if err := os.Remove(gone); err != nil {
			t.Fatal(err)
		}
		if r := words(t, line).must(exit(code)); (code == 2) != strings.Contains(r.stderr, "the current folder was removed: change to another one") {
			t.Errorf("%s in a folder that is gone: %s", line, r.stderr)
		}
	}
}

// With --json a program can read the reason from the last line of stderr,
// whatever went wrong, and whenever.
func TestFailuresAsJSON(t *testing.T) {
	dir := experiment(t)
	write(t, dir, map[string]string{"broken/x.hcl": "experiment \"x\" {\n  repeet = 2\n}\n"})
	t.Chdir(dir)
	for _, tt := range []struct{ args, err, detail string }{
		{"frobnicate", "unknown command", ""},
		{"run . --in-flight x", "--in-flight must be", ""},
		{"run --frobnicate", "unknown flag", ""},
		{"run broken", "nothing was started", "repeet"},
		{"run . --var x=1", "nothing was started", "x"},
		{"try nowhere", "no such folder: nowhere", ""},
		{"resume nowhere", `no run "nowhere"`, ""},
		{"init", "experiment.hcl exists", ""},
		{"gateway broken", "nothing was started", "repeet"},
	} {
		r := words(t, tt.args+" --json").must(usage(tt.detail))
		if strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: stderr %q; want one line", tt.args, r.stderr)
		}
		if err := schemas.Check("cli-failure", []byte(r.stderr)); err != nil {
			t.Errorf("%s: %v", tt.args, err)
		}
		var f output.Failure
		if err := json.Unmarshal([]byte(r.stderr), &f); err != nil || f.Code != 2 || !strings.Contains(f.Error, tt.err) || (tt.detail != "" && len(f.Diagnostics) == 0) {
			t.Errorf("%s: %+v, %v", tt.args, f, err)
		}
	}
}

// A pipe among the files blocks no command.
func TestAPipeAmongTheFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "x.hcl"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "berth", "validate", dir).must(usage("x.hcl is not a regular file"))
}

func TestAnswersAsJSON(t *testing.T) {
	dir := t.TempDir()
	harborTask(t, filepath.Join(dir, "tasks", "one"))
	t.Chdir(dir)
	var begun output.Init
	if words(t, "init --json").must(exit(0), printsJSON("cli-init", &begun)); len(begun.Files) != 1 { // there are tasks already
		t.Errorf("init: %+v", begun)
	}
	var runs output.Runs
	if words(t, "show --json").must(exit(0), printsJSON("cli-show-runs", &runs)); len(runs.Runs) != 0 {
		t.Errorf("runs: %+v", runs)
	}
	var list output.PluginList
	if words(t, "plugin list --json").must(exit(0), printsJSON("cli-plugin-list", &list)); len(list.Plugins) < 4 {
		t.Errorf("plugins: %+v", list.Plugins)
	}
	for _, p := range list.Plugins {
		if p.Path == "" || !strings.HasPrefix(p.Digest, "sha256:") || p.Protocol == 0 || p.Version == "" {
			t.Errorf("plugin %+v", p)
		}
		var info output.PluginList
		run(t, "berth", "plugin", "info", p.Kind+" "+p.Name, "--json").must(exit(0), printsJSON("cli-plugin-list", &info))
		if len(info.Plugins) != 1 || len(info.Plugins[0].Schema) == 0 {
			t.Errorf("info of %s: %+v", p.Name, info)
		}
	}
	words(t, "doctor --json").must(exit(0), printsJSON("cli-doctor", nil))
	words(t, "gc --dry-run --json").must(exit(0), printsJSON("cli-gc", nil))
	var checked output.TaskCheck
	if words(t, "task check tasks --json").must(exit(0), printsJSON("cli-task-check", &checked)); checked.Valid != 1 || checked.Tasks[0].Task == nil {
		t.Errorf("task check: %+v", checked)
	}
	var broken output.Validate
	if words(t, "validate tasks --json").must(exit(2), printsJSON("cli-validate", &broken)); broken.Valid || len(broken.Diagnostics) == 0 {
		t.Errorf("validate: %+v", broken)
	}
}

// A plugin that does not start is reported, and prevents no task from running.
func TestDoctorAndListNameABrokenPlugin(t *testing.T) {
	dir := t.TempDir()
	program := "plugins/berth-plugin-broken/berth-plugin-broken"
	write(t, dir, map[string]string{program: "#!/bin/sh\necho no >&2\nexit 3\n"})
	if err := os.Chmod(filepath.Join(dir, program), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	t.Setenv("BERTH_PLUGIN_PATH", os.Getenv("BERTH_PLUGIN_PATH")+":"+filepath.Join(dir, "plugins"))
	words(t, "doctor").must(exit(0), prints("plugin plugins/berth-plugin-broken/berth-plugin-broken: ", "This machine can run tasks", "No sandbox was started to find out."))
	words(t, "plugin list").must(exit(0), complains("berth-plugin-broken: "), prints("oracle"))
}
