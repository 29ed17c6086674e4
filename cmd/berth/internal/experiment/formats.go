package experiment

import (
	"slices"

	"github.com/berth-eval/berth/cmd/berth/internal/config"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/task"
)

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
