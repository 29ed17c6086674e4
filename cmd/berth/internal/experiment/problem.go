package experiment

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-eval/berth/cmd/berth/internal/config"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/plugins"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/suggest"
	"github.com/berth-eval/berth/plugins/task"
)

// Text is a problem of a plan on one line, without its severity. A warning about
// the whole plan names no task and no cell.
func Text(p *plan.Plan, q plan.Problem) string {
	if len(q.Cells) == len(p.Experiment.Cells) {
		q.Cells = nil
	}
	if n := len(q.Tasks); q.Severity == plan.Warning && q.Cells == nil && n == len(p.Tasks) && n > 1 {
		q.Tasks, q.Dataset = nil, ""
	}
	var b strings.Builder
	if len(q.Tasks) > 0 {
		fmt.Fprintf(&b, "task %s: ", some(q.Tasks))
	}
	if len(q.Cells) > 0 && q.Cells[0] != "" {
		fmt.Fprintf(&b, "cell %s: ", some(q.Cells))
	}
	if len(q.Tasks) == 0 && q.Dataset != "" {
		fmt.Fprintf(&b, "dataset %s: ", q.Dataset)
	}
	b.WriteString(environment.Problem{Summary: q.Summary, Detail: q.Detail}.String())
	return b.String()
}

// some names up to three of a list.
func some(names []string) string {
	if len(names) <= 3 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
}

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

// warnOfUsers adds a warning about tasks in which a simulated user may send
// messages, for cells without one. Their results will be marked as modified.
func (l *Loaded) warnOfUsers() {
	silent := plan.Problem{
		Severity: plan.Warning, Summary: "messages of a simulated user are left out, since the experiment has none",
		Detail: "Only the first turn runs, and the results are marked as modified. Add a block user to run the whole task.",
	}
	for i := range l.Plan.Trials {
		t := &l.Plan.Trials[i]
		c, task := l.Experiment.Cells[t.Cell], l.Plan.Tasks[t.Place].Task
		if task == nil || task.Interaction == nil || task.Interaction.MaxFollowUps == 0 || c.User != nil {
			continue
		}
		if !slices.Contains(silent.Tasks, task.Name) {
			silent.Tasks = append(silent.Tasks, task.Name)
		}
		if !slices.Contains(silent.Cells, c.Key) {
			silent.Cells = append(silent.Cells, c.Key)
		}
	}
	if len(silent.Tasks) > 0 {
		l.Plan.Problems = append(l.Plan.Problems, silent)
	}
}

// readSecrets reports the secrets that cannot be read, of every cell and of the
// verifiers that its tasks use. One cell comes after the other.
func (l *Loaded) readSecrets() {
	seen := map[string]bool{}
	for _, c := range l.Experiment.Cells {
		var datasets []string
		for i := range c.Datasets {
			datasets = append(datasets, c.Datasets[i].Label)
		}
		for _, d := range l.Experiment.CheckSecrets(c, l.verifiers(datasets...)...) {
			if s := d.String(); !seen[s] {
				seen[s] = true
				l.Secrets = append(l.Secrets, d)
			}
		}
	}
}

// settingsOf returns a new value of the settings of a format; nil: it has none.
func settingsOf(formats []task.Format, name string) any {
	at := slices.IndexFunc(formats, func(f task.Format) bool { return f.Name() == name })
	if at < 0 {
		return nil
	}
	if c, ok := formats[at].(task.Configurable); ok {
		return c.Config()
	}
	return nil
}

// formatSchema returns the schema of the settings of a format.
func formatSchema(formats []task.Format, name string) (pluginconfig.Schema, error) {
	if into := settingsOf(formats, name); into != nil {
		return pluginconfig.SchemaOf(into)
	}
	return pluginconfig.Schema{}, nil
}

// askFormats lets each format validate the settings of its datasets, each once.
func (l *Loaded) askFormats(formats []task.Format) {
	var asked []string
	for _, c := range l.Experiment.Cells {
		for i := range c.Datasets {
			d := &c.Datasets[i]
			into := settingsOf(formats, d.Format)
			if into == nil || slices.Contains(asked, d.Label) {
				continue // a dataset is the same in all cells
			}
			asked = append(asked, d.Label)
			l.Diagnostics = append(l.Diagnostics, l.Experiment.ConfigProblems(config.KindFormat, d.Label, pluginconfig.Validate(d.Config.JSON(), into))...)
		}
	}
}
