// Package e2etest is the shared code of the end-to-end tests: it builds Berth's
// programs, runs them like a user, finds container engines, and writes and
// reads files. It must not know what is tested.
package e2etest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// tags are those of the Makefile.
const tags = "grpcnotrace"

// Build copies into bin what scripts/build makes: berth, berth-sandboxd, and in
// plugins/ those that are named, such as "./agents/nop" (berth-plugin-nop). A
// package below internal/, which scripts/build leaves out, is built. Any user may
// run them. tree is the root of the module.
func Build(tree, bin string, plugins ...string) error {
	if err := errors.Join(os.MkdirAll(filepath.Join(bin, "plugins"), 0o755), built(tree)); err != nil {
		return err
	}
	var named []string
	for _, p := range plugins {
		if !strings.HasPrefix(p, "./internal/") {
			named = append(named, filepath.Base(p))
			continue
		}
		cmd := exec.CommandContext(context.Background(), "go", "build", "-tags", tags, "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", Plugin(bin, filepath.Base(p)), p)
		cmd.Dir, cmd.Env = tree, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %q: %w\n%s", p, err, out)
		}
	}
	return copyPrograms(tree, bin, named)
}

// copyPrograms copies berth, what each sandbox needs, and some plugins from the tree
// into bin, where any user may run them.
func copyPrograms(tree, bin string, plugins []string) error {
	if err := os.MkdirAll(filepath.Join(bin, "plugins", "libexec"), 0o755); err != nil {
		return err
	}
	programs := []string{"berth", "berth-sandboxd", "plugins/libexec/local-init"}
	for _, p := range plugins {
		programs = append(programs, "plugins/berth-plugin-"+p)
	}
	for _, name := range programs {
		text, err := os.ReadFile(filepath.Join(tree, "bin", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(bin, name), text, 0o600)
		}
		if err != nil {
			return fmt.Errorf("copy %s: %w", name, err)
		}
	}
	return filepath.WalkDir(bin, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = os.Chmod(path, 0o755) //nolint:gosec // ordinary users run them, too
		}
		return err
	})
}

// built runs scripts/build, which links a program only if it is out of date.
func built(tree string) error {
	cmd := exec.CommandContext(context.Background(), filepath.Join(tree, "scripts", "build"))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("scripts/build: %w\n%s", err, out)
	}
	return nil
}

// Plugin returns the path of a plugin's program below bin.
func Plugin(bin, name string) string { return filepath.Join(bin, "plugins", "berth-plugin-"+name) }

// Watch makes the results of the tests depend on the tree, so that `go test` does
// not take them from its cache when a source of the programs has changed. Call it
// in a test: `go test` does not see what TestMain opens before the first one.
func Watch(t *testing.T, tree string) {
	t.Helper()
	watched.Do(func() {
		Must(t, filepath.WalkDir(tree, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && slices.Contains([]string{".git", ".cache", "bin", "runs"}, d.Name()):
				return fs.SkipDir
			case filepath.Ext(path) == ".go":
				_, err = os.Stat(path)
			}
			return err
		}))
	})
}

var watched sync.Once // all tests of a package use one tree
