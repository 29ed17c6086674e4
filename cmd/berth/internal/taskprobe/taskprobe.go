// Package taskprobe prepares the runs with which `berth task check --run` checks
// a task, and reads what they show.
//
// It must not run anything itself: the command line executes its experiments as
// any other. It never changes the folder of the task.
package taskprobe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// The checks.
const (
	checkOracle  = "oracle"
	checkNop     = "nop"
	checkCheat   = "cheat"
	checkFlaky   = "flaky"
	checkNetwork = "network"
	checkAnswers = "answers"
	checkHistory = "history"
)

// cheats is the folder of a task with solutions that must not pass.
const cheats = "cheat"

// largest is how much of a file of a task is read, in bytes.
const largest = 1 << 20

// variant is a copy of the task with another solution, or other settings.
type variant struct {
	label   string // of its dataset
	check   string // cheat, network or answers
	subject string // name of the cheat
	file    string // of the cheat, below the task's folder
	dir     string // of the copy
}

// Probe is one task that is checked.
type Probe struct {
	task        *task.Task
	environment string // plugin
	times       int
	modes       []task.Mode // verification modes that are tried, weakest first
	variants    []variant
	skipped     map[string]string // why a check cannot be made, by its name
	secrets     map[string]secret // files that the agent must not have, by the digest of their content
	instruction string
}

// New prepares the checks of a task, with its copies in dir, an empty folder.
func New(t *task.Task, environment string, times int, dir string) (*Probe, error) {
	p := &Probe{task: t, environment: environment, times: times, modes: modes(t), skipped: map[string]string{}}
	if why := p.changeable(); why != "" {
		for _, check := range []string{checkCheat, checkNetwork, checkAnswers, checkHistory} {
			p.skipped[check] = why
		}
		return p, nil
	}
	err := p.read()
	for _, vary := range []func(string) error{p.varyCheats, p.varyNetwork, p.varyProbe} {
		if err == nil {
			err = vary(dir)
		}
	}
	return p, err
}

// modes are those at least as strict as each stage's.
func modes(t *task.Task) []task.Mode {
	var ms []task.Mode
	for _, m := range task.Modes {
		fits := func(s task.Stage) bool { return t.ModeOf(&s) == m || m.Stronger(t.ModeOf(&s)) }
		if !slices.ContainsFunc(t.Stages, func(s task.Stage) bool { return !fits(s) }) {
			ms = append(ms, m)
		}
	}
	return ms
}

// changeable says why no copy of the task can have another solution; empty: it
// can.
func (p *Probe) changeable() string {
	t := p.task
	switch {
	case t.File != "":
		return "the task is not its own folder"
	case len(t.Stages) != 1:
		return "the task has several stages"
	case t.Stages[0].Reference == nil:
		return "the task has no solution that a copy could replace"
	}
	if _, err := os.Stat(filepath.Join(t.Dir, "task.toml")); err != nil {
		return "only tasks with a task.toml can be changed for it"
	}
	if _, err := os.Stat(filepath.Join(t.Dir, "solution", "solve.sh")); err != nil {
		return "the task has no solution/solve.sh that a copy could replace"
	}
	return ""
}

// varyCheats makes a copy with each cheat.
func (p *Probe) varyCheats(dir string) error {
	found, err := os.ReadDir(filepath.Join(p.task.Dir, cheats))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for i, e := range found {
		name := path.Join(cheats, e.Name())
		from := filepath.Join(p.task.Dir, cheats, e.Name())
		v := variant{label: fmt.Sprintf("cheat%d", i), check: checkCheat, subject: strings.TrimSuffix(e.Name(), ".sh"), file: name}
		solve := func(to string) error { return os.CopyFS(to, os.DirFS(from)) }
		switch {
		case e.IsDir():
			v.file = path.Join(name, "solve.sh")
			if _, err = os.Stat(filepath.Join(from, "solve.sh")); err != nil {
				return fmt.Errorf("%s has no solve.sh: a cheat is a folder with one, or one file NAME.sh: %w", name, err)
			}
		case strings.HasSuffix(e.Name(), ".sh"):
			var text []byte
			if text, err = os.ReadFile(from); err != nil {
				return err
			}
			solve = script(text)
		default:
			continue
		}
		if err = p.copied(dir, &v, solve); err != nil {
			return err
		}
	}
	if len(p.variants) == 0 {
		p.skipped[checkCheat] = "the task has no folder " + cheats
	}
	return nil
}

// varyProbe makes a copy whose solution looks into the sandbox.
func (p *Probe) varyProbe(dir string) error {
	if p.task.Paths.Artifacts == "" {
		p.skipped[checkAnswers], p.skipped[checkHistory] = "the task keeps no artifacts", "the task keeps no artifacts"
		return nil
	}
	return p.copied(dir, &variant{label: checkAnswers, check: checkAnswers}, script(p.probeScript()))
}

// varyNetwork makes a copy whose tests have no network. Its solution keeps that
// of the task.
func (p *Probe) varyNetwork(dir string) error {
	if p.task.NetworkOf(&p.task.Stages[0].Verify).Mode == task.NetworkNone {
		p.skipped[checkNetwork] = "the tests have no network"
		return nil
	}
	v := &variant{label: checkNetwork, check: checkNetwork}
	if err := p.copied(dir, v, nil); err != nil {
		return err
	}
	file := filepath.Join(v.dir, "task.toml")
	text, err := untrusted.Read(v.dir, "task.toml", largest)
	if err != nil {
		return err
	}
	settings := map[string]any{}
	if err = toml.Unmarshal(text, &settings); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	verifier, _ := settings["verifier"].(map[string]any)
	if verifier == nil {
		verifier = map[string]any{}
	}
	delete(verifier, "allowed_hosts")
	verifier["network_mode"] = "no-network"
	settings["verifier"] = verifier
	if text, err = toml.Marshal(settings); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// copied copies the task, lets solve write another solution into an empty
// folder, and adds the variant.
func (p *Probe) copied(dir string, v *variant, solve func(to string) error) error {
	v.dir = filepath.Join(dir, v.label, filepath.Base(p.task.Dir))
	if err := os.CopyFS(v.dir, os.DirFS(p.task.Dir)); err != nil {
		return fmt.Errorf("copy the task: %w", err)
	}
	if solve != nil {
		to := filepath.Join(v.dir, "solution")
		err := os.RemoveAll(to)
		if err == nil {
			err = solve(to)
		}
		if err != nil {
			return fmt.Errorf("%s: write another solution: %w", v.label, err)
		}
	}
	p.variants = append(p.variants, *v)
	return nil
}

// script writes a solution of one file.
func script(text []byte) func(to string) error {
	return func(to string) error {
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, "solve.sh"), text, 0o755) //nolint:gosec // a program that the sandbox runs
	}
}
