package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/store"
)

// readers are the commands that read a run, without the run.
var readers = []string{
	"show", "compare", "audit", "resume", "regrade", "replay", "pilot", "note", "ctl", "show RUN aaaa", "show RUN --by cell",
	"report RUN -o OUT", "export RUN --to csv -o OUT", "export RUN --to harbor -o OUT", "export RUN --to atif -o OUT", "export RUN --to bundle -o OUT",
}

// on returns the command line of a reader on a run.
func on(t *testing.T, line, run string) string {
	t.Helper()
	if !strings.Contains(line, "RUN") {
		line += " RUN"
	}
	return strings.NewReplacer("RUN", run, "OUT", filepath.Join(t.TempDir(), "out")).Replace(line)
}

// Each command that reads a run says what is wrong with its folder, and where.
func TestFoldersThatAreNoRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, map[string]string{"empty/x": "", "torn/" + store.ManifestFile: "{}\n", "cut/" + store.ManifestFile: `{"run":{"version":1,`})
	for name, want := range map[string]string{
		"none":  "none",
		"empty": "it has no manifest.jsonl",
		"torn":  "does not describe the run",
		"cut":   "manifest.jsonl",
	} {
		for _, line := range readers {
			words(t, on(t, line, filepath.Join(dir, name))).must(usage(want))
		}
	}
}

// A foreign folder does not count as a run, and is not written to.
func TestShowReadsOnly(t *testing.T) {
	t.Chdir(t.TempDir())
	words(t, "show").must(exit(0), prints("no runs in ./runs yet. Start one with berth run or berth try."))
	write(t, ".", map[string]string{"runs/x/" + store.ManifestFile: "{}\n"})
	words(t, "show").must(exit(0), prints("does not describe the run"))
	words(t, "show x").must(usage("does not describe the run"))
	stored(t, "runs")
	words(t, "show").must(exit(0), prints("e-20260102T030405Z", "2026-01-02", "4  3 passed, 1 failed"))
	words(t, "show e-20260102T030405").must(usage(`did you mean "e-20260102T030405Z"?`))
	words(t, "show e").must(usage(`no run "e": did you mean "e-20260102T030405Z"?`))
}

func TestARunIsShown(t *testing.T) {
	t.Parallel()
	dir := stored(t, t.TempDir())
	run(t, "berth", "show", dir).must(exit(0), complains(), prints("4 trials planned = 3 passed + 1 failed", "440 tokens, 1.0000 USD", "attempt 2 of 2"))
	var shown output.ShowRun
	run(t, "berth", "show", dir, "--json", "--select", `outcome == "failed"`).must(exit(0), printsJSON("cli-show-run", &shown))
	if len(shown.Trials) != 1 || shown.Trials[0].Task != "org/two" || shown.Summary.Planned != 4 {
		t.Errorf("selected: %+v", shown)
	}
	run(t, "berth", "show", dir, "--select", `outcome == "passed"`).must(exit(0), prints("cccccccc"))
	run(t, "berth", "show", dir, "--by", "cell").must(exit(0), prints("a ", "100.0"))
	run(t, "berth", "show", dir, "--by", "agent,task", "--table", "csv").must(exit(0), prints("agent,task"))
	run(t, "berth", "show", dir, "--by", "task", "--table", "latex").must(exit(0), prints("tabular"))
	run(t, "berth", "show", dir, "--by", "cell", "--json").must(exit(0), printsJSON("cli-show-table", nil))
	run(t, "berth", "show", dir, "--watch").must(exit(0), prints("3 passed + 1 failed"))
}

func TestATrialIsShown(t *testing.T) {
	t.Parallel()
	dir := stored(t, t.TempDir())
	run(t, "berth", "show", dir, "aaaa").must(exit(0), prints("outcome passed", "verdict    script: scored: the tests said so", "I look around.", "a line of the log"))
	run(t, "berth", "show", dir, "aaaa", "--all").must(exit(0), prints("I look around."))
	run(t, "berth", "show", dir, "aaaa", "--trajectory").must(exit(0), prints("I look around."))
	run(t, "berth", "show", dir, "aaaa", "--json").must(exit(0), printsJSON("cli-show-trial", nil))
	run(t, "berth", "show", dir, "dddd", "2", "--json").must(exit(0), printsJSON("cli-show-attempt", nil))
	run(t, "berth", "show", dir, "dddd", "1").must(exit(0), prints("no result: the process of the run was killed during this attempt"))
	run(t, "berth", "show", dir, "aaaa", "--watch").must(exit(0), prints("outcome passed"))
	for line, want := range map[string]string{
		"zzzz":                   `no trial "zzzz" in this run: ` + "`berth show RUN` lists the trials",
		"org/won":                `no trial "org/won" in this run: did you mean "org/one"?`,
		"org/one":                `"org/one" matches 2 trials: use the beginning of an id`,
		"aaaa 7":                 `trial aaaaaaaaaaaa has no attempt "7"; number of attempts: 1`,
		"aaaa x":                 `has no attempt "x"`,
		"--trajectory":           "--trajectory needs a run and a trial",
		"aaaa 1 --watch":         "--watch is for a run or a trial",
		"aaaa --select measured": "needs a run and no trial",
		"aaaa --follow":          "unknown flag: --follow",
		"--by cell --watch":      "not about numbers of groups",
		"--by cell --all":        "are about trials, and not about numbers of groups",
		"--by colour":            "colour",
		"--select agent":         "--select",
		"--select outcom=='x'":   `did you mean "outcome"?`,
		"--by agnt":              `grouped by "agnt": did you mean "agent"?`,
		"--k 2 --table csv":      "k is 2, and no task has more than 1 measured",
		"--by cell --table html": "csv, markdown or latex",
		"--table csv --json":     "--json and --table: choose one of them",
		"--by cell --k 3":        "Choose a smaller --k",
	} {
		words(t, "show "+dir+" "+line).must(usage(want))
	}
}

