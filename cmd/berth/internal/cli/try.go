package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/config"
	"github.com/berth-eval/berth/cmd/berth/internal/experiment"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/dialects"
	"github.com/berth-eval/berth/plugins/model"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// The defaults of `berth try` and `berth init`.
const (
	defaultEnvironment = "local"
	defaultAgent       = "oracle"
)

// tryFlags replace the settings of an experiment.
type tryFlags struct {
	agent, model, environment, verify string
	repeat                            int
	runs                              string // folder that the folder of the run is created in
}

func (a *app) tryCommand() *cobra.Command {
	var (
		ef experiment.Flags
		rf runFlags
		tf tryFlags
	)
	cmd := &cobra.Command{
		Use:   "try DIR",
		Short: "Run one task, or a folder of tasks, without an experiment file",
		Long: `Runs a task once, with its own solution (the agent "oracle") or with another
agent. The run is stored like that of any experiment, with a generated
experiment file, so ` + "`berth show`" + ` and ` + "`berth resume`" + ` work as usual.

--model names a model for the agent by its provider: anthropic, openai, gemini
or openai-chat. The key comes from the provider's variable (ANTHROPIC_API_KEY,
OPENAI_API_KEY, GEMINI_API_KEY). script/FILE answers from a file, without a key.

If DIR or a folder above it has a berth.lock.hcl, the nearest one applies: a
plugin that it names is refused if it differs. Other plugins are not compared.`,
		Example: `  berth try tasks/hello
  berth try tasks/hello --agent nop --verify restarted
  berth try tasks/hello --agent terminus --model anthropic/claude-opus-4-8`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.try(cmd.Context(), args[0], &tf, &ef, &rf)
		},
	}
	ef.Register(cmd)
	rf.register(cmd)
	fs := cmd.Flags()
	fs.StringVar(&tf.agent, "agent", defaultAgent, "`AGENT` plugin; oracle gets the solution of the task")
	fs.StringVar(&tf.model, "model", "", "model of the agent: `PROVIDER/NAME`, or script/FILE")
	fs.StringVar(&tf.environment, "environment", defaultEnvironment, "`ENVIRONMENT` plugin")
	fs.StringVar(&tf.verify, "verify", "", "verification `MODE`, at least as strict as the task's: live, restarted, image, separate")
	fs.IntVar(&tf.repeat, "repeat", 1, "`NUMBER` of repetitions")
	fs.StringVar(&tf.runs, "runs", report.RunsDir, "create the folder of the run in `DIR`")
	return cmd
}

// try runs the task in dir, or the tasks.
func (a *app) try(ctx context.Context, dir string, tf *tryFlags, ef *experiment.Flags, rf *runFlags) error {
	file, remove, err := a.tryFile(dir, tf)
	if err != nil {
		return err
	}
	defer remove()
	if script, ok := strings.CutPrefix(tf.model, string(model.DialectScript)+"/"); ok {
		ef.AllowRead = append(ef.AllowRead, filepath.Dir(script))
	}
	above, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	l, err := a.loadWith(ctx, file, ef, experiment.Options{LockAbove: above})
	if err != nil {
		return err
	}
	defer l.Close()
	if err = ofFlags(file, l); err != nil {
		return err
	}
	if err = a.startable(l); err != nil {
		return err
	}
	h := a.header(l, ef)
	h.Try, _ = json.Marshal(dir) //nolint:errcheck // a string always marshals
	j, err := a.newRun(l, rf, tf.runs, h)
	if err != nil {
		return err
	}
	err = a.execute(ctx, j)
	if tf.agent == defaultAgent && !a.JSON {
		a.explainOracle(j.store, tf.environment)
	}
	return err
}

