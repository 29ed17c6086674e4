package view

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/report/page"
	"github.com/berth-eval/berth/cmd/berth/internal/selection"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/cmd/berth/summary"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
)

// count is how many trials have an outcome.
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

// maxFlights is how many attempts in progress are listed, since the events of each
// are read.
const maxFlights = 100

// address is that of the page of a run.
func address(dir string) string { return "/run/" + url.PathEscape(filepath.Base(dir)) + "/" }

// runPage shows the numbers of a run and what it does.
func (s *Server) runPage(r *request) error {
	k, err := s.run(r.PathValue("run"))
	if err != nil {
		return err
	}
	sum := summary.Of(k.Manifest, k.Index)
	data := map[string]any{
		"Run": k.Run, "Summary": sum, "Name": filepath.Base(k.Dir), "Base": address(k.Dir), "Busy": k.Index.Writing(),
		"Counts": counts(sum), "Torn": k.Index.Torn + k.Index.Damaged,
	}
	if t, tableErr := board(k); tableErr != nil {
		data["NoTable"] = tableErr.Error()
	} else {
		data["Table"] = t
	}
	var flights []flight
	more, pilots := 0, report.Pilots(k.Dir)
	for _, t := range k.Index.Trials {
		if !k.Index.UnderWay(t) {
			continue
		}
		if len(flights) == maxFlights {
			more++
			continue
		}
		if running := report.Running(k.Dir, k.Index, t, pilots); running != nil {
			flights = append(flights, flight{t, k.Manifest.Cells[t.Cell].Key, running})
		}
	}
	data["Flights"], data["MoreFlights"] = flights, more
	if left := sum.Outcomes[record.NotRun] - len(flights) - more; len(flights) > 0 && left >= 0 {
		data["Left"], data["Rate"], data["ETA"] = left, rate(k.Index), eta(k.Index, sum.Outcomes[record.NotRun])
	}
	return r.show("run", filepath.Base(k.Dir), data)
}

// board is the leaderboard, with the same numbers as show --by cell.
func board(k *kept) (*output.Table, error) {
	all := []numbers.Run{k.Run}
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

// row is a trial in a table.
type row struct {
	Trial    *store.TrialState
	Cell     string
	Accepted *store.AttemptState
	Attempt  int // that the link is about; 0: none
	Outcome  string
	Spend    store.Spend
}

// rowsPage is how many trials one page lists.
const rowsPage = 200

// rowsOf describes trials.
func rowsOf(k *kept, trials []*store.TrialState) []row {
	rows := make([]row, 0, len(trials))
	for _, t := range trials {
		w := row{Trial: t, Cell: k.Manifest.Cells[t.Cell].Key, Accepted: t.Accepted(), Outcome: string(t.Outcome())}
		if k.Index.UnderWay(t) {
			w.Outcome = "running"
		}
		for i := range t.Attempts {
			w.Spend.Add(t.Attempts[i].Spend())
		}
		if n := len(t.Attempts); w.Accepted != nil && w.Outcome != "running" {
			w.Attempt = w.Accepted.Number
		} else if n > 0 {
			w.Attempt = t.Attempts[n-1].Number
		}
		rows = append(rows, w)
	}
	return rows
}

// trialsPage lists trials, selected and sorted as the address says.
func (s *Server) trialsPage(r *request) error {
	k, err := s.run(r.PathValue("run"))
	if err != nil {
		return err
	}
	f := report.Filter{Expression: r.FormValue("select"), Sort: r.FormValue("sort")}
	data := map[string]any{"Name": filepath.Base(k.Dir), "Base": address(k.Dir), "Select": f.Expression, "Sort": f.Sort, "Sorts": report.Sorts}
	if err = f.Check(); err == nil {
		err = f.Choose(k.Dir, k.Manifest, k.Index)
	}
	var trials []*store.TrialState
	if err != nil {
		data["Wrong"] = err.Error()
	} else {
		trials = report.Select(k.Manifest, k.Index, &f)
	}
	from := int(min(r.number("from"), int64(len(trials))))
	to := min(from+rowsPage, len(trials))
	data["Rows"], data["From"], data["To"], data["All"] = rowsOf(k, trials[from:to]), from+1, to, len(trials)
	if to < len(trials) {
		data["Next"] = r.with("from", strconv.Itoa(to))
	}
	if from > 0 {
		data["Previous"] = r.with("from", strconv.Itoa(max(0, from-rowsPage)))
	}
	fields := make([]string, len(selection.Fields))
	for i := range selection.Fields {
		fields[i] = selection.Fields[i].Name
	}
	data["Fields"] = fields
	return r.show("trials", "Trials of "+filepath.Base(k.Dir), data)
}

// taskPage shows a task and all its trials. Its instruction is the first message
// to the agent in a record.
func (s *Server) taskPage(r *request) error {
	k, err := s.run(r.PathValue("run"))
	if err != nil {
		return err
	}
	name := r.FormValue("name")
	var trials []*store.TrialState
	for _, t := range k.Index.Trials {
		if t.Task == name {
			trials = append(trials, t)
		}
	}
	if len(trials) == 0 {
		return fmt.Errorf("%w: the run has no task %q", errMissing, name)
	}
	data := map[string]any{"Name": filepath.Base(k.Dir), "Base": address(k.Dir), "Task": trials[0], "All": len(trials)}
	data["Rows"] = rowsOf(k, trials[:min(len(trials), 1000)])
	for _, t := range trials[:min(len(trials), 20)] {
		for i := range t.Attempts {
			lines, _, readErr := readPart(report.Folder(k.Dir, t, t.Attempts[i].Number), record.TurnsFile, 0, 1)
			var turn record.Turn
			if readErr == nil && len(lines) > 0 && json.Unmarshal(lines[0].b, &turn) == nil && turn.Text != "" {
				data["Instruction"] = partOf(turn.Text, maxText)
				return r.show("task", "Task "+name, data)
			}
		}
	}
	return r.show("task", "Task "+name, data)
}
