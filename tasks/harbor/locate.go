package harbor

import (
	"os"
	"path/filepath"
	"regexp"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/tasks/internal/document"
)

var _ task.Locator = Format{}

// places are the keys of a task whose values are written in [metadata.berth], and
// how they are called there.
var places = []struct {
	key *regexp.Regexp
	is  string
}{
	{regexp.MustCompile(`^stages\[\d+\]\.(verifiers|captures)`), "metadata.berth.$1"},
	{regexp.MustCompile(`^environment\.settings`), "metadata.berth.surface.settings"},
}

// Locate implements task.Locator.
func (Format) Locate(t *task.Task, p task.Problem) task.Problem {
	data, err := os.ReadFile(filepath.Join(t.Dir, fileConfig))
	if err != nil {
		return p
	}
	var doc document.Reader
	doc.TOML(data)
	for _, place := range places {
		if !place.key.MatchString(p.Key) {
			continue
		}
		key := document.Dotted(place.key.ReplaceAllString(p.Key, place.is))
		if at := doc.Position(key); at.Line > 0 {
			p.File, p.Line, p.Column, p.Key = fileConfig, at.Line, at.Column, key
		}
	}
	return p
}
