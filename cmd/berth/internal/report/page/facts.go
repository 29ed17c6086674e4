package page

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// maxUsed is how many plugins, bundles and images of a run are listed.
const maxUsed = 200

// factsOf says what a run was.
func factsOf(r *numbers.Run) runFacts {
	h := &r.Manifest.Header
	f := runFacts{
		Name: r.Name(), ID: h.Run, Experiment: h.Experiment, Berth: h.Berth, Imported: h.Imported,
		Created: h.Created.UTC().Format(time.RFC3339), Planned: len(r.Manifest.Trials),
	}
	for _, name := range slices.Sorted(maps.Keys(h.Files)) {
		f.Files = append(f.Files, [2]string{name, h.Files[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(h.Variables)) {
		f.Variables = append(f.Variables, [2]string{name, string(h.Variables[name])})
	}
	used := map[[2]string]bool{}
	for _, t := range r.Index.Trials {
		if a := t.Accepted(); a != nil {
			for what, digest := range a.Result.Digests {
				used[[2]string{what, digest}] = true
			}
		}
	}
	all := slices.SortedFunc(maps.Keys(used), func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	f.Used = all[:min(len(all), maxUsed)]
	if more := len(all) - len(f.Used); more > 0 {
		f.Used = append(f.Used, [2]string{strconv.Itoa(more) + " more", ""})
	}
	return f
}

// maxFindings is how many kinds of findings are listed.
const maxFindings = 100

// partial is the part of a result.json that the page needs in addition to the
// journal.
type partial struct {
	Reasons  []string `json:"integrity_reasons"`
	Findings []struct {
		Code     string `json:"code"`
		Severity string `json:"severity"`
		Text     string `json:"text"`
	} `json:"findings"`
}

// found counts the findings of the accepted attempts, and the reasons for their
// integrity, which only their result.json has.
func (m *Report) found() {
	findings, reasons := map[[2]string]*finding{}, map[string]*finding{}
	for i := range m.joined.Trials {
		t := &m.joined.Trials[i]
		a := t.Accepted()
		if a == nil {
			continue
		}
		var p partial
		b, err := untrusted.Read(report.Folder(t.Run.Dir, t.TrialState, a.Number), record.ResultFile, 256<<20)
		if err != nil || json.Unmarshal(b, &p) != nil {
			continue
		}
		seen := map[[2]string]bool{}
		for i := range p.Findings {
			f := &p.Findings[i]
			k := [2]string{f.Code, f.Severity}
			if findings[k] == nil {
				findings[k] = &finding{Code: f.Code, Severity: f.Severity, Text: cut(f.Text)}
			}
			if !seen[k] {
				seen[k] = true
				findings[k].Trials++
			}
		}
		for _, r := range p.Reasons {
			if r = cut(r); reasons[r] == nil {
				reasons[r] = &finding{Text: r}
			}
			reasons[r].Trials++
		}
	}
	m.Findings = most(slices.Collect(maps.Values(findings)))
	m.Reasons = most(slices.Collect(maps.Values(reasons)))
}

// most sorts findings by how many trials have them.
func most(all []*finding) (sorted []finding) {
	slices.SortFunc(all, func(a, b *finding) int {
		return cmp.Or(b.Trials-a.Trials, cmp.Compare(a.Code, b.Code), cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Text, b.Text))
	})
	for _, f := range all[:min(len(all), maxFindings)] {
		sorted = append(sorted, *f)
	}
	return sorted
}

// cut shortens a text that others wrote.
func cut(s string) string {
	const limit = 300
	if r := []rune(s); len(r) > limit {
		return string(r[:limit]) + "…"
	}
	return s
}
