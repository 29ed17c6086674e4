package view

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/config"
	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/report/charts"
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
	Paces   []pace
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
	m.Paces = paces(k, m.Time)
	m.next = time.Now().Add(max(restLeast, restTimes*time.Since(m.Time)))
	k.at = m
	return m
}

// address is that of the page of a run.
func address(dir string) string { return "/run/" + url.PathEscape(filepath.Base(dir)) + "/" }

// runPage shows the numbers of a run and what it does.
func (s *Server) runPage(r *request) error {
	k, err := s.run(r.PathValue("run"))
	if err != nil {
		return err
	}
	sum := k.sum()
	data := map[string]any{
		"Run": k.Run, "Summary": sum, "Name": filepath.Base(k.Dir), "Base": address(k.Dir), "Busy": k.Index.Writing(),
		"Counts": counts(sum), "Torn": k.Index.Torn + k.Index.Damaged,
	}
	if k.Index.Writing() != nil {
		data["Live"] = address(k.Dir) + "changes?state=" + digest(s.runs.state(k.Dir, k.stamp))
	}
	data["Limit"], data["LimitKnown"] = config.CostLimit(filepath.Join(k.Dir, k.Manifest.Header.Folder()), k.Manifest.Header.Variables)
	if k.Index.Writing() != nil {
		b := buttonsOf(r.Context(), k.Dir, address(k.Dir)+"control")
		data["Buttons"], data["Cells"] = b, k.Manifest.Cells[:min(len(k.Manifest.Cells), maxOffered)]
		if now := b.Cost(); now != nil { // another one may have been set
			data["Limit"], data["LimitKnown"] = now.Most, true
		}
	}
	if limit, ok := data["Limit"].(*float64); ok && limit != nil && *limit > 0 && sum.CostUSD != nil {
		data["Share"] = 100 * min(max(*sum.CostUSD / *limit, 0), 1)
	}
	if t, tableErr := k.board(); tableErr != nil {
		data["NoTable"] = tableErr.Error()
	} else {
		data["Table"] = t
	}
	if k.Index.Writing() != nil {
		m := k.moment()
		data["Now"], data["More"] = m, max(0, m.All-len(m.Flights))
		if left := sum.Outcomes[record.NotRun] - m.All; left >= 0 {
			data["Left"], data["Rate"], data["ETA"] = left, rate(k.Index), eta(k.Index, sum.Outcomes[record.NotRun])
		}
	}
	return r.show("run", filepath.Base(k.Dir), data)
}

// board is the leaderboard, with the same numbers as show --by cell.
func board(k *numbers.Run) (*output.Table, error) {
	all := []numbers.Run{*k}
	rules, err := numbers.RulesOf(all)
	if err != nil {
		return nil, err
	}
	j, err := numbers.Join(all)
	if err != nil {
		return nil, err
	}
	return numbers.Table(j, &numbers.Wanted{By: []string{"cell"}, Seed: 1, Rules: rules, Force: true, Going: k.Index.Writing() != nil})
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

// charts serves the charts of the report about a run, with their rows.
func (s *Server) charts(w http.ResponseWriter, r *http.Request) {
	k, err := s.run(r.PathValue("run"))
	if err == nil {
		var b []byte
		var rules numbers.Rules
		all := []numbers.Run{k.Run}
		if rules, err = numbers.RulesOf(all); err == nil {
			b, err = page.Charts(all, &page.Options{Seed: 1, Berth: s.o.Berth, Rules: rules, Force: true})
		}
		if err == nil {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(b)
			return
		}
	}
	http.Error(w, err.Error(), http.StatusNotFound)
}

// maxPoints is how many times a chart over time has.
const maxPoints = 120

// progress serves a chart of the outcomes over time, with its rows.
func (s *Server) progress(w http.ResponseWriter, r *http.Request) {
	k, err := s.run(r.PathValue("run"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	names, rows := overTime(k.Index)
	out := map[string]any{"charts": []any{}, "tables": map[string]any{"progress": rows}}
	if len(rows) > 0 {
		var colors []string
		for _, o := range names {
			colors = append(colors, page.Color(record.Outcome(o)))
		}
		out["charts"] = []any{map[string]any{"id": "progress", "spec": charts.Progress(names, colors), "data": "progress"}}
	}
	b, err := json.Marshal(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b)
}

// overTime counts the outcomes of the accepted attempts that had ended by each of
// some times, and names them.
func overTime(x *store.Index) (names []string, rows []map[string]any) {
	type ended struct {
		at      time.Time
		outcome record.Outcome
	}
	var all []ended
	for _, t := range x.Trials {
		if a := t.Accepted(); a != nil && !a.Result.End.IsZero() {
			all = append(all, ended{a.Result.End, a.Result.Outcome})
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	slices.SortFunc(all, func(a, b ended) int { return a.at.Compare(b.at) })
	n := map[record.Outcome]int{}
	for _, e := range all {
		n[e.outcome] = 0
	}
	for _, o := range record.Outcomes {
		if _, occurs := n[o]; occurs {
			names = append(names, string(o))
		}
	}
	step := (len(all) + maxPoints - 1) / maxPoints
	for i, e := range all {
		n[e.outcome]++
		if i%step == 0 || i == len(all)-1 {
			for _, o := range names {
				rows = append(rows, map[string]any{"time": e.at.UnixMilli(), "outcome": o, "trials": n[record.Outcome(o)]})
			}
		}
	}
	return names, rows
}
