package command

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/schemas"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares a text with testdata/name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || got != string(want) {
		t.Errorf("%s (-update writes it): %v\ngot:\n%s\nwant:\n%s", file, err, got, want)
	}
}

// subcommands are the commands that a page of help lists.
var subcommands = regexp.MustCompile(`(?m)^  ([a-z]+) +\S`)

// helpPages are the help of every command: those that the help of berth lists,
// and those that these list in turn.
func helpPages(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	pages := map[string]string{}
	for next := []string{""}; len(next) > 0; next = next[1:] {
		command := next[0]
		r := berth(t, dir, append(strings.Fields(command), "--help")...)
		r.want(t, 0)
		if r.stderr != "" {
			t.Errorf("%s: help on stderr: %s", command, r.stderr)
		}
		pages[command] = r.out
		_, list, _ := strings.Cut(r.out, "\nAvailable Commands:\n")
		list, _, _ = strings.Cut(list, "\n\n")
		for _, m := range subcommands.FindAllStringSubmatch(list, -1) {
			next = append(next, strings.TrimSpace(command+" "+m[1]))
		}
	}
	return pages
}

func TestHelpOfEveryCommand(t *testing.T) {
	t.Parallel()
	pages := map[string]bool{}
	for c, text := range helpPages(t) {
		if !strings.Contains(text, "Examples:") {
			t.Errorf("%s: help has no example", c)
		}
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%s: help has a line of %d columns: %s", c, n, line)
			}
		}
		name := strings.TrimSuffix(strings.ReplaceAll("help "+c, " ", "-"), "-") + ".txt"
		pages[name] = true
		golden(t, name, text)
	}
	files, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasPrefix(f.Name(), "help") && !pages[f.Name()] {
			t.Errorf("testdata/%s is of no command that help lists", f.Name())
		}
	}
}

// A command that cannot begin exits with 2, says why in one place, and prints
// no answer.
func TestErrorsOfUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	task(t, filepath.Join(dir, "tasks"), "one", "touch /app/done")
	experiment(t, dir, "agent.oracle", "")
	e2etest.Write(t, dir, map[string]string{
		"broken/x.hcl": "experiment \"x\" {\n  repeet = 2\n}\n",
		"pbs/x.hcl": strings.Replace(e2etest.Read(t, filepath.Join(dir, "experiment.hcl")), "./tasks", "../tasks", 1) +
			"executor \"pbs\" {}\n",
		"empty/readme": "nothing\n",
	})
	for _, tt := range []struct {
		args, err string
	}{
		{"frobnicate", `unknown command "frobnicate" for "berth". See berth --help`},
		{"plna", `Did you mean "berth plan"?`},
		{"plugin lits", `Did you mean "berth plugin list"?`},
		{"help frobnicate", `unknown command "frobnicate". See berth --help`},
		{"completion tcsh", `no completion for "tcsh". Choose bash, zsh, fish or powershell`},
		{"completion bash extra", `berth completion bash: unexpected argument "extra". See berth completion bash --help`},
		{"run . --in-flight x", `--in-flight must be a whole number, got "x". See berth run --help`},
		{"run . --no-live=x", `--no-live must be true or false, got "x"`},
		{"run --frobnicate", "unknown flag: --frobnicate. See berth run --help"},
		{"run --in-flihgt 2", "unknown flag: --in-flihgt. Did you mean --in-flight?"},
		{"run a b", "berth run: expected at most 1 argument (PATH), got 2. Example: berth run"},
		{"gc x", `berth gc: unexpected argument "x". See berth gc --help`},
		{"run nowhere.hcl", "nowhere.hcl"},
		{"run broken", "repeat"},
		{"run pbs", `executor "pbs" is not known`},
		{"run . --in-flight 0", "--in-flight must be at least 1, got 0"},
		{"run . --in-flight -1", "--in-flight must be at least 1, got -1"},
		{"compare last --seed x", `--seed must be a whole number, 0 or more, got "x"`},
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
		{"try tasks/one --network nnoe", `Did you mean "none"?`},
		{"try tasks/one --repeat 0", "Error: --repeat: Wrong value\n"},
		{"resume nowhere", `no run "nowhere"`},
		{"resume tasks", "not a run folder"},
		{"resume last", "no run in ./runs yet"},
		{"resume x --again passed", "this outcome is a result"},
		{"resume x --again lost", "unknown outcome"},
		{"show nowhere", `no run "nowhere"`},
		{"task check empty", "no task at or below empty"},
		{"task check tasks --format none", `no task format "none"; known: harbor`},
		{"task check tasks --format habror", `no task format "habror": did you mean "harbor"?`},
		{"plugin info none", `no plugin "none"`},
		{"plugin info orcle", `no plugin "orcle": did you mean "oracle"?`},
		{"plugin info verifer\x00script", `"verifer" is not a kind of plugin: did you mean "verifier"?`},
		{"run . --require agnet=oracle:passed=1", `no axis "agnet": did you mean "agent"?`},
		{"run . --require passd=1", `unknown metric "passd": did you mean "passed"?`},
		{"plugin info script-", `no plugin "script-"`},
		{"plugin test none", "test none: no such file or directory. Example: berth plugin test bin/plugins/berth-plugin-local"},
		{"plugin test experiment.hcl --config x", `--config "x" is not JSON`},
		{"init . --tasks x", "experiment.hcl exists"},
	} {
		args := strings.Fields(tt.args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "\x00", " ")
		}
		r := berth(t, dir, args...)
		if r.code != 2 || !strings.Contains(r.stderr, tt.err) || r.out != "" {
			t.Errorf("%s: code %d, want 2 and %q\nstdout: %s\nstderr: %s", tt.args, r.code, tt.err, r.out, r.stderr)
		}
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "runs")); err == nil {
		t.Errorf("something was begun: %v", entries)
	}
}

