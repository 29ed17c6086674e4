package view

import (
	"cmp"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/config"
	"github.com/berth-eval/berth/cmd/berth/internal/control"
	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/report/page"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// count is how many trials have an outcome, or how many attempts are in a phase.
type count struct {
	Name   string
	Trials int
	X, W   float64 // of its bar, in percent
}

// flight is an attempt in progress.
type flight struct {
	Trial *store.TrialState
	Cell  string
	*output.ShowRunning
}

// Bounds of what is said of attempts in progress, since the events of each are read.
const (
	maxFlights = 100  // that are listed
	maxPhased  = 2000 // whose phases are counted
)

// maxOffered is how many cells the page suggests for the field that takes one.
const maxOffered = 200

// moment is what a run does at a time.
type moment struct {
	Time    time.Time
	Flights []flight // the first ones
	All     int
	Phases  []count
	next    time.Time // until then it is not looked at again
}

// moment returns what the run does now, or did a moment ago if it takes long to
// find out.
func (k *kept) moment() *moment {
	k.now.Lock()
	defer k.now.Unlock()
	if k.at != nil && time.Now().Before(k.at.next) {
		return k.at
	}
	m := &moment{Time: time.Now()}
	phases, pilots := map[string]int{}, report.Pilots(k.Dir)
	for _, t := range k.Index.Trials {
		if !k.Index.UnderWay(t) {
			continue
		}
		m.All++
		if m.All > maxPhased {
			continue
		}
		running := report.Running(k.Dir, k.Index, t, pilots)
		switch {
		case running == nil:
			continue
		case running.Queued:
			phases["waits for a pilot"]++
		case running.Phase == nil:
			phases["no phase yet"]++
		default:
			phases[string(running.Phase.Name)]++
		}
		if len(m.Flights) < maxFlights {
			m.Flights = append(m.Flights, flight{t, k.Manifest.Cells[t.Cell].Key, running})
		}
	}
	for name, n := range phases {
		m.Phases = append(m.Phases, count{Name: name, Trials: n})
	}
	slices.SortFunc(m.Phases, func(a, b count) int { return cmp.Or(b.Trials-a.Trials, cmp.Compare(a.Name, b.Name)) })
	m.next = time.Now().Add(max(restLeast, restTimes*time.Since(m.Time)))
	k.at = m
	return m
}

// address is that of the page of a run.
func address(dir string) string { return "/run/" + url.PathEscape(filepath.Base(dir)) + "/" }

// runPage shows what a run does and the numbers of its cells; reportPage has the rest.
func (s *Server) runPage(r *request) error {
	k, err := s.run(r.PathValue("run"))
	if err != nil {
		return err
	}
	sum := k.sum()
	data := map[string]any{
		"Summary": sum, "Name": filepath.Base(k.Dir), "Base": address(k.Dir), "Counts": counts(sum), "Torn": k.Index.Torn + k.Index.Damaged,
	}
	data["Limit"], data["LimitKnown"] = config.CostLimit(filepath.Join(k.Dir, k.Manifest.Header.Folder()), k.Manifest.Header.Variables)
	if k.Index.Writing() != nil {
		m, b := k.moment(), buttonsOf(r.Context(), k.Dir, address(k.Dir)+"control")
		data["Live"], data["Now"], data["More"] = true, m, max(0, m.All-len(m.Flights))
		if left := sum.Outcomes[record.NotRun] - m.All; left >= 0 {
			data["Left"], data["Rate"], data["ETA"] = left, rate(k.Index), eta(k.Index, sum.Outcomes[record.NotRun])
		}
		data["Buttons"], data["Cells"] = b, k.Manifest.Cells[:min(len(k.Manifest.Cells), maxOffered)]
		if now := b.limit(control.CostUSD); now != nil { // another one may have been set
			data["Limit"], data["LimitKnown"] = now.Most, true
		}
	}
	if limit, ok := data["Limit"].(*float64); ok && limit != nil && *limit > 0 && sum.CostUSD != nil {
		data["Share"] = 100 * min(max(*sum.CostUSD / *limit, 0), 1)
	}
	if board, countErr := k.board(); countErr != nil {
		data["NoBoard"] = countErr.Error()
	} else {
		data["Board"] = board
	}
	return r.show("run", filepath.Base(k.Dir), data)
}

// reportPage has the numbers and charts of the report about a run. The page of the run
// loads them when they are seen.
func (s *Server) reportPage(r *request) error {
	k, err := s.run(r.PathValue("run"))
	if err != nil {
		return err
	}
	report, err := k.report()
	if err != nil {
		return err
	}
	return r.show("report", "Report of "+filepath.Base(k.Dir), map[string]any{"Name": filepath.Base(k.Dir), "Base": address(k.Dir), "Report": report})
}

// reportOf computes a report, as berth report --force does. Without all, it has only
// the numbers of the cells.
func reportOf(k *numbers.Run, berth string, all bool) (*page.Report, error) {
	runs := []numbers.Run{*k}
	rules, err := numbers.RulesOf(runs)
	if err != nil {
		return nil, err
	}
	r, err := page.Count(runs, &page.Options{Seed: 1, Berth: berth, Rules: rules, Force: true, Base: address(k.Dir)})
	if err == nil && all {
		err = r.Complete()
	}
	return r, err
}

// counts returns the outcomes that occur.
func counts(sum *summary.Summary) (all []count) {
	x := 0.0
	for _, o := range record.Outcomes {
		if n := sum.Outcomes[o]; n > 0 {
			w := 100 * float64(n) / float64(max(sum.Planned, 1))
			all = append(all, count{string(o), n, x, w})
			x += w
		}
	}
	return all
}

// window is the time over which the rate is taken.
const window = 10 * time.Minute

// rate is how many attempts ended in the last minutes, for each minute.
func rate(x *store.Index) float64 {
	n, first, now := 0, time.Time{}, time.Now()
	for _, t := range x.Trials {
		for i := range t.Attempts {
			if began := t.Attempts[i].Began; first.IsZero() || !began.IsZero() && began.Before(first) {
				first = began
			}
			if b := t.Attempts[i].Result; b != nil && now.Sub(b.End) < window {
				n++
			}
		}
	}
	span := min(window, now.Sub(first))
	if first.IsZero() || span <= 0 {
		return 0
	}
	return float64(n) / span.Minutes()
}

// eta is when the trials that have no outcome yet will have one at this rate.
func eta(x *store.Index, left int) string {
	per := rate(x)
	if per <= 0 {
		return "not known yet"
	}
	return "about " + time.Duration(float64(left)/per*float64(time.Minute)).Round(time.Second).String()
}
