package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/notes"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
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
	run    string // folder of the run
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
		Name: filepath.Base(k.Dir), dir: report.Folder(k.Dir, t, n), run: k.Dir,
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

// attemptPage shows one attempt.
func (s *Server) attemptPage(r *request) error {
	a, err := s.attempt(r)
	if err != nil {
		return err
	}
	var missing []string
	busy := a.State == output.UnderWay
	data := map[string]any{"A": a, "Busy": busy, "Step": r.number("step"), "Base": a.Base}
	if busy {
		data["Live"] = true
		data["Buttons"] = buttonsOf(r.Context(), a.run, a.Page()+"control")
	}
	result, err := store.ReadResult(a.dir)
	switch err {
	case nil:
		data["Result"], data["Phases"] = result, bars(result.Phases)
	default:
		if a.State == output.Published || !errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, err.Error())
		}
		data["Phases"] = bars(report.Phases(a.dir, busy, &missing))
	}
	data["Turns"] = report.ReadLines[record.Turn](a.dir, record.TurnsFile, &missing)
	data["Verdicts"] = report.ReadLines[record.Verdict](a.dir, record.VerdictsFile, &missing)
	data["Log"] = logOf(a.dir)
	names, more, err := untrusted.List(a.dir, maxShown)
	if err != nil {
		missing = append(missing, "the folder of the attempt cannot be read, so that only the journal of the run is left: "+err.Error())
	}
	if more {
		missing = append(missing, "files: not all of them are listed")
	}
	sorted(names, busy, data)
	readers, err := notes.Read(a.run)
	if err != nil {
		missing = append(missing, err.Error())
	}
	data["Notes"] = readers.Of(a.Trial.ID, a.Number)
	steps, err := stepsOf(a, r)
	if err != nil {
		missing = append(missing, err.Error())
	}
	data["Steps"], data["Missing"] = steps, missing
	return r.show("attempt", a.Trial.Task, data)
}

// maxInline is how many pictures, recordings or outputs a page shows itself.
const maxInline = 20

// sorted puts the files of an attempt where a page shows them.
func sorted(names []string, busy bool, data map[string]any) {
	var terminals, tests, artifacts []string
	data["Surface"] = busy
	for _, n := range names {
		switch {
		case n == record.SurfaceFile:
			data["Surface"] = true
		case n == record.ExchangesFile:
			data["Exchanges"] = true
		case path.Ext(n) == ".cast" && len(terminals) < maxInline:
			terminals = append(terminals, n)
		case strings.HasPrefix(n, record.VerifierDir+"/") && len(tests) < maxInline:
			tests = append(tests, n)
		case strings.HasPrefix(n, record.ArtifactsDir+"/"):
			artifacts = append(artifacts, n)
		}
	}
	data["Terminals"], data["Tests"], data["Artifacts"], data["Files"] = terminals, tests, artifacts, names
}

// maxLog is how many lines of a log a page shows, the newest ones.
const maxLog = 100

// logOf returns the newest lines of the log of an attempt.
func logOf(dir string) (all []report.LogLine) {
	for line := range bytes.Lines(lastBytes(dir, record.LogFile, 64<<10)) {
		var l report.LogLine
		if json.Unmarshal(line, &l) == nil {
			l.Text = partOf(l.Text, 4<<10).Text
			all = append(all, l)
		}
	}
	return all[max(0, len(all)-maxLog):]
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
	data := map[string]any{"A": sides[0].A, "B": sides[1].A, "Pairs": rows, "From": from, "Sides": []*attempt{sides[0].A, sides[1].A}}
	if n == stepsPage {
		data["Next"] = r.with("step", strconv.FormatInt(from+stepsPage, 10))
	}
	return r.show("compare", "Compare "+sides[0].A.Trial.Task, data)
}
