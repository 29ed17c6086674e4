package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/core/cli/answer"
	"github.com/berth-eval/berth/core/cli/show"
	"github.com/berth-eval/berth/core/store"
)

func (a *app) initCommand() *cobra.Command {
	var tasks string
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write an experiment file to start from",
		Long:  `Writes experiment.hcl into DIR (here without it). Nothing that exists is overwritten.`,
		Example: `  berth init                   then: berth plan
  berth init study --tasks ../tasks`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := experimentPath(args)
			format := "FORMAT"
			if len(a.formats) > 0 {
				format = a.formats[0].Name()
			}
			abs, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			if err = os.MkdirAll(abs, 0o755); err != nil {
				return err
			}
			file := filepath.Join(abs, "experiment.hcl")
			text := fmt.Sprintf(initText, quote(store.Name(filepath.Base(abs), 40)), quote(format), quote(tasks),
				defaultEnvironment, defaultAgent)
			out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("%s exists: remove it, or name another folder", show.Display(file))
			}
			if err != nil {
				return err
			}
			_, err = out.WriteString(text)
			if err = errors.Join(err, out.Close()); err != nil {
				return err
			}
			if done, err := a.Answer(answer.Init{Files: []string{file}}); done {
				return err
			}
			a.Printf("wrote %s\n", show.Display(file))
			if _, err := os.Stat(resolve(abs, tasks)); err != nil {
				a.Printf("there is no folder %s yet: put tasks there, or name another folder as path in the file\n", show.Display(resolve(abs, tasks)))
			}
			a.Printf("look at it:  berth plan %s\n", show.Display(file))
			return nil
		},
	}
	cmd.Flags().StringVar(&tasks, "tasks", "./tasks", "folder of the tasks, as the file names it")
	return cmd
}

// resolve is the folder that path means in a file of the folder base.
func resolve(base, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(base, path)
}

const initText = `# What is run: every agent on every task, as often as repeat says.
experiment %[1]s {
  datasets    = [dataset.tasks]
  environment = environment.%[4]s
  repeat      = 1

  # Every combination of the axes is a cell. Any further axis is free, and
  # readable as matrix.<axis> in every block.
  matrix {
    agent = [agent.%[5]s]
  }
}

dataset "tasks" {
  format = %[2]s
  path   = %[3]s
}

environment "%[4]s" {
  plugin = "%[4]s"
}

# Runs the reference solution of each task: every task must pass.
agent "%[5]s" {
  plugin = "%[5]s"
  oracle = true
}
`
