package harbor

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/berth-eval/berth/plugins/task"
	taskfolder "github.com/berth-eval/berth/tasks/internal/folder"
)

// Names in a task's folder.
const (
	fileConfig      = "task.toml"
	fileInstruction = "instruction.md"
	fileReadme      = "README.md"
	filePrior       = "trajectory.json"
	dirEnvironment  = "environment"
	dirTests        = "tests"
	dirSolution     = "solution"
	fileActions     = "actions.jsonl"
	dirSteps        = "steps"
	dirWorkdir      = "workdir"
)

// maxText bounds the files that are read whole: configuration, instructions
// and ignore files.
const maxText = 4 << 20

// parts are what belongs to a task. Everything else in its folder is ignored.
var parts = []string{fileConfig, fileInstruction, fileReadme, filePrior, dirEnvironment, dirTests, dirSolution, dirSteps}

// folder is the content of a task's folder.
type folder struct{ *taskfolder.Files }

func (f *folder) bad(file, summary, format string, args ...any) {
	f.Problems = append(f.Problems, task.Problem{
		File: file, Severity: task.Error, Summary: summary, Detail: fmt.Sprintf(format, args...),
	})
}

// unread reports a file that cannot be read.
func (f *folder) unread(file string, err error) {
	p, refused := taskfolder.Problem(err)
	if !refused {
		p = task.Problem{File: file, Severity: task.Error, Summary: "File cannot be read", Detail: err.Error() + "."}
	}
	f.Problems = append(f.Problems, p)
}

func (f *folder) warn(file, summary, format string, args ...any) {
	f.Problems = append(f.Problems, task.Problem{
		File: file, Severity: task.Warning, Summary: summary, Detail: fmt.Sprintf(format, args...),
	})
}

// read returns a file of at most maxText bytes, without a byte order mark.
func (f *folder) read(p string) ([]byte, error) {
	data, err := taskfolder.Read(f.Root, p, maxText)
	data, marked := taskfolder.Unmarked(p, data)
	if marked != nil && !bytes.HasPrefix(data, []byte("#!")) && !slices.Contains(f.Problems, *marked) {
		f.Problems = append(f.Problems, *marked)
	}
	return data, err
}
