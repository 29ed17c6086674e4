package gauntlet

import (
	"os"
	"path"
	"regexp"

	"github.com/berth-eval/berth/plugins/task"
	"github.com/berth-eval/berth/tasks/internal/document"
)

var _ task.Locator = Format{}

// verifierSettings is where a task has what its entry has in eval_config.
var verifierSettings = regexp.MustCompile(`^stages\[0\]\.verifiers\[\d\]\.settings`)

// Locate implements task.Locator.
func (Format) Locate(t *task.Task, p task.Problem) task.Problem {
	root, err := os.OpenRoot(t.Dir)
	if err != nil {
		return p
	}
	defer root.Close()
	l := readList(root, path.Dir(t.File), true)
	it := l.find(path.Base(t.File))
	if it == nil {
		return p
	}
	key := it.at.Path
	if verifierSettings.MatchString(p.Key) {
		key = verifierSettings.ReplaceAllString(document.Dotted(p.Key), key+".eval_config")
	}
	at := l.Position(key)
	p.File, p.Line, p.Column, p.Key = l.File, at.Line, at.Column, key
	return p
}
