package cli

import (
	"runtime"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/core/cli/answer"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  berth version\n  berth version --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := answer.Version{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
			if done, err := a.Answer(v); done {
				return err
			}
			a.Printf("berth %s (%s, %s/%s)\n", v.Version, v.Go, v.OS, v.Arch)
			return nil
		},
	}
}
