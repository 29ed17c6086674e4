package report

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/internal/tui"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/plugins/trajectory"
	"github.com/berth-eval/berth/plugins/verifier"
)

// TrialHead prints the trial and its attempts. now is the one that is in progress,
// if any; shown is marked.
func TrialHead(p *terminal.Printer, m *store.Manifest, t *store.TrialState, now *output.ShowRunning, shown int) {
	p.Printf("%s  %s  repetition %d\n", terminal.Paint(p.Color, terminal.Bold, terminal.Clean(t.Task)), terminal.Clean(m.Cells[t.Cell].Key), t.Repetition)
	p.Printf("trial   %s\noutcome %s\n", t.ID, outcomeText(p, t, now != nil))
	if why := t.Invalid + t.Refused; why != "" {
		p.Hang("because ", why)
	}
	for _, at := range t.Attempts {
		mark := "  "
		if at.Number == shown {
			mark = "→ "
		}
		switch {
		case now != nil && at.Number == now.Attempt:
			p.Printf("%sattempt %d  running since %s (%s), %s%s\n", mark, at.Number, now.Start.Local().Format("15:04:05"),
				terminal.Seconds(age(now.Start)), runningText(now), lost(&at.Lost))
			continue
		case at.Result == nil:
			p.Printf("%sattempt %d  killed before it had a result%s\n", mark, at.Number, lost(&at.Lost))
			continue
		}
		p.Printf("%sattempt %d  %s  %s  %s\n", mark, at.Number, terminal.Paint(p.Color, tui.StyleOf(at.Result.Outcome), string(at.Result.Outcome)),
			at.Result.Start.Local().Format("2006-01-02 15:04:05"), terminal.Seconds(at.Result.End.Sub(at.Result.Start))+inQueue(at.Result.Queued))
	}
	p.Printf("\n")
}

// inQueue says how long an attempt waited for a pilot.
func inQueue(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return ", after " + terminal.Seconds(d) + " in the queue"
}

// outcomeText is the outcome of a trial, or that it is running.
func outcomeText(p *terminal.Printer, t *store.TrialState, now bool) string {
	if now {
		return terminal.Paint(p.Color, terminal.Bold, running)
	}
	return terminal.Paint(p.Color, tui.StyleOf(t.Outcome()), string(t.Outcome()))
}

// lost returns the usage of an attempt without a result.
func lost(s *store.Spend) string {
	if s.Requests == 0 {
		return ""
	}
	return fmt.Sprintf("  %s, %s", terminal.Count(int(s.Requests), "request", "requests"), tokensAndCost(s))
}

// maxLines is how much of a log or a trajectory is printed without --all.
const maxLines = 20

