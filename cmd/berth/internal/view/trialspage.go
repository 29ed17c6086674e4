package view

import (
	"cmp"
	"path/filepath"
	"strconv"

	"github.com/berth-eval/berth/cmd/berth/internal/notes"
	"github.com/berth-eval/berth/cmd/berth/internal/selection"
	"github.com/berth-eval/berth/core/store"
)

// row is a trial in a table.
type row struct {
	Trial    *store.TrialState
	Cell     string
	Accepted *store.AttemptState
	Attempt  int // that the link is about; 0: none
	Outcome  string
	Spend    store.Spend
	Labels   []string // that readers gave the attempt that the link is about
}

// rowsPage is how many trials one page lists.
const rowsPage = 200

// rowsOf describes trials. readers may be nil.
func rowsOf(k *kept, trials []*store.TrialState, readers *notes.Notes) []row {
	rows := make([]row, 0, len(trials))
	for _, t := range trials {
		cell := &k.Manifest.Cells[t.Cell]
		w := row{Trial: t, Cell: cmp.Or(cell.Key, cell.Agent), Accepted: t.Accepted(), Outcome: string(t.Outcome())}
		if k.Index.UnderWay(t) {
			w.Outcome = "running"
		}
		w.Spend, _ = t.Spend()
		if n := len(t.Attempts); w.Accepted != nil && w.Outcome != "running" {
			w.Attempt = w.Accepted.Number
		} else if n > 0 {
			w.Attempt = t.Attempts[n-1].Number
		}
		w.Labels = readers.Labels(t.ID, w.Attempt)
		rows = append(rows, w)
	}
	return rows
}

// trialsPage lists trials, selected as the address says.
func (s *Server) trialsPage(r *request) error {
	k, err := s.run(r.PathValue("run"))
	if err != nil {
		return err
	}
	data := map[string]any{"Name": filepath.Base(k.Dir), "Base": address(k.Dir), "Select": r.FormValue("select")}
	var trials []*store.TrialState
	e, err := selection.Of(r.FormValue("select"), k.Dir, k.Manifest)
	if err == nil {
		trials, err = e.Trials(k.Manifest, k.Index)
	}
	if err != nil {
		data["Wrong"] = err.Error()
	}
	from := int(min(r.number("from"), int64(len(trials))))
	to := min(from+rowsPage, len(trials))
	readers, err := notes.Read(k.Dir)
	if err != nil {
		data["NoNotes"] = err.Error()
	}
	data["Rows"], data["From"], data["To"], data["All"] = rowsOf(k, trials[from:to], readers), from+1, to, len(trials)
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
