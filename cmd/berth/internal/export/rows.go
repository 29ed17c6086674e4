package export

import (
	"encoding/json"
	"errors"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/berth-eval/berth/cmd/berth/internal/notes"
	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/trajectory"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// Run is a run as it was read.
type Run struct {
	numbers.Run

	Trials  []*store.TrialState // that are exported
	Readers *notes.Notes        // what readers noted
}

// row is one row of the table: an attempt, or a trial without one.
type row struct {
	run     *Run
	trial   *store.TrialState
	cell    *store.Cell
	attempt *store.AttemptState // nil: the trial has no attempt
	result  *record.Result      // nil: not published, or it cannot be read
	counts  bool                // the trial's result is that of this row
	steps   *int64              // of the agent; nil: not known
}

// Bounds of what is read of an attempt.
const (
	maxLine  = 32 << 20  // bytes of one line
	maxSteps = 256 << 20 // bytes of the file of steps
	maxText  = 4 << 10   // bytes of a text in a table
)

// rows are the rows of a table, read one after another, so that one result at a time
// is in memory.
type rows struct {
	run     *Run
	n       int // that were read
	damaged int // results that could not be read
}

// all returns the rows of all trials in order. A row is valid until the next one.
func (r *rows) all() iter.Seq[*row] {
	return func(yield func(*row) bool) {
		for _, t := range r.run.Trials {
			for one := range r.of(t) {
				if r.n++; !yield(one) {
					return
				}
			}
		}
	}
}

// of returns the rows of a trial: its attempts, in order.
func (r *rows) of(t *store.TrialState) iter.Seq[*row] {
	base := row{run: r.run, trial: t, cell: &r.run.Manifest.Cells[t.Cell]}
	if len(t.Attempts) == 0 {
		base.counts = true
		return func(yield func(*row) bool) { yield(&base) }
	}
	counts := len(t.Attempts) - 1
	if a := t.Accepted(); a != nil {
		counts = slices.IndexFunc(t.Attempts, func(s store.AttemptState) bool { return s.Number == a.Number })
	}
	return func(yield func(*row) bool) {
		for i := range t.Attempts {
			one := base
			one.attempt, one.counts = &t.Attempts[i], i == counts
			dir := report.Folder(r.run.Dir, t, one.attempt.Number)
			if one.attempt.Result != nil {
				var err error
				if one.result, err = store.ReadResult(dir); err != nil || one.result.Trial != t.ID {
					one.result = nil
					r.damaged++
				}
			}
			one.steps = steps(report.Folder(r.run.Dir, t, t.Work(one.attempt).Number))
			if !yield(&one) {
				return
			}
		}
	}
}

// steps counts what the agent did; nil if it cannot be read in full.
func steps(dir string) *int64 {
	n := int64(0)
	cut, err := untrusted.Lines(dir, record.StepsFile, maxLine, maxSteps, func(line []byte) {
		var s struct {
			Role string `json:"role"`
			Step struct {
				Source trajectory.Source `json:"source"`
			} `json:"step"`
		}
		if json.Unmarshal(line, &s) == nil && s.Role != "user" && s.Step.Source == trajectory.Model {
			n++
		}
	})
	if cut || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return &n
}

// usage sums the use of models by a role; "" means all roles. ok is false if no
// model was used.
func (r *row) usage(role string) (sum record.Usage, ok bool) {
	if r.result == nil {
		return sum, false
	}
	sum.CostUSD = new(float64)
	for i := range r.result.Usage {
		if u := &r.result.Usage[i]; role == "" || u.Role == role {
			ok = true
			sum.Add(u)
		}
	}
	return sum, ok
}

// plugin returns the plugin of a kind that the attempt used first.
func (r *row) plugin(kind string) *record.PluginUsed {
	if r.result == nil {
		return nil
	}
	for i := range r.result.Plugins {
		if p := &r.result.Plugins[i]; p.Kind == kind {
			return p
		}
	}
	return nil
}

// outcome returns the outcome of the attempt, or of the trial if the row is the
// trial's result; empty for an attempt that has none.
func (r *row) outcome() record.Outcome {
	switch {
	case r.counts:
		return r.trial.Outcome()
	case r.attempt.Result != nil:
		return r.attempt.Result.Outcome
	default:
		return ""
	}
}

// state says how far the attempt came.
func (r *row) state() string {
	switch {
	case r.attempt == nil:
		return "none"
	case r.attempt.Result != nil:
		return "published"
	case r.run.Index.UnderWay(r.trial) && r.attempt == &r.trial.Attempts[len(r.trial.Attempts)-1]:
		return "under_way"
	default:
		return "abandoned"
	}
}

// findings returns the codes of the attempt's findings, each once.
func (r *row) findings() string {
	if r.result == nil {
		return ""
	}
	codes := map[string]bool{}
	for i := range r.result.Findings {
		codes[r.result.Findings[i].Code] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(codes)), " ")
}

// dir returns the folder of the attempt, relative to that of the run.
func (r *row) dir() string {
	if r.attempt == nil {
		return ""
	}
	return path.Join(store.TrialsDir, r.trial.Dir, store.AttemptDir(r.attempt.Number))
}

// seconds returns the time between two moments; nil if one is not known.
func seconds(from, to time.Time) any {
	if from.IsZero() || to.IsZero() {
		return nil
	}
	return to.Sub(from).Seconds()
}

// text returns a text for a table: without control characters except line ends and
// tabs, and not longer than maxText.
func text(s string) any {
	if s == "" {
		return nil
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return s
}