// AttemptText prints one attempt: its result, phases, trajectory, log, and the
// output of plugins.
func AttemptText(p *terminal.Printer, f *output.ShowFull, all bool) {
	switch {
	case f.Damage != "":
		p.Printf("result.json is damaged; this is what the journal of the run has: %s\n\n", terminal.Clean(f.Damage))
	case f.Result == nil && f.State == output.UnderWay:
		p.Printf("no result yet: the attempt is running. Follow it with --watch\n\n")
	case f.Result == nil:
		p.Printf("no result: the process of the run was killed during this attempt\n\n")
	default:
		resultText(p, f.Result, all)
	}
	for _, n := range f.Notes {
		p.Hang(fmt.Sprintf("%-10s ", "note"), fmt.Sprintf("%s, by %s on %s: %s", n.Label, n.Author, n.Time.Local().Format(time.DateOnly), n.Text))
	}
	for _, what := range f.Interventions {
		p.Hang(fmt.Sprintf("%-10s ", "changed"), what)
	}
	if len(f.Interventions)+len(f.Notes) > 0 {
		p.Printf("\n")
	}
	t := terminal.Table{Head: []string{"phase", "stage", "who", "start", "time", "error"}, Right: []bool{4: true}, Below: true}
	for _, p := range f.Phases {
		took := millis(p.End.Sub(p.Start))
		name := string(p.Name)
		if p.Turn > 1 {
			name += " " + strconv.Itoa(p.Turn)
		}
		if p.End.IsZero() {
			took = millis(age(p.Start)) + " so far"
		}
		t.Row(name, terminal.Clean(p.Stage), string(p.Who), p.Start.Local().Format(clock), took, terminal.Clean(p.Error))
	}
	t.Write(p)
	conversationText(p, f, all)
	stepsText(p, f.Steps, all)
	var log []LogLine
	for _, raw := range f.Log {
		var l LogLine
		if json.Unmarshal(raw, &l) == nil {
			log = append(log, l)
		}
	}
	logText(p, "log", log, all)
	logText(p, "output of plugins", outputOf(f.Plugins), all)
	for _, c := range f.Cut {
		p.Printf("%s %s\n", terminal.Paint(p.Color, terminal.Odd, "note:"), terminal.Clean(c))
	}
	p.Printf("\nfiles in %s\n", Display(f.Dir))
	n := 0
	for _, file := range f.Files {
		if n++; n > maxLines && !all {
			p.Printf("  … and %d more\n", len(f.Files)-maxLines)
			break
		}
		p.Printf("  %s\n", terminal.Clean(file))
	}
}

func millis(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	}
	return terminal.Seconds(d)
}

// madeBy names the pilot that made an attempt.
func madeBy(w *record.Worker) string {
	if w == nil {
		return ""
	}
	s := "pilot " + w.Pilot
	if w.Node != "" {
		s += " on " + w.Node
	}
	if w.Job != "" {
		s += ", job " + w.Job
	}
	if w.Lost != "" {
		s += ", which was lost"
	}
	return s
}

// checkpointTexts returns a line with counts, and lines for the checkpoints: all, or
// those that did not pass.
func checkpointTexts(cs []verifier.Checkpoint, all bool) (lines []string) {
	if len(cs) == 0 {
		return nil
	}
	count := map[string]int{}
	for _, c := range cs {
		if count[c.Result()]++; all || !c.Passed {
			lines = append(lines, strings.TrimSuffix(fmt.Sprintf("%s: %s: %s", c.Result(), c.Name, c.Note), ": "))
		}
	}
	return append([]string{fmt.Sprintf("%d passed, %d failed, %d skipped", count["passed"], count["failed"], count["skipped"])}, lines...)
}

// resultText prints the result of an attempt.
func resultText(p *terminal.Printer, r *record.Result, all bool) {
	line := func(key, value string) {
		if value != "" {
			p.Hang(fmt.Sprintf("%-10s ", key), value)
		}
	}
	p.Printf("%-10s %s\n", "outcome", terminal.Paint(p.Color, tui.StyleOf(r.Outcome), string(r.Outcome)))
	line("agent end", string(r.AgentEnd))
	line("integrity", strings.TrimSuffix(fmt.Sprintf("%s: %s", r.Integrity, strings.Join(r.Reasons, "; ")), ": "))
	line("verified", verifiedIn(r))
	line("made by", madeBy(r.Worker))
	if r.Success != nil {
		line("rule", Rule(r.Success, len(r.Stages)))
	}
	given(r, line)
	if r.Error != nil {
		line("error", fmt.Sprintf("%s, in %s: %s", r.Error.Boundary, r.Error.Phase, r.Error.Message))
	}
	for i := range r.Stages {
		for _, l := range lastTurn(&r.Stages[i], len(r.Stages) > 1) {
			line(l[0], l[1])
		}
	}
	for _, m := range r.Modified {
		line("modified", m)
	}
	for _, v := range r.Verdicts {
		text := fmt.Sprintf("%s: %s", Grader(v.Verifier, r.Graders[v.Verifier]), v.Decision)
		if v.Stage != "" {
			text += " (stage " + v.Stage + ")"
		}
		if v.Rationale != "" {
			text += ": " + brief(v.Rationale, 200, all)
		}
		line("verdict", text)
		for _, text := range checkpointTexts(v.Checkpoints, all) {
			line("", text)
		}
	}
	for _, f := range r.Findings {
		line("finding", fmt.Sprintf("%s (%s, by %s%s): %s", f.Code, f.Severity, f.By, where(&f), f.Text))
	}
	for _, u := range summed(r.Usage) {
		cost := "cost unknown"
		if u.CostUSD != nil {
			cost = fmt.Sprintf("%.4f USD", *u.CostUSD)
		}
		name := u.Model
		if u.FallbackFor != "" {
			name += " (fallback for " + u.FallbackFor + ")"
		}
		role := u.Role
		if u.Verifier != "" {
			role = fmt.Sprintf("verifier %q", u.Verifier)
		}
		line("usage", fmt.Sprintf("%s, %s: %d requests, %d in, %d out, %s%s", role, name, u.Requests, u.InputTokens, u.OutputTokens, cost, estimated(u.Estimated)))
	}
	p.Printf("\n")
}