func TestRunsAreCompared(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	dir := stored(t, parent)
	run(t, "berth", "compare", dir).must(exit(0), prints("a ", "b ", "100.0", "counted: "))
	run(t, "berth", "compare", dir, "--json").must(exit(0), printsJSON("cli-compare", nil))
	run(t, "berth", "compare", dir, "--table", "csv").must(exit(0), prints("a,b,"))
	run(t, "berth", "compare", dir, "--table", "latex").must(exit(0), prints("tabular"))
	run(t, "berth", "compare", dir, dir).must(usage("are the same run: name it once"))
	run(t, "berth", "compare", dir, "--cell", "c*").must(usage("fewer than two cells are left to compare; there are: a, b"))
	other := stored(t, parent)
	run(t, "berth", "show", dir, other).must(usage("both have the trial of task"))
	run(t, "berth", "compare", dir, other, "--json").must(exit(0), printsJSON("cli-compare", nil))
}

// A gate for CI: a task that the baseline solved and the run does not is named, and
// makes the exit code 1 if that is required.
func TestARunIsComparedWithABaseline(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	good, bad := storedWith(t, parent, -1), storedWith(t, parent, 3)
	junit := filepath.Join(parent, "junit.xml")
	const rule = "no new failure"
	run(t, "berth", "compare", bad, "--baseline", good).must(exit(0), prints("org/two  agent=b  1 of 1  0 of 1", "1 of 4 tasks got worse than in"))
	run(t, "berth", "compare", bad, "--baseline", good, "--require", rule, "--junit", junit).must(exit(1), prints("required: no new failure: 1 task got worse"))
	run(t, "berth", "compare", good, "--baseline", bad, "--require", rule).must(exit(0), prints("0 of 4 tasks got worse"))
	run(t, "berth", "compare", good, "--baseline", bad, "--require", rule, "--require", "agent=a: pass_rate > 1").must(exit(1), prints("required: agent=a: pass_rate > 1: cell a"))
	var g output.Gate
	run(t, "berth", "compare", bad, "--baseline", good, "--require", rule, "--json").must(exit(1), printsJSON("cli-compare-baseline", &g))
	if g.Worse != 1 || len(g.Tasks) != 4 || !g.Tasks[3].Worse || g.Tasks[3].Task != "org/two" || g.Tasks[3].Trial == "" || len(g.Failed) != 1 {
		t.Errorf("%+v", g)
	}
	text, err := os.ReadFile(junit)
	if want := `<testcase classname="agent=b" name="org/two">` + "\n    <failure message="; err != nil || !strings.Contains(string(text), want) || !strings.Contains(string(text), `tests="4" failures="1"`) {
		t.Errorf("%v\n%s", err, text)
	}
	run(t, "berth", "compare", bad, "--require", rule).must(usage("--require needs --baseline RUN"))
	run(t, "berth", "compare", bad, good, "--baseline", good).must(usage("--baseline compares 1 run"))
	run(t, "berth", "compare", bad, "--baseline", bad).must(usage("are the same run"))
	run(t, "berth", "compare", bad, "--baseline", good, "--require", "no new failures").must(usage(`The rule about the baseline is "no new failure"`))
	run(t, "berth", "compare", bad, "--baseline", good, "--cell", "a", "--require", rule).must(exit(0), prints("0 of 2 tasks got worse"))
}

