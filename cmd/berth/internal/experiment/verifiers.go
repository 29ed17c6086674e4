package experiment

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-eval/berth/cmd/berth/internal/config"
	"github.com/berth-eval/berth/plugins"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/suggest"
)

// verifiers returns the names of verifiers that the tasks of some datasets use;
// those of all if none is named.
func (l *Loaded) verifiers(datasets ...string) []string {
	var names []string
	for i := range l.Plan.Tasks {
		t := l.Plan.Tasks[i].Task
		if t == nil || len(datasets) > 0 && !slices.Contains(datasets, l.Plan.Tasks[i].Dataset) {
			continue
		}
		for s := range t.Stages {
			for _, u := range t.Stages[s].Verifiers {
				if !slices.Contains(names, u.Name) {
					names = append(names, u.Name)
				}
			}
		}
	}
	return names
}

// checkVerifiers reports the verifier blocks that no task names: their tasks
// would be graded by other settings than the experiment says. It is an error
// unless tasks that are left out or invalid may name them.
func (l *Loaded) checkVerifiers() {
	named := l.verifiers()
	if len(named) == 0 {
		return // no task could be read
	}
	severity, more := config.Error, " Give the block one of these labels, or remove it."
	if !l.wholeDatasets() {
		severity, more = config.Warning, " Tasks that are left out or invalid may have others."
	}
	for _, label := range slices.Sorted(maps.Keys(l.Experiment.Cells[0].Verifiers)) {
		if slices.Contains(named, label) {
			continue
		}
		hint := ""
		if best := suggest.Word(label, named); best != "" {
			hint = fmt.Sprintf(" Did you mean %q?", best)
		}
		ds := l.Experiment.Problems(string(plugins.KindVerifier), label, []pluginconfig.Problem{{
			Summary: fmt.Sprintf("No task names a verifier %q", label),
			Detail:  fmt.Sprintf("The block has no effect.%s The tasks name %s.%s", hint, strings.Join(named, ", "), more),
		}})
		for i := range ds {
			ds[i].Severity = severity
		}
		l.Diagnostics = append(l.Diagnostics, ds...)
	}
}

// wholeDatasets reports whether every task of the datasets was read.
func (l *Loaded) wholeDatasets() bool {
	for i := range l.Plan.Tasks {
		if l.Plan.Tasks[i].Task == nil {
			return false
		}
	}
	for _, c := range l.Experiment.Cells {
		for i := range c.Datasets {
			if d := &c.Datasets[i]; len(d.Include)+len(d.Exclude)+d.Limit > 0 {
				return false
			}
		}
	}
	return true
}