// An error about the working folder says what to do.
func TestPlacesThatDoNotDo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	task(t, filepath.Join(dir, "tasks"), "one", "touch /app/done")
	experiment(t, dir, "agent.oracle", "")
	if err := os.Rename(filepath.Join(dir, "experiment.hcl"), filepath.Join(dir, "own.hcl")); err != nil {
		t.Fatal(err)
	}
	r := berth(t, dir, "init")
	if r.code != 2 || !strings.Contains(r.stderr, "own.hcl exists, and all *.hcl files of a folder are one experiment: choose another folder") {
		t.Errorf("init beside another experiment: code %d: %s", r.code, r.stderr)
	}
	e2etest.Write(t, dir, map[string]string{"runs": "a file"})
	for _, args := range [][]string{{"run"}, {"show"}, {"show", "last"}} {
		if r := berth(t, dir, args...); r.code != 2 || !strings.Contains(r.stderr, "runs") || !strings.Contains(r.stderr, "not a directory") || strings.Contains(r.stderr, "yet") {
			t.Errorf("%v: code %d: %s", args, r.code, r.stderr)
		}
	}
	cmd, out, stderr := tree.Command(t, dir, "try", "tasks/one", "--runs", "elsewhere")
	cmd.Env = append(cmd.Env, "TMPDIR="+filepath.Join(dir, "none"))
	if r := ended(t, cmd, cmd.Run(), out, stderr); r.code != 0 && tree.NoSandbox == "" {
		t.Errorf("without a folder for temporary files: code %d: %s", r.code, r.stderr)
	}
	for args, code := range map[string]int{"validate": 2, "show last": 2, "init": 2, "version": 0, "help run": 0} {
		gone, err := os.MkdirTemp(dir, "gone")
		if err != nil {
			t.Fatal(err)
		}
		// The shell removes the folder while it is in it.
		cmd, out, stderr := tree.Command(t, gone, strings.Fields(args)...)
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `rmdir "$0" && exec "$@"`, gone, tree.Binary}
		cmd.Args = append(cmd.Args, strings.Fields(args)...)
		if r := ended(t, cmd, cmd.Run(), out, stderr); r.code != code || (code == 2) != strings.Contains(r.stderr, "the current folder was removed: change to another one") {
			t.Errorf("%s in a folder that is gone: code %d: %s", args, r.code, r.stderr)
		}
	}
}

// With --json a program can read the reason from the last line of stderr,
// whatever went wrong, and whenever.
func TestFailuresAsJSON(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	task(t, filepath.Join(dir, "tasks"), "one", "touch /app/done")
	e2etest.Write(t, dir, map[string]string{"broken/x.hcl": "experiment \"x\" {\n  repeet = 2\n}\n"})
	berth(t, dir, "init").want(t, 0)
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
		r := berth(t, dir, append(strings.Fields(tt.args), "--json")...)
		r.want(t, 2)
		if strings.Count(r.stderr, "\n") != 1 || r.out != "" {
			t.Errorf("%s: stdout %q, stderr %q; want one line of stderr", tt.args, r.out, r.stderr)
		}
		if err := schemas.Check("cli-failure", []byte(r.stderr)); err != nil {
			t.Errorf("%s: %v", tt.args, err)
		}
		var f types.Failure
		if err := json.Unmarshal([]byte(r.stderr), &f); err != nil || f.Code != 2 || !strings.Contains(f.Error, tt.err) ||
			(tt.detail != "" && (len(f.Diagnostics) == 0 || !strings.Contains(r.stderr, tt.detail))) {
			t.Errorf("%s: %+v, %v", tt.args, f, err)
		}
	}
}

