package cli

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/berth-eval/berth/cmd/berth/internal/experiment"
	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/requirement"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/internal/usage"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/cmd/berth/summary"
)

// noNewFailure is the rule of compare --require that no task got worse.
const noNewFailure = "no new failure"

// gateFlags are those of compare --baseline.
type gateFlags struct {
	baseline string
	rules    []requirement.Rule
	noNew    bool // require noNewFailure
	confirm  usage.Count
	junit    string
}

func (f *gateFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.baseline, "baseline", "", "say which tasks got worse than in this `RUN`")
	fs.Func("require", "with --baseline: exit with code 1 unless this `RULE` holds: \""+noNewFailure+"\", or one as of berth run; may be repeated", func(text string) error {
		if text == noNewFailure {
			f.noNew = true
			return nil
		}
		rule, err := requirement.Parse(text)
		if f.rules = append(f.rules, rule); err != nil {
			err = fmt.Errorf("%w. The rule about the baseline is %q", err, noNewFailure)
		}
		return err
	})
	fs.Var(&f.confirm, "confirm", "with --baseline: run tasks that got worse again, this `NUMBER` of times, each in a new run; those that most of these trials solve do not count")
	fs.StringVar(&f.junit, "junit", "", "with --baseline: also write the tasks to `FILE` as JUnit's XML")
}

// gate compares a run with its baseline.
func (a *app) gate(ctx context.Context, names []string, f *gateFlags, c *comparison) error {
	if len(names) != 1 {
		return fmt.Errorf("--baseline compares 1 run with another one, got %d runs", len(names))
	}
	format, err := c.flags.format(a.Printer)
	if err != nil {
		return err
	}
	runs, err := readRuns([]string{names[0], f.baseline})
	if err != nil {
		return err
	}
	c.options.Force = c.flags.force
	if c.options.Rules, err = numbers.RulesOf(runs[:1]); err != nil {
		return err
	}
	failures, err := f.check(&runs[0])
	if err != nil {
		return err
	}
	g, err := numbers.Gated(&runs[0], &runs[1], c.options)
	if err != nil {
		return err
	}
	if f.confirm > 0 && g.Worse > 0 {
		if err = a.confirm(ctx, runs[0].Dir, g, f); err != nil {
			return err
		}
	}
	if g.Failed = failures; f.noNew && g.Worse > 0 {
		g.Failed = append(g.Failed, fmt.Sprintf("%s: %s got worse", noNewFailure, terminal.Count(g.Worse, "task", "tasks")))
	}
	if f.junit != "" {
		if err = writeJUnit(f.junit, &g.Gate); err != nil {
			return err
		}
	}
	done, err := a.Answer(&g.Gate)
	if !done {
		err = a.printGate(&g.Gate, format)
	}
	if err == nil && len(g.Failed) > 0 {
		err = &exit{exitErrors, nil}
	}
	return err
}

// check checks the rules of --require that are about the run alone.
func (f *gateFlags) check(r *numbers.Run) (failed []string, err error) {
	counted := summary.Of(r.Manifest, r.Index)
	for _, rule := range f.rules {
		if err := rule.Possible(r.Manifest); err != nil {
			return nil, err
		}
		failed = append(failed, rule.Check(counted, r.Manifest)...)
	}
	return failed, nil
}

// confirm runs the tasks that got worse again. Each time is a separate run, so that
// nothing is chosen among the results of the run.
func (a *app) confirm(ctx context.Context, dir string, g *numbers.Gate, f *gateFlags) error {
	_, m, l, err := a.loadRun(ctx, dir, &experiment.Flags{}, &resumeFlags{})
	if err != nil {
		return err
	}
	defer l.Close()
	if err = a.startable(l); err != nil {
		return err
	}
	chosen := g.Again()
	now, err := a.sameWork(m, l, chosen, "the tasks that got worse cannot be run again: it would not be the same work")
	if err != nil {
		return err
	}
	for range f.confirm {
		s, err := create(filepath.Dir(dir), now, l)
		if err != nil {
			return err
		}
		a.Notef("again: %s, into %s\n", terminal.Count(len(chosen), "trial", "trials"), shownFolder(s.Dir))
		_, err = a.executeAndShow(ctx, &job{Loaded: l, flags: &runFlags{}, store: s, selected: chosen})
		g.Confirm(s.Dir, s.Index())
		if err = errors.Join(err, s.Close(), ctx.Err()); err != nil {
			return err
		}
	}
	g.Count()
	return nil
}

func (a *app) printGate(g *output.Gate, format terminal.Format) error {
	t := terminal.Table{Head: []string{"task", "cell", "before", "now", "again", "trial"}, Right: []bool{2: true, 3: true, 4: true, 5: false}, Above: 1}
	of := func(t *output.Tries) string {
		if t == nil {
			return ""
		}
		return fmt.Sprintf("%d of %d", t.Solved, t.Measured)
	}
	for i := range g.Tasks {
		if w := &g.Tasks[i]; w.Worse || w.Again != nil {
			t.Row(terminal.Clean(w.Task), terminal.Clean(w.Cell), of(&w.Before), of(&w.Now), of(w.Again), terminal.Clean(w.Trial))
		}
	}
	if g.Worse > 0 || len(g.Confirmed) > 0 || format == terminal.CSV {
		if err := t.WriteAs(a.Printer, format); err != nil {
			return err
		}
		if format != terminal.CSV {
			fmt.Fprintln(a.Out)
		}
	}
	lines := []string{fmt.Sprintf("%d of %s got worse than in %s", g.Worse, terminal.Count(len(g.Tasks), "task", "tasks"), report.Display(g.Baseline))}
	for _, m := range g.Marks {
		lines = append(lines, "mark: "+m)
	}
	for _, n := range g.Notes {
		lines = append(lines, "note: "+n)
	}
	for _, f := range g.Failed {
		lines = append(lines, "required: "+f)
	}
	a.Remarks(format, lines)
	return nil
}

// The elements of JUnit's XML.
type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitFailure `xml:"failure"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
	}
)

// writeJUnit writes each task of each cell as a test, which fails if it got worse.
func writeJUnit(file string, g *output.Gate) error {
	s := junitSuite{Name: filepath.Base(g.Run), Tests: len(g.Tasks), Failures: g.Worse}
	for i := range g.Tasks {
		t := &g.Tasks[i]
		c := junitCase{Class: terminal.Clean(t.Cell), Name: terminal.Clean(t.Task)}
		if t.Worse {
			c.Failure = &junitFailure{fmt.Sprintf("solved by %d of %d trials, in the baseline by %d of %d", t.Now.Solved, t.Now.Measured, t.Before.Solved, t.Before.Measured)}
		}
		s.Cases = append(s.Cases, c)
	}
	b, err := xml.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append([]byte(xml.Header), append(b, '\n')...), 0o644)
}