func TestAReportIsWritten(t *testing.T) {
	t.Parallel()
	dir := stored(t, t.TempDir())
	out := filepath.Join(t.TempDir(), "report.html")
	run(t, "berth", "report", dir).must(usage("-o is missing: name the file to write"))
	run(t, "berth", "report", dir, "-o", "-").must(usage(`- is not supported here: give a file name`))
	run(t, "berth", "report", dir, "-o", filepath.Join(dir, "none", "x.html")).must(exit(2), complains("none"))
	run(t, "berth", "report", dir, "-o", out).must(exit(0), prints("report written to "+out))
	run(t, "berth", "report", dir, "-o", out, "--json", "--select", `cell.agent == "a"`).must(exit(0), printsJSON("cli-report", nil))
	if b, err := os.ReadFile(out); err != nil || !strings.Contains(string(b), "--select chooses") {
		t.Errorf("a report of a choice does not say so: %v", err)
	}
}

func TestARunIsExported(t *testing.T) {
	t.Parallel()
	dir, to := stored(t, t.TempDir()), t.TempDir()
	for format, want := range map[string]string{"csv": "5 rows written", "jsonl": "5 rows written", "parquet": "5 rows written", "harbor": "4 trials written", "atif": "0 trajectories written"} {
		out := filepath.Join(to, format)
		run(t, "berth", "export", dir, "--to", format, "-o", out).must(exit(0), prints(want+" to "+out))
		if format == "harbor" || format == "atif" {
			run(t, "berth", "export", dir, "--to", format, "-o", out).must(usage("is not empty"))
		} else {
			run(t, "berth", "export", dir, "--to", format, "-o", out, "--json", "--select", "score < 1").must(exit(0), printsJSON("cli-export", nil))
		}
	}
	for line, want := range map[string]string{
		"-o x":                                 "--to is missing: choose one of csv, jsonl",
		"--to xls -o x":                        `--to: no format "xls". Choose one of csv`,
		"--to csv":                             "-o is missing",
		"--to csv -o " + to:                    to + " is not a regular file",
		"--to csv -o " + to + "/none/x":        "none",
		"--to bundle -o x --select score<1":    "--select is not for bundle",
		"--to csv -o x --select outcome==pass": "--select",
	} {
		words(t, "export "+dir+" "+line).must(usage(want))
	}
	imported := filepath.Join(t.TempDir(), "runs")
	var in output.Import
	run(t, "berth", "import", "harbor", filepath.Join(to, "harbor"), "--runs", imported, "--json").must(exit(0), printsJSON("cli-import", &in))
	run(t, "berth", "show", in.Dir).must(exit(0), prints("3 passed + 1 failed"))
	run(t, "berth", "resume", in.Dir).must(usage("there is no experiment to resume"))
	run(t, "berth", "import", "harbor", to).must(usage("has no trials: expected the folder"))
	run(t, "berth", "import", "harbor", filepath.Join(to, "none")).must(usage("does not exist"))
}

// A reader gives attempts labels, which can be listed, selected and exported.
func TestAReaderLabelsAnAttempt(t *testing.T) {
	t.Parallel()
	dir := stored(t, t.TempDir())
	note := func(args ...string) *ran {
		t.Helper()
		return run(t, append([]string{"berth", "note", dir}, args...)...)
	}
	note().must(exit(0), prints("no notes"))
	note("dddd", "--label", "bad task", "--why", "It needs\na network.").must(exit(0), prints("bad task", "It needs a network."))
	note("dddd", "--label", "read").must(exit(0))
	if r := note("dddd", "--label", "read", "--remove").must(exit(0), prints("bad task")); strings.Contains(r.out, "read ") {
		t.Errorf("the label is still there: %s", r.out)
	}
	note("--json").must(exit(0), printsJSON("cli-note", nil))
	run(t, "berth", "show", dir, "dddd").must(exit(0), prints("bad task, by ", "a network."))
	var shown output.ShowRun
	run(t, "berth", "show", dir, "--json", "--select", `"bad task" in notes`).must(exit(0), printsJSON("cli-show-run", &shown))
	if len(shown.Trials) != 1 || shown.Trials[0].Task != "org/two" {
		t.Errorf("selected by the label: %+v", shown.Trials)
	}
	table := filepath.Join(dir, "t.csv")
	run(t, "berth", "export", dir, "--to", "csv", "-o", table, "--select", `"bad task" in notes`).must(exit(0))
	if b, err := os.ReadFile(table); err != nil || strings.Count(string(b), "bad task") != 1 {
		t.Errorf("exported: %v\n%s", err, b)
	}
	note("dddd", "--label", "read", "--remove").must(usage("has no label"))
	note("--label", "x").must(usage("needs a trial"))
	note("dddd", "--why", "x").must(usage("need --label"))
	note("dddd", "--label", "a\x1bb").must(usage("a label is one"))
	note("dddd", "7", "--label", "x").must(usage(`has no attempt "`))
	note("zzz", "--label", "x").must(usage(`no trial "zzz"`))
}
