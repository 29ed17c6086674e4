package view

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/surface"
	"github.com/berth-eval/berth/plugins/trajectory"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// attempt is one attempt of a trial of a run.
type attempt struct {
	Trial  *store.TrialState
	Number int
	State  output.AttemptState
	Cell   string
	Base   string // address of the page of the run
	Name   string // of the run
	dir    string
}

// Page is the address of the page of the attempt.
func (a *attempt) Page() string {
	return a.Base + "trial/" + url.PathEscape(a.Trial.ID) + "/" + strconv.Itoa(a.Number) + "/"
}

// Key names the attempt in the address of a comparison.
func (a *attempt) Key() string {
	return strings.Join([]string{a.Name, a.Trial.ID, strconv.Itoa(a.Number)}, "/")
}

// attempt finds the attempt that the address names.
func (s *Server) attempt(r *request) (*attempt, error) {
	return s.find(r.PathValue("run"), r.PathValue("trial"), r.PathValue("attempt"))
}

func (s *Server) find(run, trial, number string) (*attempt, error) {
	k, err := s.run(run)
	if err != nil {
		return nil, err
	}
	t := k.Index.Trial(trial)
	if t == nil {
		return nil, fmt.Errorf("%w: the run has no trial %q", errMissing, trial)
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 {
		return nil, fmt.Errorf("%w: %q is not the number of an attempt", errMissing, number)
	}
	return &attempt{
		Trial: t, Number: n, State: report.StateOf(k.Index, t, n), Cell: k.Manifest.Cells[t.Cell].Key, Base: address(k.Dir),
		Name: filepath.Base(k.Dir), dir: report.Folder(k.Dir, t, n),
	}, nil
}

// bar is a phase in the timeline, in percent of the attempt.
type bar struct {
	record.Phase
	X, W float64
}

func bars(phases []record.Phase) []bar {
	all := make([]bar, 0, min(len(phases), maxShown))
	if len(phases) == 0 {
		return all
	}
	first, last := phases[0].Start, time.Now()
	if end := phases[len(phases)-1].End; !end.IsZero() {
		last = end
	}
	total := max(last.Sub(first), time.Millisecond)
	for _, p := range phases[:min(len(phases), maxShown)] {
		end := p.End
		if end.IsZero() {
			end = last
		}
		x := 100 * min(max(float64(p.Start.Sub(first))/float64(total), 0), 1)
		w := 100 * min(max(float64(end.Sub(p.Start))/float64(total), 0.002), 1)
		all = append(all, bar{p, x, min(w, 100-x)})
	}
	return all
}

// typed reads a list of an attempt, of which the first entries are shown.
func typed[T any](a *attempt, name string, missing *[]string) (all []T) {
	lines, _, err := readPart(a.dir, name, 0, maxShown)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		*missing = append(*missing, err.Error())
	}
	for _, l := range lines {
		var v T
		switch {
		case l.b == nil:
			*missing = append(*missing, fmt.Sprintf("%s: a line of %d bytes is not shown", name, l.size))
		case json.Unmarshal(l.b, &v) != nil:
			*missing = append(*missing, fmt.Sprintf("%s: a line that cannot be read, at byte %d", name, l.at))
		default:
			all = append(all, v)
		}
		if len(*missing) > maxMissing {
			return all
		}
	}
	if len(lines) == maxShown {
		*missing = append(*missing, fmt.Sprintf("%s: only its first %d lines are shown here", name, maxShown))
	}
	return all
}

// maxMissing is how many remarks about what is not shown a page has.
const maxMissing = 20