// madeRun executes an experiment that the program wrote, and returns the folder
// of its run, which it creates in the folder runs.
func (a *app) madeRun(ctx context.Context, file, runs string, ef *experiment.Flags, rf *runFlags) (string, error) {
	l, err := a.load(ctx, file, ef)
	if err != nil {
		return "", err
	}
	defer l.Close()
	// The user wrote none of this, and need not hear what can be run all the same.
	l.Diagnostics = slices.DeleteFunc(l.Diagnostics, func(d config.Diagnostic) bool { return d.Severity == config.Warning })
	if err = ofFlags(file, l); err != nil {
		return "", err
	}
	if err = a.startable(l); err != nil {
		return "", err
	}
	j, err := a.newRun(l, rf, runs, a.header(l, ef))
	if err != nil {
		return "", err
	}
	s := j.store
	a.Notef("%s: %s, into %s\n", l.Experiment.Name, terminal.Count(len(l.Plan.Trials), "trial", "trials"), shownFolder(s.Dir))
	result, err := a.executeAndShow(ctx, j)
	counted := summary.Of(s.Manifest, s.Index())
	err = errors.Join(err, result.Broken, writeSummary(s, counted), s.Close())
	switch {
	case ctx.Err() != nil:
		return "", &exit{exitInterrupted, nil}
	case err != nil:
		return "", &exit{exitIncomplete, err}
	case !counted.Complete:
		return "", &exit{exitIncomplete, fmt.Errorf("the run %s is not complete: %s", report.Display(s.Dir), result.Stopped)}
	}
	return s.Dir, nil
}

// explainOracle prints what the tests printed last where the task's own solution did
// not pass: then the task, or the sandbox, is wrong.
func (a *app) explainOracle(s *store.Run, environment string) {
	trials := slices.DeleteFunc(s.Index().Trials, func(t *store.TrialState) bool {
		return t.Accepted() == nil || t.Outcome() == record.Passed || t.Outcome() == record.Scored
	})
	for _, t := range trials[:min(len(trials), 3)] {
		dir := report.Folder(s.Dir, t, t.Accepted().Number)
		names, _, err := untrusted.List(filepath.Join(dir, record.VerifierDir), 10_000)
		for _, name := range names {
			if path.Base(name) != testOutput || err != nil {
				continue
			}
			var last []string
			_, err = untrusted.Lines(filepath.Join(dir, record.VerifierDir), name, 4<<10, 64<<20, func(line []byte) {
				last = append(last, terminal.Clean(string(line)))[max(0, len(last)-19):]
			})
			if len(last) > 0 {
				a.Printf("\nlast output of the tests of %s (%s):\n  %s\n", terminal.Clean(t.Task), t.Outcome(), strings.Join(last, "\n  "))
			}
		}
	}
	if len(trials) > 0 && environment == defaultEnvironment {
		a.Printf("\nEnvironment \"local\" has the programs of this machine, not those of the task's image.\nTo run the image: berth try DIR --environment docker (or podman)\n")
	}
}

// testOutput is the file with the output of the tests in the folder of the verifier.
const testOutput = "test-stdout.txt"

// notAFolder returns the error about a path that should be the folder of a
// task.
func notAFolder(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no such folder: %s", path)
	}
	return fmt.Errorf("%s is not a folder: expected the folder of a task", path)
}

// tryFile writes the experiment of the command into a temporary folder, which
// remove deletes.
func (a *app) tryFile(dir string, f *tryFlags) (file string, remove func(), err error) {
	at, err := a.tasksAt(dir)
	if errors.Is(err, errNoTasks) {
		err = fmt.Errorf("no task at or below %s: `berth task check %s` shows which files are expected", dir, dir)
	}
	if err != nil {
		return "", nil, err
	}
	base := at.dir
	if len(at.include) > 0 {
		base = dir
	}
	text, err := tried(store.Name(filepath.Base(base), 40), at, f)
	if err != nil {
		return "", nil, err
	}
	tmp, err := tempDir("berth-try-")
	if err != nil {
		return "", nil, fmt.Errorf("make a folder for temporary files: %w", err)
	}
	file = filepath.Join(tmp, "try.hcl")
	if err = os.WriteFile(file, []byte(text), 0o600); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(tmp))
	}
	return file, func() { _ = os.RemoveAll(tmp) }, nil
}

