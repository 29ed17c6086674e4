package harbor

import (
	"embed"
	"io/fs"
	"path"

	"github.com/berth-eval/berth/plugins/task"
)

//go:embed sample
var sample embed.FS

var _ task.Sampler = Format{}

// Sample is a task to start from: any machine can run it.
func (Format) Sample() (string, []task.SampleFile, error) {
	var files []task.SampleFile
	root, err := fs.Sub(sample, "sample")
	if err != nil {
		return "", nil, err
	}
	err = fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(root, p)
		files = append(files, task.SampleFile{Path: p, Text: text, Executable: path.Ext(p) == ".sh"})
		return err
	})
	return "hello", files, err
}
