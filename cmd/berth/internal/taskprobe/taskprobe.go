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
	Oracle  = "oracle"
	Nop     = "nop"
	Cheat   = "cheat"
	Flaky   = "flaky"
	Network = "network"
	Answers = "answers"
	History = "history"
)

// cheats is the folder of a task with solutions that must not pass.
const cheats = "cheat"

// largest is how much of a file of a task is read, in bytes.
const largest = 1 << 20

// Variant is the task with another solution, or other settings.
type Variant struct {
	Label   string // of its dataset
	Check   string // Cheat, Network or Answers
	Subject string // name of the cheat
	File    string // of the cheat, below the task's folder
	Dir     string // folder of the copy
}

// Probe is one task that is checked.
type Probe struct {
	Task        *task.Task
	Environment string // plugin
	Times       int

	// Modes are the verification modes that are tried, weakest first.
	Modes []task.Mode
	// Variants are copies of the task.
	Variants []Variant
	// Skipped says why a check cannot be made, by its name.
	Skipped map[string]string

	source source
	secret map[string]secret // files that the agent must not have, by the digest of their content
}

// New prepares the checks of a task, with its copies in dir, an empty folder.
func New(t *task.Task, environment string, times int, dir string) (*Probe, error) {
	p := &Probe{Task: t, Environment: environment, Times: times, Modes: modes(t), Skipped: map[string]string{}}
	why := p.changeable()
	if why == "" {
		var err error
		if p.source, err = read(t.Dir); err != nil {
			return nil, err
		}
		return p, p.vary(dir)
	}
	for _, check := range []string{Cheat, Network, Answers, History} {
		p.Skipped[check] = why
	}
	return p, nil
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
	t := p.Task
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

// vary writes the copies.
func (p *Probe) vary(dir string) error {
	found, err := os.ReadDir(filepath.Join(p.Task.Dir, cheats))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for i, e := range found {
		v := Variant{Label: fmt.Sprintf("cheat%d", i), Check: Cheat, Subject: strings.TrimSuffix(e.Name(), ".sh"), File: path.Join(cheats, e.Name())}
		from := filepath.Join(p.Task.Dir, cheats, e.Name())
		switch {
		case e.IsDir():
			v.File = path.Join(v.File, "solve.sh")
			if _, err = os.Stat(filepath.Join(from, "solve.sh")); err != nil {
				return fmt.Errorf("%s has no solve.sh: a cheat is a folder with one, or one file NAME.sh: %w", path.Join(cheats, e.Name()), err)
			}
			err = p.copied(dir, &v, func(to string) error { return os.CopyFS(to, os.DirFS(from)) })
		case strings.HasSuffix(e.Name(), ".sh"):
			err = p.copied(dir, &v, func(to string) error { return script(to, func() ([]byte, error) { return os.ReadFile(from) }) })
		default:
			continue
		}
		if err != nil {
			return err
		}
	}
	if len(p.Variants) == 0 {
		p.Skipped[Cheat] = "the task has no folder " + cheats
	}
	return errors.Join(p.varyNetwork(dir), p.varyProbe(dir))
}

func (p *Probe) varyProbe(dir string) error {
	if p.Task.Paths.Artifacts == "" {
		p.Skipped[Answers], p.Skipped[History] = "the task keeps no artifacts", "the task keeps no artifacts"
		return nil
	}
	p.secret = p.source.secrets()
	return p.copied(dir, &Variant{Label: Answers, Check: Answers}, func(to string) error {
		return script(to, func() ([]byte, error) { return p.probeScript(), nil })
	})
}

// varyNetwork makes a copy whose tests have no network. Its solution keeps that
// of the task.
func (p *Probe) varyNetwork(dir string) error {
	if p.Task.NetworkOf(&p.Task.Stages[0].Verify).Mode == task.NetworkNone {
		p.Skipped[Network] = "the tests have no network"
		return nil
	}
	v := &Variant{Label: Network, Check: Network}
	if err := p.copied(dir, v, nil); err != nil {
		return err
	}
	file := filepath.Join(v.Dir, "task.toml")
	text, err := untrusted.Read(v.Dir, "task.toml", largest)
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
func (p *Probe) copied(dir string, v *Variant, solve func(to string) error) error {
	v.Dir = filepath.Join(dir, v.Label, filepath.Base(p.Task.Dir))
	if err := os.CopyFS(v.Dir, os.DirFS(p.Task.Dir)); err != nil {
		return fmt.Errorf("copy the task: %w", err)
	}
	if solve != nil {
		to := filepath.Join(v.Dir, "solution")
		err := os.RemoveAll(to)
		if err == nil {
			err = solve(to)
		}
		if err != nil {
			return fmt.Errorf("%s: write another solution: %w", v.Label, err)
		}
	}
	p.Variants = append(p.Variants, *v)
	return nil
}

// script writes a solution of one file.
func script(to string, text func() ([]byte, error)) error {
	b, err := text()
	if err != nil {
		return err
	}
	if err = os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, "solve.sh"), b, 0o755) //nolint:gosec // a program that the sandbox runs
}

// quoted is a word of a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
