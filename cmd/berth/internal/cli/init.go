package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/task"
)

func (a *app) initCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Create an experiment and a task to start from",
		Long: `Creates experiment.hcl in DIR (default: the current folder). If the folder of
the tasks is missing or empty, it also creates a small task. Both can be run as
they are, and say in comments what to edit. Existing files are not overwritten.`,
		Example: `  berth init                   then: berth run
  berth init study`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			abs, err := filepath.Abs(experimentPath(args))
			if err != nil {
				return err
			}
			files, err := a.begin(abs)
			if err != nil {
				return err
			}
			if done, err := a.Answer(output.Init{Files: files}); done {
				return err
			}
			for _, f := range files {
				a.Printf("wrote %s\n", report.Display(f))
			}
			// Without an argument every command takes the experiment of its folder.
			where := " " + report.Display(abs)
			if len(args) == 0 {
				where = ""
			}
			a.Printf("check it:  berth plan%s\nrun it:    berth run%s\n", where, where)
			return nil
		},
	}
	return cmd
}

// begin writes an experiment into dir, and a task if the folder of its tasks is
// empty. It returns the created files.
func (a *app) begin(dir string) ([]string, error) {
	format := "FORMAT"
	if len(a.formats) > 0 {
		format = a.formats[0].Name()
	}
	const own = "experiment.hcl"
	others, err := fs.Glob(os.DirFS(dir), "*.hcl") // its only error is a bad pattern
	if err == nil && len(others) > 0 && !slices.Contains(others, own) {
		return nil, fmt.Errorf("%s exists, and all *.hcl files of a folder are one experiment: choose another folder", report.Display(filepath.Join(dir, others[0])))
	}
	file := filepath.Join(dir, own)
	text := fmt.Sprintf(initText, quote(store.Name(filepath.Base(dir), 40)), quote(format), defaultEnvironment, defaultAgent)
	if err = writeNew(file, []byte(text), 0o644); err != nil {
		return nil, err
	}
	files := []string{file}
	folder := filepath.Join(dir, "tasks")
	there, err := os.ReadDir(folder)
	if len(there) > 0 || (err != nil && !errors.Is(err, fs.ErrNotExist)) || len(a.formats) == 0 {
		return files, err
	}
	sampler, ok := a.formats[0].(task.Sampler)
	if !ok {
		return files, nil
	}
	name, sample, err := sampler.Sample()
	if err != nil {
		return files, err
	}
	for _, f := range sample {
		mode := fs.FileMode(0o644)
		if f.Executable {
			mode = 0o755
		}
		file = filepath.Join(folder, name, filepath.FromSlash(f.Path))
		if err = writeNew(file, f.Text, mode); err != nil {
			return files, err
		}
		files = append(files, file)
	}
	return files, nil
}

// writeNew writes a file that must not exist, in a folder that may not exist.
func writeNew(file string, text []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists: remove it, or choose another folder", report.Display(file))
	}
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return errors.Join(err, out.Close())
}

const initText = `# What is run: every agent on every task, as often as repeat says. All blocks and
# attributes: docs/reference/experiment.md
experiment %[1]s {
  datasets    = [dataset.tasks]
  environment = environment.%[3]s
  repeat      = 1 # raise it: one try of an agent says little

  # Every combination of the axes is a cell. Any further axis is free, and
  # can be read as matrix.<axis> in every block.
  matrix {
    agent = [agent.%[4]s] # add your own; berth plugin list names them
  }
}

dataset "tasks" {
  format = %[2]s
  path   = "./tasks"
}

environment "%[3]s" {
  plugin = "%[3]s"
}

# Runs the reference solution of each task: every task must pass.
agent "%[4]s" {
  plugin = "%[4]s"
  oracle = true
}
`
