package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run/cluster"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// Line returns one run for the list of runs.
func Line(dir string) output.RunLine {
	l := output.RunLine{Dir: dir, Outcomes: map[record.Outcome]int{}}
	m, x, err := store.Read(dir)
	if err != nil {
		l.Error = err.Error()
		return l
	}
	s := summary.Of(m, x)
	l.Experiment, l.Created, l.Planned, l.Outcomes, l.Complete = s.Experiment, s.Created, s.Planned, s.Outcomes, s.Complete
	if w := x.Writing(); w != nil {
		l.Busy = w.Process.String()
	}
	return l
}

// Run returns a run with some of its trials, and their attempts.
func Run(dir string, m *store.Manifest, x *store.Index, trials []*store.TrialState) output.ShowRun {
	res := output.ShowRun{
		Dir: dir, Run: m.Header, Summary: summary.Of(m, x), Trials: []output.ShowTrial{}, Writers: []output.ShowWriter{},
		Torn: x.Torn, Damaged: x.Damaged,
	}
	pilots := Pilots(dir)
	res.Pilots, res.Waits = pilotsOf(pilots, x)
	for _, t := range trials {
		res.Trials = append(res.Trials, trialOf(dir, m, x, t, pilots))
	}
	for _, w := range x.Writers {
		sw := output.ShowWriter{Name: w.Name, Berth: w.Began.Berth, Began: w.Began.Time, Ended: w.Ended}
		if p := w.Began.Process; p != nil {
			sw.Host, sw.PID = p.Host, p.PID
		}
		res.Writers = append(res.Writers, sw)
	}
	for _, n := range x.Notes {
		res.Notes = append(res.Notes, n.Note)
	}
	return res
}

// Trial returns a trial with its attempts.
func Trial(dir string, m *store.Manifest, x *store.Index, t *store.TrialState) output.ShowTrial {
	return trialOf(dir, m, x, t, Pilots(dir))
}

func trialOf(dir string, m *store.Manifest, x *store.Index, t *store.TrialState, pilots *cluster.State) output.ShowTrial {
	res := output.ShowTrial{Trial: *t.Trial, CellKey: m.Cells[t.Cell].Key, Outcome: t.Outcome(), Attempts: []output.ShowAttempt{}}
	if acc := t.Accepted(); acc != nil {
		res.Accepted = acc.Number
	}
	for _, at := range t.Attempts {
		folder := Folder(dir, t, at.Number)
		sa := output.ShowAttempt{Attempt: at.Number, Dir: folder, State: StateOf(x, t, at.Number), Spend: at.Spend(), Start: at.Began}
		if at.Result == nil {
			sa.Phases = Phases(folder, sa.State == output.UnderWay, &[]string{})
			if sa.State == output.UnderWay {
				res.Running = Running(dir, x, t, pilots)
			}
			res.Attempts = append(res.Attempts, sa)
			continue
		}
		b := at.Result
		sa.Outcome, sa.AgentEnd, sa.Integrity, sa.Score = b.Outcome, b.AgentEnd, b.Integrity, b.Score
		sa.Start, sa.End, sa.Phases, sa.Queued = b.Start, b.End, []record.Phase{}, b.Queued.Seconds()
		if r, err := store.ReadResult(folder); err == nil {
			sa.Phases, sa.Findings, sa.Error = r.Phases, len(r.Findings), r.Error
		}
		res.Attempts = append(res.Attempts, sa)
	}
	return res
}

// StateOf returns the state of an attempt of a trial.
func StateOf(x *store.Index, t *store.TrialState, number int) output.AttemptState {
	i := slices.IndexFunc(t.Attempts, func(a store.AttemptState) bool { return a.Number == number })
	switch {
	case i >= 0 && t.Attempts[i].Result != nil:
		return output.Published
	case i == len(t.Attempts)-1 && x.UnderWay(t):
		return output.UnderWay
	default:
		return output.Abandoned
	}
}

