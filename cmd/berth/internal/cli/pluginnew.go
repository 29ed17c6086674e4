package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/newplugin"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/plugins"
)

func (a *app) pluginNewCommand() *cobra.Command {
	var o newplugin.Options
	cmd := &cobra.Command{
		Use:   "new DIR",
		Short: "Create a new plugin, in Go or Python",
		Long: `Creates a small plugin in DIR, which must be new or empty. The plugin gets the
name of the folder, and passes berth plugin test as it is.

A Python plugin gets a copy of the module berth_plugin, and needs grpcio and
protobuf. The go.mod of a Go plugin refers to the checkout of Berth in which
this program was built.`,
		Example: "  berth plugin new --kind verifier --lang python exact\n  berth plugin new --kind agent --lang go my-agent",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			abs, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			o.Dir = abs
			o.Checkout = checkout()
			files, program, err := newplugin.Write(o)
			if err != nil {
				return err
			}
			res := output.PluginNew{Files: files, Program: program, Next: nextSteps(&o, program)}
			if done, err := a.Answer(res); done || err != nil {
				return err
			}
			for _, f := range files {
				a.Printf("wrote %s\n", report.Display(f))
			}
			a.Printf("\nNext:\n")
			for _, line := range res.Next {
				a.Printf("  %s\n", line)
			}
			return nil
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.Language, "lang", "go", "`LANGUAGE`: "+strings.Join(newplugin.Languages, " or "))
	fs.StringVar(&o.Kind, "kind", "verifier", "`KIND` of plugin: "+strings.Join(newplugin.Kinds, ", "))
	return cmd
}

// nextSteps returns the commands that build the plugin, test it and make Berth
// find it.
func nextSteps(o *newplugin.Options, program string) []string {
	dir := report.Display(o.Dir)
	var steps []string
	if o.Language == "go" {
		steps = append(steps, fmt.Sprintf("cd %s && go mod tidy && go build -o %s . && cd -", dir, filepath.Base(program)))
	}
	return append(steps,
		"berth plugin test "+withDot(report.Display(program)),
		fmt.Sprintf("BERTH_PLUGIN_PATH=%s berth plugin info %s", o.Dir, strings.TrimPrefix(filepath.Base(program), plugins.ProgramPrefix)))
}

// withDot adds ./ to a relative path without a slash, so that a shell does not
// search PATH for it.
func withDot(path string) string {
	if filepath.IsAbs(path) || strings.HasPrefix(path, ".") {
		return path
	}
	return "./" + path
}

// checkout returns the source tree whose bin folder contains this program, or
// "".
func checkout() string {
	exe, err := os.Executable()
	if err == nil {
		exe, err = filepath.EvalSymlinks(exe)
	}
	if err != nil {
		return ""
	}
	root := filepath.Dir(filepath.Dir(exe))
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil || !strings.HasPrefix(string(mod), "module "+newplugin.Module+"\n") {
		return ""
	}
	return root
}