// attemptPage shows one attempt.
func (s *Server) attemptPage(r *request) error {
	a, err := s.attempt(r)
	if err != nil {
		return err
	}
	var missing []string
	data := map[string]any{"A": a, "Busy": a.State == output.UnderWay, "Step": r.number("step"), "Base": a.Base}
	result, err := store.ReadResult(a.dir)
	switch err {
	case nil:
		data["Result"], data["Phases"] = result, bars(result.Phases)
	default:
		if a.State == output.Published || !errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, err.Error())
		}
		data["Phases"] = bars(report.Phases(a.dir, a.State == output.UnderWay, &missing))
	}
	data["Turns"] = typed[record.Turn](a, record.TurnsFile, &missing)
	data["Verdicts"] = typed[record.Verdict](a, record.VerdictsFile, &missing)
	names, more, err := untrusted.List(a.dir, maxShown)
	if err != nil {
		missing = append(missing, "the folder of the attempt cannot be read, so that only the journal of the run is left: "+err.Error())
	}
	if more {
		missing = append(missing, "files: not all of them are listed")
	}
	data["Files"] = names
	for _, n := range names {
		switch n {
		case record.SurfaceFile:
			data["Surface"] = true
		case record.ExchangesFile:
			data["Exchanges"] = true
		}
	}
	steps, err := stepsOf(a, r)
	if err != nil {
		missing = append(missing, err.Error())
	}
	data["Steps"], data["Missing"] = steps, missing
	return r.show("attempt", a.Trial.Task, data)
}

// steps is a part of the conversation.
type steps struct {
	A    *attempt
	All  []step
	Next int64 // byte at which the following part begins
	N    int64 // number of its first line, from 1
	From int64 // number of the first line of this part
}

// step is one step for a page.
type step struct {
	N                int64
	Long             int64 // its size if it is too long to show
	Bad              bool  // it cannot be read
	Source, Role     string
	Stage, Model     string
	ID, In, Out      int64
	Tokens           bool
	CostUSD          *float64
	Time             time.Time
	Thought, Message part
	Calls            []call
	Results          []result
}

type call struct {
	Name      string
	Arguments part
}

type result struct {
	Text      part
	Subagents []string
	Pictures  []string
}

// stepsPage is how many steps one part has.
const stepsPage = 40

// stepsOf reads the part of the conversation that the address asks for: at a byte,
// or from the step with a number.
func stepsOf(a *attempt, r *request) (*steps, error) {
	p := &steps{A: a, From: max(r.number("n"), 1)}
	at := r.number("at")
	if n := r.number("step"); n > 1 {
		var skipped int64
		var err error
		if at, skipped, err = skip(a.dir, record.StepsFile, n-1); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return p, err
		}
		p.From = skipped + 1
	}
	p.Next, p.N = at, p.From
	lines, next, err := readPart(a.dir, record.StepsFile, at, stepsPage)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	for i, l := range lines {
		p.All = append(p.All, stepOf(&l, p.From+int64(i)))
	}
	p.Next, p.N = next, p.From+int64(len(lines))
	return p, err
}

func stepOf(l *numbered, n int64) step {
	out := step{N: n}
	var rec record.Step
	switch {
	case l.b == nil:
		out.Long = l.size
		return out
	case json.Unmarshal(l.b, &rec) != nil:
		out.Bad = true
		return out
	}
	s := &rec.Step
	out.Source, out.Role, out.Stage, out.Model, out.ID, out.Time = string(s.Source), rec.Role, rec.Stage, s.ModelName, s.StepID, rec.Time
	out.Thought, out.Message = partOf(s.ReasoningContent, maxText), partOf(textOf(s.Message), maxText)
	if m := s.Metrics; m != nil {
		out.CostUSD = m.CostUSD
		if m.PromptTokens != nil && m.CompletionTokens != nil {
			out.Tokens, out.In, out.Out = true, *m.PromptTokens, *m.CompletionTokens
		}
	}
	for _, c := range s.ToolCalls[:min(len(s.ToolCalls), maxShown)] {
		out.Calls = append(out.Calls, call{c.Name, partOf(string(c.Arguments), maxText)})
	}
	if s.Observation != nil {
		for _, o := range s.Observation.Results[:min(len(s.Observation.Results), maxShown)] {
			var res result
			if o.Content != nil {
				res.Text, res.Pictures = partOf(textOf(*o.Content), maxText), pictures(*o.Content)
			}
			for _, sub := range o.Subagents[:min(len(o.Subagents), 20)] {
				res.Subagents = append(res.Subagents, sub.TrajectoryPath+sub.TrajectoryID)
			}
			out.Results = append(out.Results, res)
		}
	}
	return out
}