// summed returns usage with one entry for each role, verifier and model: a
// verifier that judges between turns has one for each of its calls.
func summed(us []record.Usage) (out []record.Usage) {
	for _, u := range us {
		i := slices.IndexFunc(out, func(o record.Usage) bool {
			return o.Role == u.Role && o.Verifier == u.Verifier && o.Model == u.Model && o.FallbackFor == u.FallbackFor
		})
		if i < 0 {
			out = append(out, u)
			continue
		}
		out[i].Add(&u)
	}
	return out
}

// given prints the scores and the labels of an attempt.
func given(r *record.Result, line func(key, value string)) {
	for _, name := range slices.Sorted(maps.Keys(r.Scores)) {
		line("score", fmt.Sprintf("%s = %g", name, r.Scores[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
		line("label", fmt.Sprintf("%s = %s", name, r.Labels[name]))
	}
}

// lastTurn says how the last turn of an agent ended that did not yield: why, its
// last message, and its last request to a model.
func lastTurn(s *record.StageResult, several bool) (lines [][2]string) {
	t := s.LastTurn
	if t == nil {
		return nil
	}
	why := t.Reason
	if exit := fmt.Sprintf("exit code %d", t.ExitCode); t.ExitCode != 0 && !strings.Contains(why, exit) {
		why = strings.TrimSuffix(exit+": "+why, ": ")
	}
	if several && why != "" {
		why += " (stage " + s.Name + ")"
	}
	lines = append(lines, [2]string{"reason", why}, [2]string{"last words", t.Message})
	if x := t.Exchange; x != nil {
		name := x.Model
		if x.FallbackFor != "" {
			name += " (fallback for " + x.FallbackFor + ")"
		}
		if x.Key > 0 {
			name += fmt.Sprintf(", key %d", x.Key)
		}
		text := fmt.Sprintf("%s: status %d", name, x.Status)
		if x.Status == 0 {
			text = name + ": no answer"
		}
		for _, more := range []string{x.Error, x.Upstream} {
			if more != "" {
				text += ": " + more
			}
		}
		if x.Broken != "" {
			text += " (cut off by the " + x.Broken + ")"
		}
		lines = append(lines, [2]string{"last call", text})
	}
	return lines
}

// verifiedIn returns where the attempt was verified.
func verifiedIn(r *record.Result) string {
	switch {
	case r.Mode == string(task.ModeLive) && r.SameAs != "": // equal to restarted, because nothing was left running
		return "in the live sandbox; nothing was left running"
	case r.Mode == string(task.ModeLive), r.Mode == string(task.ModeRestarted):
		return "in the " + r.Mode + " sandbox"
	case r.Mode == string(task.ModeCopies):
		return "from the collected files, without a sandbox"
	}
	return r.Mode
}

// where returns the phase and the stage of a finding, if known.
func where(f *record.Finding) (text string) {
	if f.Phase != "" {
		text = " in " + string(f.Phase)
	}
	if f.Stage != "" {
		text += ", stage " + f.Stage
	}
	return text
}

// stepsText prints the trajectory, one line a step.
func stepsText(p *terminal.Printer, steps []record.Step, all bool) {
	if len(steps) == 0 {
		return
	}
	p.Printf("\n%s\n", terminal.Paint(p.Color, terminal.Bold, "trajectory"))
	from := 0
	if !all && len(steps) > maxLines {
		from = len(steps) - maxLines
		p.Printf("  … %d earlier steps; use --all to print them\n", from)
	}
	heading := headings(steps)
	for i := range steps[from:] {
		if h := heading(from + i); h != "" {
			p.Printf("  %s\n", h)
		}
		stepText(p, &steps[from+i].Step, all)
	}
}

// stepText prints a step: what was said, done and seen.
func stepText(p *terminal.Printer, s *trajectory.Step, all bool) {
	p.Hang(fmt.Sprintf("  %3d %-6s ", s.StepID, s.Source), brief(MessageText(s.Message), 160, all))
	for _, c := range s.ToolCalls {
		p.Hang("             → ", terminal.Clean(c.Name)+" "+brief(string(c.Arguments), 140, all))
	}
	if s.Observation == nil {
		return
	}
	for _, r := range s.Observation.Results {
		if r.Content != nil {
			p.Hang("             ← ", brief(MessageText(*r.Content), 140, all))
		}
	}
}

// brief returns a text without its middle, or all of it.
func brief(s string, width int, all bool) string {
	if all {
		return s
	}
	return terminal.Ends(s, width)
}

// MessageText returns the text of a message, with the type of each picture in
// its place.
func MessageText(c trajectory.Content) string {
	if len(c.Parts) == 0 {
		return c.Text
	}
	var parts []string
	for _, p := range c.Parts {
		if p.Source == nil {
			parts = append(parts, p.Text)
			continue
		}
		parts = append(parts, "["+string(p.Type)+"]")
	}
	return strings.Join(parts, " ")
}

// logText prints the end of a log.
func logText(p *terminal.Printer, title string, log []LogLine, all bool) {
	if len(log) == 0 {
		return
	}
	p.Printf("\n%s\n", terminal.Paint(p.Color, terminal.Bold, title))
	from := 0
	if !all && len(log) > maxLines {
		from = len(log) - maxLines
		p.Printf("  … %d earlier lines; use --all to print them\n", from)
	}
	for i := range log[from:] {
		log[from+i].text(p)
	}
}

// outputOf returns what plugins wrote as lines of a log, with their fields below.
func outputOf(lines []plugin.Line) (log []LogLine) {
	for i := range lines {
		l := &lines[i]
		text := l.Text
		if l.Level != "" {
			text = l.Level + ": " + text
		}
		for _, name := range slices.Sorted(maps.Keys(l.Fields)) {
			value := fmt.Sprint(l.Fields[name])
			if strings.Contains(value, "\n") {
				value = "\n  " + strings.ReplaceAll(value, "\n", "\n  ")
			} else {
				value = " " + value
			}
			text += "\n" + name + ":" + value
		}
		log = append(log, LogLine{l.Time, l.Plugin, text})
	}
	return log
}

// LogLine is the part of a line of the log that is shown.
type LogLine struct {
	Time time.Time `json:"time"`
	From string    `json:"from"`
	Text string    `json:"text"`
}

func (l *LogLine) text(p *terminal.Printer) {
	for i, text := range terminal.Lines(l.Text) {
		if i == 0 {
			p.Printf("  %s %s: %s\n", l.Time.Local().Format(clock), terminal.Clean(l.From), text)
		} else {
			p.Printf("    %s\n", text)
		}
	}
}

// clock is how times of events are written.
const clock = "15:04:05.000"
