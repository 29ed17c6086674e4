// Package tui shows the progress of a run: on a terminal a live block below the
// lines of finished trials, otherwise a line per finished trial and a summary
// at intervals; never both.
//
// It must not decide anything: it only prints events.
package tui

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
)

// Watcher receives the events of a run, from one goroutine at a time.
type Watcher interface {
	Event(e run.Event)
	// Write prints whole lines, such as those of a log, where they stay.
	io.Writer
	// Close ends the display; what follows may be printed.
	Close()
}

// Options say where and how to show progress.
type Options struct {
	Err   io.Writer
	Color bool
	// Block keeps a block on the terminal; without it every line stays.
	Block bool
	// Cells are the slugs of the cells, Tasks the names of all tasks: for the
	// widths of columns.
	Cells, Tasks []string
	// Every is the time between summary lines; 0: 30 s.
	Every time.Duration
}

// New is a watcher. The caller closes it.
func New(o Options) Watcher {
	if o.Every == 0 {
		o.Every = 30 * time.Second
	}
	return newDisplay(newState(o))
}

func newState(o Options) *state {
	s := &state{o: o, start: time.Now(), outcomes: map[record.Outcome]int{}, running: map[string]*attempt{}}
	for _, c := range o.Cells {
		s.cellWidth = max(s.cellWidth, min(ansi.StringWidth(terminal.Clean(c)), maxCell))
	}
	for _, t := range o.Tasks {
		s.taskWidth = max(s.taskWidth, min(ansi.StringWidth(terminal.Clean(t)), maxTask))
	}
	return s
}

// state is what both displays know of a run.
type state struct {
	o                    Options
	start                time.Time
	cellWidth, taskWidth int

	to, done int
	outcomes map[record.Outcome]int
	running  map[string]*attempt
	order    []string // of running, oldest first
	stopping string
}

// attempt is one that is under way.
type attempt struct {
	name  string
	since time.Time
	phase string
	steps int
}

// take records an event and returns the permanent lines to print.
func (s *state) take(e run.Event) []string {
	if e.Kind != run.Live && e.Kind != run.Notice {
		s.to = e.To
	}
	switch e.Kind {
	case run.Began:
		s.running[e.Trial.ID] = &attempt{name: s.name(e), since: time.Now()}
		s.order = append(s.order, e.Trial.ID)
	case run.Live:
		s.live(e)
	case run.Ended:
		s.gone(e.Trial.ID)
		s.done++
		s.outcomes[e.Result.Outcome]++
		return []string{s.finished(e)}
	case run.Lost:
		s.gone(e.Trial.ID)
		return []string{fmt.Sprintf("%s  %s  %s", s.name(e), terminal.Paint(s.o.Color, terminal.Bad, "not written"), terminal.Clean(e.Text))}
	case run.Waiting:
		s.done--
		return []string{fmt.Sprintf("%s  in %s", s.name(e), terminal.Seconds(e.Wait))}
	case run.Held:
		return []string{terminal.Paint(s.o.Color, terminal.Odd, "waiting: "+terminal.Clean(e.Text))}
	case run.Notice:
		return []string{terminal.Clean(e.Text)}
	case run.Stopping:
		if e.Trial != nil { // a cell; the others continue
			return []string{terminal.Paint(s.o.Color, terminal.Odd, "stopping "+terminal.Clean(e.Text))}
		}
		s.stopping = e.Text
		line := "stopping: " + terminal.Clean(e.Text)
		if n := len(s.running); n > 0 {
			line += fmt.Sprintf("; %s under way", terminal.Count(n, "attempt", "attempts"))
			if e.Text == run.Interrupted {
				line += ", Ctrl-C again to leave at once"
			}
		}
		return []string{terminal.Paint(s.o.Color, terminal.Odd, line)}
	}
	return nil
}

func (s *state) gone(id string) {
	delete(s.running, id)
	for i, x := range s.order {
		if x == id {
			s.order = append(s.order[:i], s.order[i+1:]...)
			return
		}
	}
}

func (s *state) live(e run.Event) {
	a := s.running[e.Trial.ID]
	if a == nil {
		return
	}
	switch e.Live.Type {
	case record.EventPhaseStart:
		a.phase = string(e.Live.Phase)
		if e.Live.Stage != "" && e.Live.Turn > 1 {
			a.phase = fmt.Sprintf("%s %d", a.phase, e.Live.Turn)
		}
		if e.Live.Text != "" {
			a.phase += " on " + terminal.Clean(e.Live.Text)
		}
	case record.EventStep:
		a.steps++
	default:
	}
}

// The widest columns of names. A longer name is whole, and moves the rest of its
// row to the right.
const maxTask, maxCell = 40, 30

func (s *state) name(e run.Event) string {
	cell := ""
	if e.Trial.Cell < len(s.o.Cells) {
		cell = s.o.Cells[e.Trial.Cell]
	}
	n := fmt.Sprintf("%-*s  %-*s  %d", s.taskWidth, terminal.Clean(e.Trial.Task), s.cellWidth, terminal.Clean(cell), e.Trial.Repetition)
	if e.Attempt > 1 {
		n += fmt.Sprintf(" (attempt %d)", e.Attempt)
	}
	return n
}

// finished is the line of an attempt that has ended.
func (s *state) finished(e run.Event) string {
	r := e.Result
	score := "    "
	if r.Score != nil {
		score = fmt.Sprintf("%.2f", *r.Score)
	}
	outcome := fmt.Sprintf("%-17s", r.Outcome)
	line := fmt.Sprintf("%s  %s  %s  %9s", s.name(e), terminal.Paint(s.o.Color, StyleOf(r.Outcome), outcome), score, terminal.Seconds(r.End.Sub(r.Start)))
	if n := note(r); n != "" {
		line += "  " + n
	}
	return line
}

// note returns what a reader should know in addition to the outcome.
func note(r *record.Result) string {
	var notes []string
	if r.AgentEnd != "" && r.AgentEnd != record.Yielded {
		notes = append(notes, string(r.AgentEnd))
	}
	if r.Integrity == record.Exposed || r.Integrity == record.Violated {
		notes = append(notes, string(r.Integrity))
	}
	if r.Error != nil {
		notes = append(notes, terminal.Ends(fmt.Sprintf("%s: %s", r.Error.Boundary, r.Error.Message), 400))
	}
	return strings.Join(notes, ", ")
}

// StyleOf is how an outcome is painted.
func StyleOf(o record.Outcome) terminal.Style {
	switch o {
	case record.Passed:
		return terminal.Good
	case record.Failed:
		return terminal.Bad
	case record.Scored, record.NotRun, record.Cancelled:
		return terminal.Plain
	default:
		return terminal.Odd
	}
}

// summary is the state of the run in one line.
func (s *state) summary(now time.Time) string {
	parts := []string{fmt.Sprintf("%d of %d done", s.done, s.to)}
	for _, o := range record.Outcomes {
		if n := s.outcomes[o]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, o))
		}
	}
	line := strings.Join(parts, ", ")
	if n := len(s.running); n > 0 {
		line += fmt.Sprintf("; %d running", n)
	}
	if s.done > 0 && s.stopping == "" && s.done < s.to {
		left := time.Duration(float64(now.Sub(s.start)) / float64(s.done) * float64(s.to-s.done))
		line += fmt.Sprintf("; about %s left", terminal.Seconds(left))
	}
	return line
}
