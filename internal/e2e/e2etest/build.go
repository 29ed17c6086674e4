// Package e2etest is the shared code of the end-to-end tests: it builds Berth's
// programs, runs them like a user, finds container engines, and writes and
// reads files. It must not know what is tested.
package e2etest

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// tags are those of the Makefile: some plugins cannot be built without them.
const tags = "remote containers_image_openpgp exclude_graphdriver_btrfs"

// Build builds into bin what scripts/build makes: berth, berth-sandboxd, and in
// plugins/ the packages named, such as "./agents/nop". Any user may run them.
// tree is the root of the module; the result of a test that used it is not
// cached when a file of the tree has changed.
func Build(tree, bin string, plugins ...string) error {
	if err := watch(tree); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(bin, "plugins", "libexec"), 0o755); err != nil {
		return err
	}
	for to, packages := range map[string][]string{
		"":                {"./cmd/berth", "./cmd/berth-sandboxd"},
		"plugins":         plugins,
		"plugins/libexec": {"./environments/local/local-init"},
	} {
		args := append([]string{"build", "-tags", tags, "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", filepath.Join(bin, to) + "/"}, packages...)
		cmd := exec.CommandContext(context.Background(), "go", args...)
		cmd.Dir, cmd.Env = tree, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %q: %w\n%s", packages, err, out)
		}
	}
	return filepath.WalkDir(bin, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = os.Chmod(path, 0o755) //nolint:gosec // ordinary users run them, too
		}
		return err
	})
}

// watch tells `go test` which files the result depends on.
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
