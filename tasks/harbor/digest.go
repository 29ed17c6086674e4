package harbor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	taskfolder "github.com/berth-eval/berth/tasks/internal/folder"
)

const fileGitignore = ".gitignore"

// defaultIgnores hold when a task has no .gitignore.
var defaultIgnores = []string{"__pycache__/", "*.pyc", ".DS_Store", "*.swp", "*.swo", "*~"}

// digest is the package digest of the format: SHA-256 over a line for each
// file, its path, a zero byte, the hex SHA-256 of its content and a newline,
// sorted by path. Which files count is decided by the task's .gitignore and by
// what never reaches a sandbox. Modes, folders and links to folders do not
// count; a link to a file counts as the file.
func (b *builder) digest(ctx context.Context) (string, error) {
	f := b.folder
	git, err := f.gitignore()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, n := range f.Below(taskfolder.Whole) {
		if !f.IsFile(n.Path) || git.file(n.Path) || b.ignored(&n) {
			continue
		}
		s, err := f.Sum(ctx, n.Path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s\x00%s\n", n.Path, s)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

func (f *folder) gitignore() (*ignore, error) {
	lines := defaultIgnores
	data, err := f.read(fileGitignore)
	switch {
	case err == nil:
		lines = strings.Split(string(data), "\n")
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	ig := &ignore{}
	for _, line := range lines {
		ig.add("", line)
	}
	return ig, nil
}

// contextDigest is over everything in a folder that an image is built from:
// names, permission bits, link targets and contents. What is in folders of exclude is
// left out.
func (f *folder) contextDigest(ctx context.Context, dir string, exclude ...string) (string, error) {
	h := sha256.New()
	for _, n := range f.Below(dir) {
		rel := strings.TrimPrefix(n.Path, dir+"/")
		if slices.ContainsFunc(exclude, func(x string) bool { return rel == x || strings.HasPrefix(rel, x+"/") }) {
			continue
		}
		switch {
		case n.Mode.IsDir():
			fmt.Fprintf(h, "d %o %s\x00\n", n.Mode.Perm(), rel)
		case n.Link != "":
			fmt.Fprintf(h, "l %s\x00%s\n", rel, n.Link)
		default:
			s, err := f.Sum(ctx, n.Path)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(h, "f %o %s\x00%s\n", n.Mode.Perm(), rel, s)
		}
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}
