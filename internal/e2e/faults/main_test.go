package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-eval/berth/internal/e2e/programs"
)

// The tree, and what TestMain made for all tests.
var (
	tree string // the root of the module
	top  string // a short folder that everybody may look into
	bin  string // in it: berth, berth-sandboxd, plugins/
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "shepherd":
		os.Exit(shepherd())
	case "naive":
		os.Exit(naive())
	}
	os.Exit(func() int {
		if err := build(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(top)
		return m.Run()
	}())
}

// build makes the programs once for all tests.
func build() (err error) {
	if tree, err = filepath.Abs("../../.."); err != nil {
		return err
	}
	if top, err = os.MkdirTemp("/tmp", "bf"); err != nil { // short: sockets lie below it
		return err
	}
	bin = filepath.Join(top, "bin")
	if err = os.Chmod(top, 0o755); err == nil {
		err = programs.Build(tree, bin, "./agents/nop", "./agents/oracle", "./agents/minisweagent", "./environments/local", "./verifiers/script")
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(top))
	}
	return nil
}
