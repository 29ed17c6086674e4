package report

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/selection"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/core/store/node"
)

// ErrNotComplete means that trials of a run have no final outcome, and that no
// process writes the run.
var ErrNotComplete = errors.New("the run is not complete, and no process writes it")

// State is a run as it was read at one moment.
type State struct {
	Dir      string
	Manifest *store.Manifest
	Index    *store.Index
	filter   Filter
	trials   []*store.TrialState // that the filter selects
}

// Filter says which trials of a run are listed.
type Filter struct {
	Expression string // see package selection; empty: all
	All        bool   // print all that are selected
}

// ReadState reads the run in dir. Fails for an expression with a mistake.
func ReadState(dir string, f Filter) (*State, error) {
	m, x, err := store.Read(dir)
	if err != nil {
		return nil, err
	}
	e, err := selection.Of(f.Expression, dir, m)
	if err != nil {
		return nil, err
	}
	trials, err := e.Trials(m, x)
	return &State{Dir: dir, Manifest: m, Index: x, filter: f, trials: trials}, err
}

// Document returns the run with the trials that the filter selects.
func (s *State) Document() output.ShowRun { return Run(s.Dir, s.Manifest, s.Index, s.trials) }

// Complete reports whether all trials have an outcome that is final.
func (s *State) Complete() bool { return summary.Of(s.Manifest, s.Index).Complete }

// Text prints the tables of the run, and the trials that the filter selects.
func (s *State) Text(p *terminal.Printer) {
	h := &s.Manifest.Header
	p.Printf("%s  %s  planned %s\n\n", terminal.Paint(p.Color, terminal.Bold, terminal.Clean(h.Experiment)), Display(s.Dir),
		h.Created.Local().Format("2006-01-02 15:04:05"))
	Summary(p, summary.Of(s.Manifest, s.Index))
	if w := s.Index.Writing(); w != nil {
		p.Printf("running in %s since %s\n", w.Process, w.Time.Local().Format("15:04:05"))
	}
	pilots, waits := pilotsOf(Pilots(s.Dir), s.Index)
	pilotTable(p, pilots, waits)
	p.Printf("\n")
	if s.list(p); len(s.trials) > 0 {
		p.Printf("\nshow a trial: berth show %s TRIAL\n", Display(s.Dir))
	}
}

// progress says how far the run is. It changes when an attempt begins or ends,
// when the run is extended, and when a process begins or ends to write the run,
// but not with the time or with the phases of attempts.
func (s *State) progress() string {
	var b []byte
	for _, t := range s.Index.Trials {
		results := 0
		for i := range t.Attempts {
			if t.Attempts[i].Result != nil {
				results++
			}
		}
		b = fmt.Appendf(b, "%d/%d ", results, len(t.Attempts))
	}
	for i := range s.Index.Writers {
		w := &s.Index.Writers[i]
		b = fmt.Appendf(b, "%q %t ", w.Name, w.Writes())
	}
	return string(fmt.Appendf(b, "%d", len(s.Index.Notes)))
}

// Watcher prints a run again and again until no process writes it: on a terminal
// in place, elsewhere when something has changed. It only reads, so that any
// number of processes may watch a run.
type Watcher struct {
	P      *terminal.Printer
	Dir    string // of the run
	Filter Filter

	shown   string // the progress that was printed last; empty: none
	faraway bool   // the user was told that the process is on another machine
}

// Watch returns nil when the run is complete and no process writes it, or when
// the output was closed; ErrNotComplete if no process writes a run with open
// trials; and the error of ctx.
func (w *Watcher) Watch(ctx context.Context) error {
	var screen *terminal.Screen
	if !w.P.JSON {
		screen = w.P.Screen()
	}
	for {
		began := time.Now()
		s, err := ReadState(w.Dir, w.Filter)
		if err != nil {
			return err
		}
		writer := s.Index.Writing()
		err = w.print(s, screen, writer == nil)
		switch {
		case err != nil || w.P.Closed():
			return err
		case writer == nil && !s.Complete():
			return ErrNotComplete
		case writer == nil:
			return nil
		}
		noteFaraway(w.P, writer, &w.faraway)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(readEvery, 10*time.Since(began))): // a large run takes long to read
		}
	}
}

// print prints the run if it is not as it was when it was printed last: on a
// terminal always, since times have passed.
func (w *Watcher) print(s *State, screen *terminal.Screen, over bool) error {
	now := s.progress()
	if screen == nil && now == w.shown {
		return nil
	}
	var err error
	switch {
	case over && screen != nil:
		screen.Clear()
		s.Text(w.P) // all of it, also what a window has no room for
	case screen != nil:
		screen.Show(s.Text)
	case w.P.JSON:
		err = w.P.Line(s.Document())
	default:
		if w.shown != "" {
			w.P.Printf("\n")
		}
		s.Text(w.P)
	}
	w.shown = now
	return err
}

// noteFaraway says once that a run is written by a process on another machine.
func noteFaraway(p *terminal.Printer, w *store.Entry, said *bool) {
	if !*said && w.Process.State() == node.Unknown {
		*said = true
		p.Notef("the run is written by %s, of which nothing can be seen from here: if that process is gone, end this command\n", w.Process)
	}
}
