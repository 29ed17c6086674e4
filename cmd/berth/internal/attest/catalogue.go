// Package attest has the attack suite: it writes its tasks and the experiments
// that run them, reads what came of each attack, and compares that with what the
// documentation says.
//
// It must not run anything itself: the command line executes its experiments as
// any other.
package attest

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/pelletier/go-toml/v2"

	"github.com/berth-eval/berth/examples/attacks"
	"github.com/berth-eval/berth/plugins/yamltext"
)

// The verification modes in which attacks are tried, weakest first. ImageMode is
// the mode snapshot with the system files of the image.
const (
	Live      = "live"
	Restarted = "restarted"
	Snapshot  = "snapshot"
	ImageMode = "snapshot-image"
	Separate  = "separate"
)

// Modes lists them.
var Modes = []string{Live, Restarted, Snapshot, ImageMode, Separate}

// Result is what came of an attack in one mode.
type Result string

// The results. Passed is that of the control, which is not an attack.
const (
	Held     Result = "held"     // no reward
	Detected Result = "detected" // a reward, and the result says that it is exposed or violated
	NotHeld  Result = "not held" // a reward that counts as checked, or something else that must not happen
	Passed   Result = "passed"   // the control: a reward that counts as checked
	Unknown  Result = "unknown"  // the attempt says nothing about the attack
)

// Attack is one of the suite.
type Attack struct {
	Name      string            `yaml:"name"`
	IDs       []string          `yaml:"ids"`
	Control   bool              `yaml:"control"`
	Needs     []string          `yaml:"needs"`
	Unguarded string            `yaml:"unguarded"`
	Results   map[string]Result `yaml:"results"`
	// On has what differs on an environment, by its plugin and the mode.
	On map[string]map[string]Result `yaml:"on"`

	Text      string            `yaml:"-"` // what the agent does: one sentence or more
	Variables map[string]string `yaml:"-"` // of the tests
}

// Covered is a line of the catalogue that no attack of the suite can show, with
// the tests that do.
type Covered struct {
	IDs   []string `yaml:"ids"`
	Text  string   `yaml:"text"`
	Tests []string `yaml:"tests"`
}

// Catalogue is the whole suite.
type Catalogue struct {
	Attacks   []Attack  `yaml:"attacks"`
	Elsewhere []Covered `yaml:"elsewhere"`
}

// Read reads the suite that is part of the program.
func Read() (*Catalogue, error) {
	text, err := attacks.Files.ReadFile("attacks.yaml")
	if err != nil {
		return nil, err
	}
	return parse("attacks.yaml", text)
}

// ReadFrom reads the suite with the expected results of another file, for an
// environment that the documentation does not know.
func ReadFrom(file string) (*Catalogue, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parse(file, text)
}

func parse(file string, text []byte) (*Catalogue, error) {
	c := &Catalogue{}
	if err := yamltext.Unmarshal(text, true, c); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for i := range c.Attacks {
		if err := c.Attacks[i].describe(); err != nil {
			return nil, fmt.Errorf("%s: attack %q: %w", file, c.Attacks[i].Name, err)
		}
	}
	return c, nil
}

// describe reads what the task of an attack says of it.
func (a *Attack) describe() error {
	text, err := attacks.Files.ReadFile(path.Join("tasks", a.Name, "task.toml"))
	if err != nil {
		return err
	}
	var t struct {
		Task struct {
			Description string `toml:"description"`
		} `toml:"task"`
		Verifier struct {
			Env map[string]string `toml:"env"`
		} `toml:"verifier"`
	}
	if err = toml.Unmarshal(text, &t); err != nil {
		return fmt.Errorf("task.toml: %w", err)
	}
	a.Text, a.Variables = t.Task.Description, t.Verifier.Env
	for mode, r := range a.Results {
		if !slices.Contains(Modes, mode) || !slices.Contains([]Result{Held, Detected, NotHeld}, r) {
			return fmt.Errorf("no mode %q with the result %q", mode, r)
		}
	}
	if !a.Control && len(a.Results) != len(Modes) {
		return fmt.Errorf("%d results, want one for each of %d modes", len(a.Results), len(Modes))
	}
	return nil
}

// Expected returns what is documented for the attack.
func (a *Attack) Expected(environment, mode string) Result {
	if a.Control {
		return Passed
	}
	if r, ok := a.On[environment][mode]; ok {
		return r
	}
	return a.Results[mode]
}

// Select keeps the attacks whose names, or whose ids, match one of the patterns,
// and the control. No pattern: all.
func (c *Catalogue) Select(patterns []string) (*Catalogue, error) {
	if len(patterns) == 0 {
		return c, nil
	}
	some := &Catalogue{Elsewhere: c.Elsewhere}
	used := map[string]bool{}
	for i := range c.Attacks {
		a := &c.Attacks[i]
		found := a.Control
		for _, p := range patterns {
			for _, name := range append([]string{a.Name}, a.IDs...) {
				ok, err := path.Match(p, name)
				if err != nil {
					return nil, fmt.Errorf("--attack %q is not a pattern: %w", p, err)
				}
				if ok {
					found, used[p] = true, true
				}
			}
		}
		if found {
			some.Attacks = append(some.Attacks, *a)
		}
	}
	for _, p := range patterns {
		if !used[p] {
			return nil, fmt.Errorf("--attack %q matches no attack: the table in docs/security.md has their names", p)
		}
	}
	return some, nil
}

// files lists the files below a folder of the suite, by their paths in it.
func files(dir string) (map[string][]byte, error) {
	found := map[string][]byte{}
	err := fs.WalkDir(attacks.Files, dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		found[p[len(dir)+1:]], err = attacks.Files.ReadFile(p)
		return err
	})
	return found, err
}
