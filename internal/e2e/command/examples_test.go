package command

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
)

var (
	indented    = regexp.MustCompile(`^(    |  )(\$ )?((\$BERTH/)?(bin/)?berth .*)`)
	inline      = regexp.MustCompile("`((?:bin/)?berth [^`]+)`")
	remark      = regexp.MustCompile(`(   +|\s+#).*$`)
	placeholder = regexp.MustCompile(`[…[]|\b(AGENT|ATTEMPT|DIR|FILE|FOLDER|KIND|NAME|PATH|RUN|TASK|TRIAL|VERSION|X)\b`)
	shBlock     = regexp.MustCompile("(?ms)^```sh\n(.*?)^```")
	anID        = regexp.MustCompile(`\b(ID|e652|3f9a2c)\b`)
	aRun        = regexp.MustCompile(`runs/sweep-\w+`)
)

// tooMuch are the commands that are checked but not run.
var tooMuch = []struct {
	what   *regexp.Regexp
	reason string
}{
	{regexp.MustCompile(`^berth agent (bundle|export|import|lock)\b`), "downloads packages, or needs what was downloaded"},
	{regexp.MustCompile(`^berth run examples/(acp|claude-code|own-cli|scaffolds)\b`), "needs a bundle"},
	{regexp.MustCompile(`^berth (run examples/closed-loop|show last samples/sales)\b`), "needs plugins that are built first: TestTheClosedLoop"},
	{regexp.MustCompile(`^berth (run examples/surface|show last (--select 'agent|tictactoe))\b`), "needs plugins in Python: TestTheSurfaceExample"},
	{regexp.MustCompile(`^berth (run examples/gauntlet|show last tc_graph_002)\b`), "needs Chromium, and takes minutes: TestTheGauntletExample, TestAScriptedGauntlet"},
	{regexp.MustCompile(`^berth run examples/faults\b`), "ends with code 1, as the example says"},
	{regexp.MustCompile(`--model [a-z]+/`), "needs a key"},
	{regexp.MustCompile(`^berth try average\b`), "needs an engine; the task is checked by the test below"},
	{regexp.MustCompile(`^berth (gateway|view)\b`), "serves until it is stopped"},
	{regexp.MustCompile(`^berth run examples/webui/scripted\b`), "starts twenty browsers: TestPlannersOfPages"},
	{regexp.MustCompile(`examples/football|environments/football|alone-1`), "needs the engine of the game, and a plugin in Python"},
	{regexp.MustCompile(`^berth run examples/attacks\b`), "takes minutes: TestTheAttackSuiteIsAsDocumented"},
	{regexp.MustCompile(`^berth audit (last -|runs/x|published)`), "needs a report, a key or an archive: TestAnAuditIsSigned"},
	{regexp.MustCompile(`^berth replay\b`), "needs an archive, or a run whose files did not change: TestAPublishedRunIsReplayed"},
	{regexp.MustCompile(`^berth (doctor experiment|run --detach|pilot)\b`), "needs a cluster, or a run with pilots"},
	{regexp.MustCompile(`^berth task check --run\b`), "takes minutes: TestATaskIsCheckedByRunningIt"},
	{regexp.MustCompile(`^berth plugin (test|install|info exact)\b|BERTH_PLUGIN_PATH`), "needs a plugin of the reader's; the kits and the debugger have tests of their own"},
	{regexp.MustCompile(`^berth shell\b`), "needs a person at a terminal: TestAPersonSolvesATask"},
	{regexp.MustCompile(`^berth ctl\b`), "needs a run that goes on: TestARunIsControlled"},
	{regexp.MustCompile(`^berth run \. --metrics\b`), "needs a port, or a receiver: TestARunTellsMonitoringSystems"},
	{regexp.MustCompile(`^berth gc\b`), "removes things of this machine"},
}

// typed returns the command lines of a text in order: those on lines of their
// own and, with all, also those inside sentences.
func typed(text string, all bool) (lines []string) {
	text = strings.ReplaceAll(text, "\\\n", " ")
	for line := range strings.Lines(text) {
		if m := indented.FindStringSubmatch(strings.TrimSuffix(line, "\n")); m != nil {
			lines = append(lines, remark.ReplaceAllString(m[3], ""))
		}
		for _, m := range inline.FindAllStringSubmatch(line, -1) {
			if all || strings.HasPrefix(m[1], "bin/berth run examples/") {
				lines = append(lines, m[1])
			}
		}
	}
	for i, l := range lines {
		lines[i] = strings.TrimPrefix(strings.TrimPrefix(l, "$BERTH/"), "bin/")
	}
	return lines
}

