package report

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// maxShown is how many lines of one text of a trajectory are shown unless all
// are wanted.
const maxShown = 60

// marked prints a text with a mark before each of its lines. Unless all are wanted, it
// leaves out the middle of a long one.
func marked(p *terminal.Printer, mark, s string, all bool) {
	if strings.TrimSpace(s) == "" {
		return
	}
	lines := terminal.Lines(s)
	if cut := len(lines) - maxShown; cut > 0 && !all {
		half := maxShown / 2
		lines = slices.Concat(lines[:half], []string{fmt.Sprintf("… %d lines: --all shows them", cut)}, lines[len(lines)-half:])
	}
	for _, l := range lines {
		p.Printf("  %s %s\n", mark, l)
	}
}

// Trajectory prints what an agent did, line by line, for reading. all does not
// cut long texts.
func Trajectory(p *terminal.Printer, steps []record.Step, all bool) {
	if len(steps) == 0 {
		p.Printf("no step was recorded\n")
		return
	}
	text := func(mark, s string) { marked(p, mark, s, all) }
	heading := headings(steps)
	for i := range steps {
		if h := heading(i); h != "" {
			p.Printf("%s\n\n", terminal.Paint(p.Color, terminal.Bold, h))
		}
		s := &steps[i].Step
		p.Printf("%s%s\n", terminal.Paint(p.Color, terminal.Bold, fmt.Sprintf("%d %s", s.StepID, s.Source)), stepFacts(s))
		text("~", s.ReasoningContent)
		text(" ", MessageText(s.Message))
		for _, c := range s.ToolCalls {
			text("→", callText(c))
		}
		observed(s.Observation, text)
		p.Printf("\n")
	}
}

// observed prints the results of a step's calls, line by line.
func observed(o *trajectory.Observation, text func(mark, s string)) {
	if o == nil {
		return
	}
	for _, r := range o.Results {
		if r.Content != nil {
			text("│", MessageText(*r.Content))
		}
		for _, sub := range r.Subagents {
			text("│", "see "+sub.TrajectoryPath+sub.TrajectoryID)
		}
	}
}

// headings returns a function that gives the heading above a step: the stage
// and role of it and the following steps, because each session counts its steps
// from 1. Call it in the order of the steps. There is no heading if the stage
// and role have not changed, or if all steps have the same.
func headings(steps []record.Step) func(i int) string {
	of := func(i int) string {
		return fmt.Sprintf("stage %s, %s", terminal.Clean(steps[i].Stage), steps[i].Role)
	}
	several := slices.ContainsFunc(steps, func(s record.Step) bool { return s.Stage != steps[0].Stage || s.Role != steps[0].Role })
	last := ""
	return func(i int) string {
		h := of(i)
		if !several || h == last {
			return ""
		}
		last = h
		return h
	}
}

// stepFacts are when a step was made, and what it used.
func stepFacts(s *trajectory.Step) string {
	var facts []string
	if t, err := time.Parse(time.RFC3339, s.Timestamp); err == nil {
		facts = append(facts, t.Local().Format("15:04:05.0"))
	}
	if s.ModelName != "" {
		facts = append(facts, terminal.Clean(s.ModelName))
	}
	if m := s.Metrics; m != nil {
		if m.PromptTokens != nil && m.CompletionTokens != nil {
			facts = append(facts, fmt.Sprintf("%d tokens in, %d out", *m.PromptTokens, *m.CompletionTokens))
		}
		if m.CostUSD != nil {
			facts = append(facts, fmt.Sprintf("%.4f USD", *m.CostUSD))
		}
	}
	if len(facts) == 0 {
		return ""
	}
	return "  " + strings.Join(facts, ", ")
}

// callText returns a call with its arguments: strings as they are and other
// values as JSON.
func callText(c trajectory.ToolCall) string {
	var args map[string]json.RawMessage
	if json.Unmarshal(c.Arguments, &args) != nil {
		return c.Name + " " + string(c.Arguments)
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(args)) {
		var s string
		if json.Unmarshal(args[k], &s) != nil || strings.ContainsRune(strings.TrimSuffix(s, "\n"), '\x1b') {
			s = string(args[k])
		}
		if s = strings.TrimSuffix(s, "\n"); strings.Contains(s, "\n") {
			s = "\n" + s
		}
		parts = append(parts, k+": "+s)
	}
	return c.Name + "  " + strings.Join(parts, "  ")
}
