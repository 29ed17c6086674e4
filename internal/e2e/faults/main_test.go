package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

const tags = "remote containers_image_openpgp exclude_graphdriver_btrfs" // as in the Makefile

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

// build makes the programs as scripts/build does, once for all tests.
func build() (err error) {
	if tree, err = filepath.Abs("../../.."); err != nil {
		return err
	}
	if err = watch(tree); err != nil {
		return err
	}
	if top, err = os.MkdirTemp("/tmp", "bf"); err != nil { // short: sockets lie below it
		return err
	}
	bin = filepath.Join(top, "bin")
	if err = errors.Join(os.Chmod(top, 0o755), os.MkdirAll(filepath.Join(bin, "plugins", "libexec"), 0o755)); err != nil {
		return err
	}
	for to, packages := range map[string][]string{
		"":                {"./cmd/berth", "./cmd/berth-sandboxd"},
		"plugins":         {"./agents/nop", "./agents/oracle", "./agents/minisweagent", "./environments/local", "./verifiers/script"},
		"plugins/libexec": {"./environments/local/local-init"},
	} {
		args := append([]string{"build", "-tags", tags, "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", filepath.Join(bin, to) + "/"}, packages...)
		cmd := exec.CommandContext(context.Background(), "go", args...)
		cmd.Dir, cmd.Env = tree, append(os.Environ(), "CGO_ENABLED=0")
		if out, buildErr := cmd.CombinedOutput(); buildErr != nil {
			return errors.Join(fmt.Errorf("build %q: %w\n%s", packages, buildErr, out), os.RemoveAll(top))
		}
	}
	return filepath.WalkDir(bin, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = os.Chmod(path, 0o755) //nolint:gosec // an ordinary user executes them, too
		}
		return err
	})
}

// watch looks at every folder of the tree, so that the go command, which keeps
// the results of tests, sees that a file that the binaries are made of changed.
func watch(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", ".cache", "bin", "runs"}, d.Name()):
			return fs.SkipDir
		case filepath.Ext(path) == ".go":
			_, err = os.Stat(path)
		}
		return err
	})
}
