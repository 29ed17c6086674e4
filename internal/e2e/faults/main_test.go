package faults

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/berth-eval/berth/internal/e2e/programs"
	"github.com/berth-eval/berth/plugins/sandbox/sandboxtest"
)

// The tree, and what needPrograms made for all tests.
var (
	tree = sync.OnceValue(func() string { // the root of the module
		dir, err := filepath.Abs("../../..")
		if err != nil {
			panic(err)
		}
		return dir
	})
	top string // a short folder that everybody may look into
	bin string // in it: berth, berth-sandboxd, plugins/
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "shepherd":
		os.Exit(shepherd())
	case "naive":
		os.Exit(naive(os.Args[1:]))
	}
	code := sandboxtest.Main(m, sandboxtest.Inside{}) // in a sandbox that a test made this is not a test either
	if top != "" {
		_ = os.RemoveAll(top)
	}
	os.Exit(code)
}

// needPrograms makes the programs, once for all tests.
var needPrograms = sync.OnceValue(build)

func build() (err error) {
	if top, err = os.MkdirTemp("/tmp", "bf"); err != nil { // short: sockets lie below it
		return err
	}
	bin = filepath.Join(top, "bin")
	if err = os.Chmod(top, 0o755); err == nil {
		err = programs.Build(tree(), bin, "./agents/nop", "./agents/oracle", "./agents/minisweagent", "./environments/local", "./verifiers/script")
	}
	if err != nil {
		return err
	}
	return nil
}
