package image

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// patterns are those of a .dockerignore or of --exclude. The last one that
// matches decides, and a leading ! includes the file again.
type patterns []string

// readIgnore reads the .dockerignore that belongs to a Dockerfile.
func readIgnore(root *os.Root, dockerfile string) (all patterns, err error) {
	text, err := read(root, dockerfile+".dockerignore")
	if errors.Is(err, fs.ErrNotExist) {
		text, err = read(root, ".dockerignore")
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := bufio.NewScanner(bytes.NewReader(text))
	for s.Scan() {
		line := strings.TrimSpace(s.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		body, back := strings.CutPrefix(line, "!")
		if body = clean(strings.TrimSpace(body)); body == "." {
			continue
		}
		if !doublestar.ValidatePattern(body) {
			return nil, fmt.Errorf(".dockerignore: %q is not a pattern", line)
		}
		if back {
			body = "!" + body
		}
		all = append(all, body)
	}
	return all, s.Err()
}

// exceptions reports whether one of the patterns begins with !.
func (ps patterns) exceptions() bool {
	return slices.ContainsFunc(ps, func(p string) bool { return strings.HasPrefix(p, "!") })
}

// match reports whether name, or a folder above it, is left out.
func (ps patterns) match(name string) bool {
	out := false
	for _, pattern := range ps {
		body, back := strings.CutPrefix(pattern, "!")
		for p := name; p != "." && p != "/"; p = path.Dir(p) {
			if ok, err := doublestar.Match(body, p); err == nil && ok {
				out = !back
				break
			}
		}
	}
	return out
}
