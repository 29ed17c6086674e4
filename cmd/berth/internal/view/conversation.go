package view

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/trajectory"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// steps is a part of the conversation.
type steps struct {
	A    *attempt
	All  []step
	Next int64 // byte at which the following part begins
	N    int64 // number of its first line, from 1
	From int64 // number of the first line of this part
	Ask  int   // how many lines this part has; 0: no more followed it
}

// step is one step for a page.
type step struct {
	N    int64
	Long int64 // its size if it is too long to show
	Bad  bool  // it cannot be read
	Line record.Step
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
	lines, next, err := report.ReadPart(a.dir, record.StepsFile, at, stepsPage)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	for i, l := range lines {
		p.All = append(p.All, stepOf(&l, p.From+int64(i)))
	}
	if p.Next, p.N = next, p.From+int64(len(lines)); !report.AtEnd(lines, stepsPage) {
		p.Ask = len(lines)
	}
	return p, err
}

func stepOf(l *report.NumberedLine, n int64) step {
	out := step{N: n}
	if l.Text == nil {
		out.Long = l.Size
		return out
	}
	out.Bad = json.Unmarshal(l.Text, &out.Line) != nil
	bound(&out.Line.Step)
	return out
}

// bound leaves what a page shows of the lists of a step.
func bound(s *trajectory.Step) {
	s.ToolCalls = s.ToolCalls[:min(len(s.ToolCalls), maxShown)]
	if s.Observation == nil {
		return
	}
	s.Observation.Results = s.Observation.Results[:min(len(s.Observation.Results), maxShown)]
	for i := range s.Observation.Results {
		r := &s.Observation.Results[i]
		r.Subagents = r.Subagents[:min(len(r.Subagents), 20)]
	}
}

// Bounds of the conversation of a sub-agent.
const (
	maxSub      = 32 << 20 // bytes of the file that it is in
	maxSubSteps = 200
	maxSubDepth = 20
)

// subagentPart is the conversation of a sub-agent, without the page around it.
func (s *Server) subagentPart(r *request) error {
	a, err := s.attempt(r)
	if err != nil {
		return err
	}
	name, id := cmp.Or(r.FormValue("path"), record.TrajectoryFile), r.FormValue("id")
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return fmt.Errorf("%w: %q is not a file of the attempt", errMissing, name)
	}
	b, err := untrusted.Read(a.dir, name, maxSub)
	if err != nil {
		return err
	}
	var t trajectory.Trajectory
	if err = json.Unmarshal(b, &t); err != nil {
		return fmt.Errorf("%s is not a trajectory: %w", name, err)
	}
	sub := &t
	if id != "" {
		if sub = embedded(&t, id, maxSubDepth); sub == nil {
			return fmt.Errorf("%w: %s has no sub-agent %q", errMissing, name, id)
		}
	}
	all := make([]step, min(len(sub.Steps), maxSubSteps))
	for i := range all {
		bound(&sub.Steps[i])
		all[i] = step{N: int64(i + 1), Line: record.Step{Step: sub.Steps[i]}}
	}
	return r.show("subagent", "", map[string]any{"A": a, "All": all, "Name": sub.Agent.Name, "More": len(sub.Steps) - len(all), "File": name})
}

// embedded finds a trajectory within another one.
func embedded(t *trajectory.Trajectory, id string, depth int) *trajectory.Trajectory {
	for i := range t.Subagents {
		if t.Subagents[i].TrajectoryID == id {
			return &t.Subagents[i]
		}
		if depth > 0 {
			if sub := embedded(&t.Subagents[i], id, depth-1); sub != nil {
				return sub
			}
		}
	}
	return nil
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