// When a reader closes its pipe, neither a plan nor a run ends, because a run
// has sandboxes to remove; an answer that could not be written is an error.
func TestReadersThatGoAway(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	berth(t, dir, "init").want(t, 0)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	for _, args := range [][]string{{"plan"}, {"plan", "--json"}} {
		cmd, _, stderr := tree.Command(t, dir, args...)
		cmd.Stdout = full
		if r := ended(t, cmd, cmd.Run(), new(bytes.Buffer), stderr); r.code != 1 || !strings.Contains(r.stderr, "write the result") {
			t.Errorf("%v on a full disk: code %d, %s", args, r.code, r.stderr)
		}
	}
	nobody, gone, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Close()
	if err = nobody.Close(); err != nil {
		t.Fatal(err)
	}
	cmd, _, _ := tree.Command(t, dir, "run")
	cmd.Stdout, cmd.Stderr = gone, gone
	ended(t, cmd, cmd.Run(), new(bytes.Buffer), new(bytes.Buffer)).want(t, 0)
	if v := answer[types.Runs](t, berth(t, dir, "show", "--json"), "cli-show-runs"); len(v.Runs) != 1 || !v.Runs[0].Complete {
		t.Errorf("runs: %+v", v.Runs)
	}
}

// A pipe among the files blocks no command.
func TestAPipeAmongTheFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "x.hcl"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := berth(t, dir, "validate")
	if r.code != 2 || !strings.Contains(r.stderr, "x.hcl is not a regular file") {
		t.Errorf("code %d: %s", r.code, r.stderr)
	}
}

func TestAnswersAsJSON(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	task(t, filepath.Join(dir, "tasks"), "one", "touch /app/done")
	if v := answer[types.Version](t, berth(t, dir, "version", "--json"), "cli-version"); v.Version == "" {
		t.Error("no version")
	}
	if v := answer[types.Init](t, berth(t, dir, "init", "--json"), "cli-init"); len(v.Files) != 1 { // there are tasks already
		t.Errorf("init: %+v", v)
	}
	if v := answer[types.Runs](t, berth(t, dir, "show", "--json"), "cli-show-runs"); len(v.Runs) != 0 {
		t.Errorf("runs: %+v", v)
	}
	list := answer[types.PluginList](t, berth(t, dir, "plugin", "list", "--json"), "cli-plugin-list")
	if len(list.Plugins) < 4 {
		t.Errorf("plugins: %+v", list.Plugins)
	}
	for _, p := range list.Plugins {
		if p.Path == "" || !strings.HasPrefix(p.Digest, "sha256:") || p.Protocol == 0 || p.Version == "" {
			t.Errorf("plugin %+v", p)
		}
		info := answer[types.PluginList](t, berth(t, dir, "plugin", "info", p.Kind+" "+p.Name, "--json"), "cli-plugin-list")
		if len(info.Plugins) != 1 || len(info.Plugins[0].Schema) == 0 {
			t.Errorf("info of %s: %+v", p.Name, info)
		}
	}
	kit := answer[types.PluginTest](t, berth(t, dir, "plugin", "test", e2etest.Plugin(filepath.Join(tree.Root, "bin"), "nop"), "--json"), "cli-plugin-test")
	if kit.Failed > 0 || kit.Passed == 0 || len(kit.Clauses) != kit.Passed+kit.Skipped {
		t.Errorf("kit: %+v", kit)
	}
	answer[types.Doctor](t, berth(t, dir, "doctor", "--json"), "cli-doctor")
	answer[types.GC](t, berth(t, dir, "gc", "--dry-run", "--json"), "cli-gc")
	check := answer[types.TaskCheck](t, berth(t, dir, "task", "check", "tasks", "--json"), "cli-task-check")
	if check.Valid != 1 || check.Tasks[0].Task == nil {
		t.Errorf("task check: %+v", check)
	}
	broken := answer[types.Validate](t, berth(t, dir, "validate", "tasks", "--json"), "cli-validate")
	if broken.Valid || len(broken.Diagnostics) == 0 {
		t.Errorf("validate: %+v", broken)
	}
}

