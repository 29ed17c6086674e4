package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/core/cli/out"
)

// Command is the whole command line, for the reference that is made of it. It
// must not be executed.
func Command() *cobra.Command {
	none := func(string) (string, bool) { return "", false }
	return (&app{env: none, Printer: out.New(io.Discard, io.Discard, none)}).root()
}