// Folder returns the folder of an attempt.
func Folder(dir string, t *store.TrialState, number int) string {
	return filepath.Join(dir, store.TrialsDir, filepath.FromSlash(t.Dir), store.AttemptDir(number))
}

// Bounds of what is read of an attempt, which others may have written.
const (
	maxLine   = 32 << 20  // bytes of one line
	maxLog    = 256 << 20 // bytes of one file
	maxFiles  = 1000      // that are listed
	maxPhases = 10_000    // phases of one attempt
)

// ReadLines reads a file of JSON lines in the folder of an attempt. It skips
// lines that are not JSON, as a crash may leave them, and adds a line to cut
// for everything else that is missing.
func ReadLines[T any](dir, name string, cut *[]string) []T {
	var all []T
	part, err := untrusted.Lines(dir, name, maxLine, maxLog, func(line []byte) {
		var v T
		if json.Unmarshal(line, &v) == nil {
			all = append(all, v)
		}
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		*cut = append(*cut, err.Error())
	case part:
		*cut = append(*cut, fmt.Sprintf("%s: only lines of up to %d MiB in its first %d MiB are shown", name, maxLine>>20, maxLog>>20))
	}
	return all
}

// Phases returns the phases of an attempt that was not published. A phase in
// which the process was killed ends with the last recorded event; a running
// phase has no end.
func Phases(dir string, underWay bool, cut *[]string) []record.Phase {
	phases := []record.Phase{}
	var last time.Time
	for _, e := range ReadLines[record.Event](dir, record.EventsFile, cut) {
		last = e.Time
		switch e.Type {
		case record.EventPhaseStart:
			if len(phases) == maxPhases {
				*cut = append(*cut, fmt.Sprintf("%s: only its first %d phases are shown", record.EventsFile, maxPhases))
				return phases
			}
			phases = append(phases, record.Phase{Name: e.Phase, Stage: e.Stage, Round: e.Round, Turn: e.Turn, Who: e.Who, Start: e.Time})
		case record.EventPhaseEnd:
			for i := len(phases) - 1; i >= 0; i-- {
				if p := &phases[i]; p.Name == e.Phase && p.Stage == e.Stage && p.End.IsZero() {
					p.End, p.Error = e.Time, e.Error
					break
				}
			}
		default:
		}
	}
	for i := range phases {
		if p := &phases[i]; p.End.IsZero() && !underWay {
			p.End, p.Error = last, "berth was killed in this phase"
		}
	}
	return phases
}

// Attempt returns one attempt with everything that can be shown.
func Attempt(dir string, state output.AttemptState) (*output.ShowFull, error) {
	full := &output.ShowFull{Dir: dir, State: state, Phases: []record.Phase{}, Files: []string{}}
	switch fi, err := os.Lstat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("the folder of the attempt was removed: %s: only the journal of the run is left", dir)
	case err == nil && !fi.IsDir():
		return nil, fmt.Errorf("the folder of the attempt is a link or not a folder, and was not opened: %s", dir)
	}
	r, err := store.ReadResult(dir)
	switch {
	case err == nil:
		full.Result, full.Phases = r, r.Phases
	case state == output.Published:
		full.Damage, full.Phases = err.Error(), Phases(dir, false, &full.Cut)
	case errors.Is(err, fs.ErrNotExist):
		full.Phases = Phases(dir, state == output.UnderWay, &full.Cut)
	default:
		return nil, err
	}
	full.Turns = ReadLines[record.Turn](dir, record.TurnsFile, &full.Cut)
	full.Verdicts = ReadLines[record.Verdict](dir, record.VerdictsFile, &full.Cut)
	full.Steps = ReadLines[record.Step](dir, record.StepsFile, &full.Cut)
	full.Log = ReadLines[json.RawMessage](dir, record.LogFile, &full.Cut)
	full.Plugins = ReadLines[plugin.Line](dir, store.PluginsFile, &full.Cut)
	names, more, err := untrusted.List(dir, maxFiles)
	if more {
		full.Cut = append(full.Cut, "files: not all of them are listed")
	}
	full.Files = append(full.Files, names...)
	return full, err
}