// reader makes a folder with the files that the documents expect, and returns a
// function that runs a shell line in it.
func reader(t *testing.T) func(line string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	task(t, filepath.Join(dir, "tasks"), "hello", "touch /app/done")
	task(t, filepath.Join(dir, "tasks"), "sum", "touch /app/done")
	experiment(t, dir, "agent.oracle, agent.nop", "  keep = \"all\"") // for `regrade`
	file := filepath.Join(dir, "experiment.hcl")
	e2etest.Write(t, dir, map[string]string{"experiment.hcl": e2etest.Read(t, file) + "variable \"model\" {\n  type    = string\n  default = \"large\"\n}\n"})
	e2etest.Must(t, os.Symlink(filepath.Join(tree.Root, "examples"), filepath.Join(dir, "examples")))
	e2etest.Must(t, os.Symlink(filepath.Join(tree.Root, "bin"), filepath.Join(dir, "bin")))
	return func(line string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(tree.Binary)+":"+os.Getenv("PATH"), "XDG_DATA_HOME="+filepath.Join(dir, "data"), "NO_COLOR=1")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

// idOfTrial finds an id in a table of trials.
var idOfTrial = regexp.MustCompile(`(?m)^[0-9a-f]{8}\b`)

// The commands in help and documents work when they are typed in their order.
// For commands that cannot run in a test, at least the flags must exist.
func TestExamplesOfHelpAndDocumentsWork(t *testing.T) {
	tree.NeedsSandbox(t)
	t.Parallel()
	var documents []string
	for _, pattern := range []string{"docs/reference/cli.md", "README.md", "docs/*.md", "examples/*/README.md", "python/README.md"} {
		found, err := filepath.Glob(filepath.Join(tree.Root, pattern))
		e2etest.Must(t, err)
		documents = append(documents, found...)
	}
	var examples checked
	t.Run("of", func(t *testing.T) { // ends with the last of them
		for _, document := range documents {
			text := e2etest.Read(t, document)
			name, err := filepath.Rel(tree.Root, document)
			e2etest.Must(t, err)
			if len(typed(text, true)) > 0 {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					examples.document(t, text)
				})
			}
		}
	})
	some := strings.Contains(flag.Lookup("test.run").Value.String(), "/") // only those of some documents run
	if examples.carriedOut < 40 && !some {
		t.Errorf("only %d commands were found", examples.carriedOut)
	}
}

// checked counts the command lines of all documents.
type checked struct {
	mu         sync.Mutex
	carriedOut int
	read       map[string]bool
}

// first reports whether no document had this line before.
func (c *checked) first(line string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	had := c.read[line]
	if c.read == nil {
		c.read = map[string]bool{}
	}
	c.read[line] = true
	return !had
}

// document carries out the commands of a document, and parses those that cannot
// be carried out.
func (c *checked) document(t *testing.T, text string) {
	t.Helper()
	if strings.Contains(text, "berth run examples/webui\n") || strings.Contains(text, "berth run examples/visual-judge\n") {
		testlevel.Program(t, "chromium", "chromium")
	}
	sh := reader(t)
	if out, err := sh("berth run"); err != nil { // for `show last`
		t.Fatalf("%v\n%s", err, out)
	}
	for _, line := range typed(text, false) {
		if !possible(line) {
			continue
		}
		c.first(line)
		c.mu.Lock()
		c.carriedOut++
		c.mu.Unlock()
		line = withID(here(line), sh)
		if out, err := sh(line); err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
	for _, line := range typed(text, true) {
		if !c.first(line) {
			continue
		}
		if out, err := sh(strings.NewReplacer("[", "", "]", "", "|", "", ">", "", "<", "").Replace(line) + " --help"); err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
}

// Copying the commands of docs/tasks.md into an empty folder makes a task that
// its solution passes and an agent that does nothing fails.
func TestTheTaskOfTheDocumentsIsChecked(t *testing.T) {
	tree.NeedsSandbox(t)
	t.Parallel()
	var script strings.Builder
	for _, m := range shBlock.FindAllStringSubmatch(e2etest.Read(t, tree.Root, "docs", "tasks.md"), -1) {
		script.WriteString(m[1])
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", script.String())
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(tree.Binary)+":"+os.Getenv("PATH"), "NO_COLOR=1")
	out, err := cmd.CombinedOutput()
	for _, want := range []string{"1 trial planned = 1 passed", "1 trial planned = 1 failed", "FAIL three: want '5.00', got '3.75'", "5 trials planned = 5 passed"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("%v, want %q in\n%s", err, want, out)
		}
	}
}

// withID adds an id of the last run to a command that takes one.
func withID(line string, sh func(string) (string, error)) string {
	if !anID.MatchString(line) {
		return line
	}
	out, _ := sh("berth show last") //nolint:errcheck // the next command says why
	return anID.ReplaceAllString(line, idOfTrial.FindString(out))
}

// here changes a command so that it can run in the folder of reader: examples
// name other runs, and jq may not be installed.
func here(line string) string {
	if line == "berth init" {
		return "berth init new" // the folder already has an experiment
	}
	line, _, _ = strings.Cut(line, " | jq")
	return aRun.ReplaceAllString(line, "last")
}

// possible reports whether a test can run a command.
func possible(line string) bool {
	for _, no := range tooMuch {
		if no.what.MatchString(line) && !strings.Contains(line, "--dry-run") {
			return false
		}
	}
	return !placeholder.MatchString(line)
}