// What init writes is an experiment that can be planned.
func TestInitPlanAndValidate(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	task(t, filepath.Join(dir, "tasks"), "one", "touch /app/done")
	berth(t, dir, "init").want(t, 0)
	berth(t, dir, "validate").want(t, 0)
	r := berth(t, dir, "plan", "--json", "--trials")
	r.want(t, 0)
	p := answer[types.Plan](t, r, "cli-plan")
	if !p.Ready || p.Trials != 1 || len(p.List) != 1 || len(p.List[0].ID) != 64 || p.Cost.WorstUSD == nil || *p.Cost.WorstUSD != 0 {
		t.Errorf("plan: %+v", p)
	}
	text := berth(t, dir, "plan")
	text.want(t, 0)
	if !strings.Contains(text.out, "1 cell × 1 task × 1 repetition = 1 trial") {
		t.Errorf("plan: %s", text.out)
	}
	second := answer[types.Plan](t, berth(t, dir, "plan", "--json", "--trials"), "cli-plan")
	if second.List[0].ID != p.List[0].ID {
		t.Error("the same plan has other trial ids")
	}
	if _, err := os.Stat(filepath.Join(dir, "runs")); err == nil {
		t.Error("a plan made a folder")
	}
}

// In an empty folder two commands lead to a run, and a second init changes
// nothing.
func TestInitAndRun(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	v := answer[types.Init](t, berth(t, dir, "init", "--json"), "cli-init")
	if len(v.Files) < 6 {
		t.Errorf("init: %q", v.Files)
	}
	r := answer[types.Run](t, berth(t, dir, "run", "--json"), "cli-run")
	if !r.Summary.Complete || r.Summary.Outcomes[record.Passed] != 1 {
		t.Errorf("run: %+v", r.Summary)
	}
	e2etest.Write(t, dir, map[string]string{"tasks/hello/instruction.md": "mine"})
	berth(t, dir, "init").want(t, 2)
	if err := os.Remove(filepath.Join(dir, "experiment.hcl")); err != nil {
		t.Fatal(err)
	}
	berth(t, dir, "init").want(t, 0)
	if got := e2etest.Read(t, filepath.Join(dir, "tasks/hello/instruction.md")); got != "mine" {
		t.Errorf("init wrote over a task: %q", got)
	}
}

func TestCompletionKnowsTheCommands(t *testing.T) {
	t.Parallel()
	r := berth(t, t.TempDir(), "completion", "bash")
	r.want(t, 0)
	if !strings.Contains(r.out, "__start_berth") {
		t.Error("no completion for bash")
	}
	dir := t.TempDir()
	e2etest.Write(t, dir, map[string]string{"runs/a-run/" + store.ManifestFile: "{}\n"})
	for _, c := range []string{"show", "resume"} {
		if r = berth(t, dir, "__complete", c, ""); !strings.Contains(r.out, "last\na-run\n") {
			t.Errorf("%s completes %q", c, r.out)
		}
	}
}

// A foreign folder does not count as a run, and is not written to.
func TestShowReadsOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e2etest.Write(t, dir, map[string]string{"runs/x/" + store.ManifestFile: "{}\n"})
	r := berth(t, dir, "show")
	r.want(t, 0)
	if !strings.Contains(r.out, "does not describe the run") {
		t.Errorf("show: %s", r.out)
	}
	berth(t, dir, "show", "x").want(t, 2)
}

// A plugin that does not start is reported, and prevents no task from running.
func TestDoctorAndListNameABrokenPlugin(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	e2etest.Write(t, dir, map[string]string{"plugins/berth-plugin-broken/berth-plugin-broken": "#!/bin/sh\necho no >&2\nexit 3\n"})
	with := func(args ...string) result {
		cmd, out, stderr := tree.Command(t, dir, args...)
		cmd.Env = append(cmd.Env, "BERTH_PLUGIN_PATH="+filepath.Join(dir, "plugins"))
		return ended(t, cmd, cmd.Run(), out, stderr)
	}
	r := with("doctor")
	r.want(t, 0)
	if !strings.Contains(r.out, "plugin plugins/berth-plugin-broken/berth-plugin-broken: ") || !strings.Contains(r.out, "This machine can run tasks") || !strings.Contains(r.out, "No sandbox was started to find out.") {
		t.Errorf("doctor: %s", r.out)
	}
	r = with("plugin", "list")
	r.want(t, 0)
	if !strings.Contains(r.stderr, "berth-plugin-broken: ") || !strings.Contains(r.out, "oracle") {
		t.Errorf("list: %s%s", r.out, r.stderr)
	}
}