// ofFlags rewrites diagnostics about the experiment in file so that they name
// flags, which end its lines as comments: the user has not seen the file.
func ofFlags(file string, l *experiment.Loaded) error {
	text, err := os.ReadFile(file)
	lines := strings.Split(string(text), "\n")
	for _, ds := range []config.Diagnostics{l.Diagnostics, l.Secrets} {
		for i, d := range ds {
			if filepath.Base(d.File) != filepath.Base(file) {
				continue
			}
			ds[i] = config.Diagnostic{Severity: d.Severity, Summary: d.Summary, Detail: d.Detail}
			if n := d.Start.Line - 1; n >= 0 && n < len(lines) {
				if _, flag, ok := strings.Cut(lines[n], " # --"); ok {
					ds[i].Summary = "--" + flag + ": " + d.Summary
				}
			}
		}
	}
	return err
}

// formatsOf returns the formats that detect a task in the first folder, at or below
// dir, in which any does, and this folder. dir is depth folders below the one that the
// user named.
func formatsOf(formats []task.Format, dir string, depth int) (found []task.Format, in string) {
	for _, f := range formats {
		if f.Detect(dir) {
			found = append(found, f)
		}
	}
	entries, err := os.ReadDir(dir)
	if len(found) > 0 || err != nil || depth >= task.MaxDepth {
		return found, dir
	}
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if found, in = formatsOf(formats, filepath.Join(dir, e.Name()), depth+1); len(found) > 0 {
			return found, in
		}
	}
	return nil, dir
}

// identifier is what the label of a block may be.
var identifier = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// tryText is the experiment of `berth try`. A comment is the flag that a line is from.
const tryText = `experiment $NAME {
  datasets    = [dataset.task]
  environment = environment.here
  agent       = agent.$AGENT
  repeat      = $REPEAT # --repeat
  verify      = $VERIFY # --verify
}

dataset "task" {
  format  = $FORMAT
  path    = $PATH
  include = $INCLUDE
}

environment "here" {
  plugin = $ENVIRONMENT # --environment
}

agent "$AGENT" {
  plugin = $PLUGIN # --agent
  oracle = $ORACLE
  model  = $MODEL # --model
}
`

// triedModel is added to it with --model.
const triedModel = `
model "tried" {
  provider = $PROVIDER # --model
  name     = $MODELNAME # --model
  script   = $SCRIPT # --model
  api_key  = $KEY # --model
}
`

// tried fills in the experiment of `berth try`.
func tried(name string, at place, f *tryFlags) (string, error) {
	set := map[string]string{
		"NAME": quote("try-" + name), "AGENT": f.agent, "REPEAT": strconv.Itoa(f.repeat), "VERIFY": "null", "FORMAT": quote(at.format.Name()), "PATH": quote(at.dir),
		"INCLUDE": "null", "ENVIRONMENT": quote(f.environment), "PLUGIN": quote(f.agent), "ORACLE": strconv.FormatBool(f.agent == defaultAgent),
		"MODEL": "null", "MODELNAME": "null", "SCRIPT": "null", "KEY": "null",
	}
	if !identifier.MatchString(f.agent) {
		set["AGENT"] = "tried"
	}
	if f.verify != "" {
		set["VERIFY"] = quote(f.verify)
	}
	if len(at.include) > 0 {
		set["INCLUDE"] = "[" + quote(at.include[0]) + "]"
	}
	text := tryText
	if f.model != "" {
		text += triedModel
		set["MODEL"] = "model.tried"
		provider, named, ok := strings.Cut(f.model, "/")
		if providers := dialects.All.Providers(); !ok || named == "" || !slices.Contains(providers, provider) {
			return "", fmt.Errorf("--model must be PROVIDER/NAME, got %q. The providers are %s. Example: --model anthropic/claude-opus-4-8", f.model, strings.Join(providers, ", "))
		}
		set["PROVIDER"] = quote(provider)
		if provider == string(model.DialectScript) {
			script, err := filepath.Abs(named)
			if err != nil {
				return "", err
			}
			set["SCRIPT"] = quote(script)
		} else {
			vendor, _, _ := strings.Cut(provider, "-") // openai-chat has the key of openai
			set["MODELNAME"], set["KEY"] = quote(named), "secret("+quote(strings.ToUpper(vendor)+"_API_KEY")+")"
		}
	}
	return os.Expand(text, func(name string) string { return set[name] }), nil
}

// quote returns s as an HCL string without templates.
func quote(s string) string {
	s = strconv.Quote(s)
	s = strings.ReplaceAll(s, "${", "$${")
	return strings.ReplaceAll(s, "%{", "%%{")
}
