package taskprobe

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// The verdicts of a check.
const (
	held    = "held"
	failed  = "failed"
	warning = "warning"
	skipped = "skipped"
)

// sample is one trial.
type sample struct {
	dataset, agent, mode string

	trial   string
	dir     string // of the attempt
	passed  bool
	unknown string // why it has no result
	refused string // why the environment cannot run it
}

// Judge reads the runs of the experiments and gives the verdicts.
func (p *Probe) Judge(runs []string) (*output.TaskRun, error) {
	var all []sample
	for _, run := range runs {
		more, err := samples(run)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	looks, err := p.looks(all)
	if err != nil {
		return nil, err
	}
	res := &output.TaskRun{
		Environment: p.environment, Times: p.times, Runs: runs,
		Verdicts: slices.Concat(p.solutions(all), p.tricks(all), p.flaky(all), p.network(all), looks),
	}
	for _, v := range res.Verdicts {
		if v.Verdict == failed {
			res.Failed++
		}
	}
	return res, nil
}

// samples reads the trials of a run.
func samples(run string) ([]sample, error) {
	m, index, err := store.Read(run)
	if err != nil {
		return nil, err
	}
	cells := map[int]*store.Cell{}
	for i := range m.Cells {
		cells[m.Cells[i].Index] = &m.Cells[i]
	}
	var all []sample
	for _, t := range index.Trials {
		c := cells[t.Cell]
		if c == nil {
			return nil, fmt.Errorf("%s: the trial %s has no cell", run, t.ID)
		}
		s := sample{dataset: t.Dataset, agent: c.Agent, mode: c.Choices["mode"], trial: t.ID, refused: t.Refused}
		a := t.Accepted()
		switch {
		case t.Refused != "":
		case t.Invalid != "":
			s.unknown = t.Invalid
		case a == nil:
			s.unknown = "it has no attempt with a result"
		default:
			s.dir = filepath.Join(run, store.TrialsDir, t.Dir, store.AttemptDir(a.Number))
			r := a.Result
			s.passed = r.Outcome == record.Passed || (r.Outcome == record.Scored && r.Score != nil && *r.Score >= 1)
			if !r.Outcome.MeasuredAfter(r.AgentEnd) {
				s.unknown = strings.TrimSpace(string(r.Outcome) + " " + r.Error)
			}
		}
		all = append(all, s)
	}
	return all, nil
}

// pick returns the samples of a dataset, an agent and, unless it is empty, a
// mode.
func pick(all []sample, dataset, agent, mode string) []sample {
	var some []sample
	for _, s := range all {
		if s.dataset == dataset && s.agent == agent && (mode == "" || s.mode == mode) {
			some = append(some, s)
		}
	}
	return some
}

// judged is the verdict on samples that must all pass, or all fail.
func judged(v output.TaskVerdict, ss []sample, pass bool, file string) output.TaskVerdict {
	passed, wrong := 0, (*sample)(nil)
	for i := range ss {
		s := &ss[i]
		switch {
		case s.refused != "":
			v.Verdict, v.Detail = skipped, s.refused
			return v
		case s.unknown != "":
			v.Verdict, v.Detail, v.Trial = failed, "no result: "+s.unknown, s.trial
			return v
		case s.passed:
			passed++
		}
		if s.passed != pass && wrong == nil {
			wrong = s
		}
	}
	v.Verdict, v.Detail = held, fmt.Sprintf("passed %d of %d", passed, len(ss))
	if wrong != nil {
		v.Verdict, v.Trial, v.File = failed, wrong.trial, file
	}
	return v
}

// inModes are the verdicts of a check in each mode that it was made in. The file of v
// is named where the check failed.
func (p *Probe) inModes(v output.TaskVerdict, all []sample, dataset, agent string, pass bool) (vs []output.TaskVerdict) {
	file := v.File
	v.File = ""
	for _, mode := range p.modes {
		if ss := pick(all, dataset, agent, string(mode)); len(ss) > 0 {
			v.Mode = string(mode)
			vs = append(vs, judged(v, ss, pass, file))
		}
	}
	return vs
}

// solutions judges the solution and the agent that does nothing.
func (p *Probe) solutions(all []sample) (vs []output.TaskVerdict) {
	if !p.hasSolution() {
		vs = append(vs, output.TaskVerdict{Check: checkOracle, Verdict: skipped, Detail: "the task has no solution"})
	}
	for _, check := range []string{checkOracle, checkNop} {
		vs = append(vs, p.inModes(output.TaskVerdict{Check: check}, all, "task", check, check == checkOracle)...)
	}
	return vs
}

// tricks judges the cheats.
func (p *Probe) tricks(all []sample) []output.TaskVerdict {
	vs := p.leftOut(checkCheat)
	for _, t := range p.of(checkCheat) {
		vs = append(vs, p.inModes(output.TaskVerdict{Check: t.check, Subject: t.subject, File: t.file}, all, t.label, checkOracle, false)...)
	}
	return vs
}

// leftOut are the verdicts of checks that could not be made.
func (p *Probe) leftOut(checks ...string) (vs []output.TaskVerdict) {
	for _, check := range checks {
		if why := p.skipped[check]; why != "" {
			vs = append(vs, output.TaskVerdict{Check: check, Verdict: skipped, Detail: why})
		}
	}
	return vs
}

// flaky finds different outcomes in equal conditions.
func (p *Probe) flaky(all []sample) (vs []output.TaskVerdict) {
	if p.times < 2 {
		return []output.TaskVerdict{{Check: checkFlaky, Verdict: skipped, Detail: "each condition ran once"}}
	}
	type condition struct{ dataset, agent, mode string }
	groups := map[condition][]sample{}
	var order []condition
	for _, s := range all {
		c := condition{s.dataset, s.agent, s.mode}
		if s.unknown != "" || s.refused != "" {
			continue
		}
		if groups[c] == nil {
			order = append(order, c)
		}
		groups[c] = append(groups[c], s)
	}
	for _, c := range order {
		ss := groups[c]
		passed := slices.DeleteFunc(slices.Clone(ss), func(s sample) bool { return !s.passed })
		if len(passed) == 0 || len(passed) == len(ss) {
			continue
		}
		who := c.agent
		if c.dataset != "task" {
			who = c.dataset
		}
		vs = append(vs, output.TaskVerdict{
			Check: checkFlaky, Subject: who, Mode: c.mode, Verdict: failed, Trial: passed[0].trial,
			Detail: fmt.Sprintf("passed %d of %d in equal conditions", len(passed), len(ss)),
		})
	}
	if len(vs) == 0 {
		vs = append(vs, output.TaskVerdict{Check: checkFlaky, Verdict: held, Detail: "equal outcomes in equal conditions"})
	}
	return vs
}

// network judges tests that fail only without a network.
func (p *Probe) network(all []sample) []output.TaskVerdict {
	if vs := p.leftOut(checkNetwork); len(vs) > 0 {
		return vs
	}
	with := pick(all, "task", checkOracle, string(p.task.ModeOf(&p.task.Stages[0])))
	v := output.TaskVerdict{Check: checkNetwork, Verdict: skipped, Detail: "the solution does not pass with a network either"}
	if slices.ContainsFunc(with, func(s sample) bool { return s.passed }) {
		if v = judged(v, pick(all, checkNetwork, checkOracle, ""), true, ""); v.Verdict == failed {
			v.Detail += " without a network"
		}
	}
	return []output.TaskVerdict{v}
}

var (
	sumLine    = regexp.MustCompile(`^\\?([0-9a-f]{64}) [ *](.+)$`)
	commitLine = regexp.MustCompile(`^commit ([0-9a-f]{40,64}) (.*)$`)
)

// looks judges what was found in the sandbox before an agent worked.
func (p *Probe) looks(all []sample) ([]output.TaskVerdict, error) {
	if vs := p.leftOut(checkAnswers, checkHistory); len(vs) > 0 {
		return vs, nil
	}
	none := func(why, trial string) []output.TaskVerdict {
		v := output.TaskVerdict{Check: checkAnswers, Verdict: skipped, Detail: why, Trial: trial}
		h := v
		h.Check = checkHistory
		return []output.TaskVerdict{v, h}
	}
	ss := pick(all, checkAnswers, checkOracle, "")
	switch {
	case len(ss) == 0:
		return none("the sandbox was not looked into", ""), nil
	case ss[0].refused != "":
		return none(ss[0].refused, ""), nil
	case ss[0].dir == "":
		return none(ss[0].unknown, ss[0].trial), nil
	}
	folder := path.Join("artifacts", p.task.Paths.Artifacts)
	text, err := untrusted.Read(filepath.Join(ss[0].dir, filepath.FromSlash(folder)), probeFile, largest)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return none("the list of the sandbox's files was not collected", ss[0].trial), nil
	case err != nil:
		return nil, err
	case !bytes.HasSuffix(text, []byte("end\n")):
		return none("the sandbox was not searched to the end", ss[0].trial), nil
	}
	return p.found(text, ss[0].trial), nil
}

