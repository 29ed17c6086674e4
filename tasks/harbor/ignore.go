package harbor

import (
	"fmt"
	"path"
	"strings"

	"github.com/moby/patternmatcher"
)

// ignore is a list of gitignore lines, of one file or of several from the top
// down; the last line that matches decides.
type ignore struct {
	files, dirs []string // what the lines say of files, and of folders
	ofFiles     *patternmatcher.PatternMatcher
	ofDirs      *patternmatcher.PatternMatcher
}

// add takes one line of an ignore file in dir. It says the line in the
// language of patternmatcher, whose patterns are anchored at the top and match
// what is below a match.
func (g *ignore) add(dir, line string) error {
	line = trimLine(line)
	if line == "" || line[0] == '#' {
		return nil
	}
	negate := ""
	if line[0] == '!' {
		negate, line = "!", line[1:]
	}
	dirOnly := strings.HasSuffix(line, "/")
	line = strings.TrimSuffix(line, "/")
	anchored := strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	if line == "" {
		return nil
	}
	if !anchored {
		line = "**/" + line
	}
	if below, ok := strings.CutSuffix(line, "/**"); ok && dirOnly {
		line = below + "/*"
	}
	// A class is negated by "!" in an ignore file and by "^" in a pattern.
	line = strings.ReplaceAll(line, "[!", "[^")
	if dir != "" {
		line = path.Join(escape(dir), line)
	}
	m, err := patternmatcher.New([]string{line})
	if err == nil {
		_, err = m.MatchesOrParentMatches("x") // a pattern is compiled when it is first used
	}
	if err != nil {
		return fmt.Errorf("pattern %q: %w", line, err)
	}
	g.dirs = append(g.dirs, negate+line)
	if dirOnly {
		line += "/**"
	}
	g.files = append(g.files, negate+line)
	return nil
}

// trimLine drops the line's end and trailing spaces that are not escaped.
func trimLine(line string) string {
	line = strings.TrimSuffix(line, "\r")
	for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
		line = line[:len(line)-1]
	}
	return line
}

// escape makes a pattern that matches a path as it is.
func escape(p string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(p)
}

func (g *ignore) compile() (err error) {
	if g.ofFiles, err = patternmatcher.New(g.files); err != nil {
		return err
	}
	g.ofDirs, err = patternmatcher.New(g.dirs)
	return err
}

// file says whether the file at a slash-separated path is ignored. A line with
// "!" brings it back also when its folder is ignored.
func (g *ignore) file(p string) bool { return matches(g.ofFiles, p) }

// under says whether the file or folder at a path is ignored, by itself or
// because a folder above it is, which nothing brings back.
func (g *ignore) under(p string, isDir bool) bool {
	for i, c := range p {
		if c == '/' && matches(g.ofDirs, p[:i]) {
			return true
		}
	}
	if isDir {
		return matches(g.ofDirs, p)
	}
	return matches(g.ofFiles, p)
}

func matches(m *patternmatcher.PatternMatcher, p string) bool {
	ok, err := m.MatchesOrParentMatches(p)
	return err == nil && ok
}
