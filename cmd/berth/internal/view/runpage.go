package view

import (
	"net/url"
	"path/filepath"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/control"
	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/report/page"
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

// maxFlights is how many attempts in progress are listed, since the events of each are
// read.
const maxFlights = 100

// maxOffered is how many cells the page suggests for the field that takes one.
const maxOffered = 200

// flights returns the first attempts in progress, and how many there are.
func (k *kept) flights() (first []flight, all int) {
	pilots := report.Pilots(k.Dir)
	for _, t := range k.Index.Trials {
		if !k.Index.UnderWay(t) {
			continue
		}
		if all++; all <= maxFlights {
			first = append(first, flight{t, k.Manifest.Cells[t.Cell].Key, report.Running(k.Dir, k.Index, t, pilots)})
		}
	}
	return first, all
}

// address is that of the page of a run.
func address(dir string) string { return "/run/" + url.PathEscape(filepath.Base(dir)) + "/" }

// runPage shows what a run does. It loads its numbers from reportPage.
func (s *Server) runPage(r *request) error {
	k, err := s.run(r.PathValue("run"))
	if err != nil {
		return err
	}
	sum := k.sum()
	data := map[string]any{
		"Summary": sum, "Name": filepath.Base(k.Dir), "Base": address(k.Dir), "Counts": counts(sum), "Torn": k.Index.Torn + k.Index.Damaged,
	}
	data["Limit"], data["LimitKnown"] = k.Manifest.Header.CostUSD, k.Manifest.Header.Imported == ""
	if k.Index.Writing() != nil {
		flights, all := k.flights()
		data["Live"], data["Flights"], data["All"], data["More"] = true, flights, all, max(0, all-len(flights))
		if left := sum.Outcomes[record.NotRun] - all; left >= 0 {
			per := rate(k.Index)
			data["Left"], data["Rate"], data["ETA"] = left, per, eta(per, sum.Outcomes[record.NotRun])
		}
		b := buttonsOf(r.Context(), k.Dir, address(k.Dir)+"control")
		data["Buttons"], data["Cells"] = b, k.Manifest.Cells[:min(len(k.Manifest.Cells), maxOffered)]
		if now := b.limit(control.CostUSD); now != nil { // another one may have been set
			data["Limit"], data["LimitKnown"] = now.Most, true
		}
	}
	if limit, ok := data["Limit"].(*float64); ok && limit != nil && *limit > 0 && sum.CostUSD != nil {
		data["Share"] = 100 * min(max(*sum.CostUSD / *limit, 0), 1)
	}
	return r.show("run", filepath.Base(k.Dir), data)
}

// reportPage has the numbers and charts of the report about a run.
func (s *Server) reportPage(r *request) error {
	k, err := s.run(r.PathValue("run"))
	if err != nil {
		return err
	}
	data := map[string]any{"Name": filepath.Base(k.Dir), "Base": address(k.Dir)}
	if data["Report"], err = k.report(); err != nil {
		data["Missing"] = err.Error()
	}
	return r.show("report", "Report of "+filepath.Base(k.Dir), data)
}

// reportOf computes what berth report --force writes.
func reportOf(k *numbers.Run, berth string) (*page.Report, error) {
	runs := []numbers.Run{*k}
	rules, err := numbers.RulesOf(runs)
	if err != nil {
		return nil, err
	}
	return page.New(runs, &page.Options{Berth: berth, Rules: rules, Force: true, Base: address(k.Dir)})
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

// rate is how many attempts ended in the last minutes, for each minute, of a run in
// progress.
func rate(x *store.Index) float64 {
	n, now := 0, time.Now()
	for _, t := range x.Trials {
		for i := range t.Attempts {
			if b := t.Attempts[i].Result; b != nil && now.Sub(b.End) < window {
				n++
			}
		}
	}
	return float64(n) / max(min(window, now.Sub(x.Writing().Time)), time.Second).Minutes()
}

// eta is when the trials that have no outcome yet will have one at a rate.
func eta(per float64, left int) string {
	if per <= 0 {
		return "not known yet"
	}
	return "about " + time.Duration(float64(left)/per*float64(time.Minute)).Round(time.Second).String()
}