// found gives the verdicts on what the probe wrote.
func (p *Probe) found(text []byte, trial string) []output.TaskVerdict {
	var answers, history []output.TaskVerdict
	repo := ""
	seen := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, largest+1)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case line == "no sha256sum" && repo == "":
			answers = append(answers, output.TaskVerdict{Check: checkAnswers, Verdict: skipped, Detail: "the sandbox has no sha256sum"})
		case line == "no git":
			history = append(history, output.TaskVerdict{Check: checkHistory, Verdict: skipped, Detail: "the sandbox has the repository " + repo + " and no git to read it"})
		case strings.HasPrefix(line, "repository "):
			repo = strings.TrimPrefix(line, "repository ")
		case repo != "":
			if m := commitLine.FindStringSubmatch(line); m != nil && !seen[repo+m[1]] {
				seen[repo+m[1]] = true
				history = append(history, output.TaskVerdict{
					Check: checkHistory, Verdict: failed, Trial: trial, File: "environment",
					Detail: fmt.Sprintf("the repository %s has the commit %.12s, which is not in the history of its HEAD: %s", repo, m[1], m[2]),
				})
			}
		default:
			m := sumLine.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			if s, ok := p.secrets[m[1]]; ok {
				answers = append(answers, p.answer(s.file, m[2], trial))
			}
		}
	}
	if len(answers) == 0 {
		answers = []output.TaskVerdict{{Check: checkAnswers, Verdict: held, Detail: "no file of the tests or the solution is in the sandbox"}}
	}
	if len(history) == 0 {
		history = []output.TaskVerdict{{Check: checkHistory, Verdict: held, Detail: "no repository has commits that are not in the history of its HEAD"}}
	}
	return append(answers, history...)
}

// answer is the verdict on a file of the task that is in the sandbox. One whose
// name the instruction says is meant for the agent.
func (p *Probe) answer(file, in, trial string) output.TaskVerdict {
	v := output.TaskVerdict{Check: checkAnswers, Verdict: failed, Trial: trial, File: file, Detail: "the agent can read it as " + in}
	if strings.HasPrefix(file, "tests/") && strings.Contains(p.instruction, path.Base(in)) {
		v.Verdict = warning
		v.Detail += ", which the instruction names"
	}
	return v
}