// textOf is the text of a message, with the type of what is no text in its place.
func textOf(c trajectory.Content) string {
	if len(c.Parts) == 0 {
		return c.Text
	}
	var parts []string
	for _, p := range c.Parts {
		if p.Source == nil {
			parts = append(parts, p.Text)
		} else {
			parts = append(parts, "["+string(p.Type)+"]")
		}
	}
	return strings.Join(parts, "\n")
}

// pictures are the files of the attempt that a message shows.
func pictures(c trajectory.Content) (names []string) {
	for _, p := range c.Parts {
		if p.Source != nil && p.Type == trajectory.PartImage && isPicture(p.Source.Path) && filepath.IsLocal(p.Source.Path) && len(names) < 20 {
			names = append(names, p.Source.Path)
		}
	}
	return names
}

// stepsPart is a further part of the conversation, without the page around it.
func (s *Server) stepsPart(r *request) error {
	a, err := s.attempt(r)
	if err != nil {
		return err
	}
	p, err := stepsOf(a, r)
	if err != nil {
		return err
	}
	return r.show("steps", "", map[string]any{"Steps": p})
}

// surfacePart is a part of what was seen and done on the surface: a film strip.
func (s *Server) surfacePart(r *request) error {
	a, err := s.attempt(r)
	if err != nil {
		return err
	}
	lines, next, err := readPart(a.dir, record.SurfaceFile, r.number("at"), 20)
	if err != nil {
		return err
	}
	type scene struct {
		surface.Line

		Args, Seen part
		Bad        bool
		Files      []string
	}
	var all []scene
	for _, l := range lines {
		var c scene
		c.Bad = json.Unmarshal(l.b, &c.Line) != nil
		c.Args, c.Seen = partOf(string(c.Arguments), 1000), partOf(c.Text, 4000)
		for _, f := range c.Frames[:min(len(c.Frames), 20)] {
			if filepath.IsLocal(f.File) {
				c.Files = append(c.Files, record.FramesDir+"/"+f.File)
			}
		}
		all = append(all, c)
	}
	return r.show("surface", "", map[string]any{"A": a, "All": all, "Next": next, "More": len(lines) > 0})
}

// comparePage shows two attempts beside each other, step by step.
func (s *Server) comparePage(r *request) error {
	sides := [2]*steps{}
	for i, name := range []string{"a", "b"} {
		key := strings.Split(r.FormValue(name), "/")
		if len(key) != 3 {
			return fmt.Errorf("%w: a comparison needs two attempts, each as RUN/TRIAL/NUMBER, got %q", errMissing, r.FormValue(name))
		}
		a, err := s.find(key[0], key[1], key[2])
		if err != nil {
			return err
		}
		if sides[i], err = stepsOf(a, r); err != nil {
			return err
		}
	}
	n := max(len(sides[0].All), len(sides[1].All))
	rows := make([][2]*step, n)
	for i := range rows {
		for side := range sides {
			if i < len(sides[side].All) {
				rows[i][side] = &sides[side].All[i]
			}
		}
	}
	from := max(r.number("step"), 1)
	data := map[string]any{"A": sides[0].A, "B": sides[1].A, "Pairs": rows, "From": from}
	if n == stepsPage {
		data["Next"] = r.with("step", strconv.FormatInt(from+stepsPage, 10))
	}
	return r.show("compare", "Compare "+sides[0].A.Trial.Task, data)
}
