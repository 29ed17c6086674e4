package harbor

import (
	"fmt"
	"path"
	"strings"

	"github.com/moby/patternmatcher"
)

// ignore is a list of gitignore lines, of one file or of several from the top
// down; the last line that matches decides. It is no exact gitignore: a line
// with "!" brings a file back also when its folder is ignored, as the format's
// own reader does.
type ignore struct {
	patterns []string
	m        *patternmatcher.PatternMatcher
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
	if dirOnly {
		if below, ok := strings.CutSuffix(line, "/**"); ok {
			line = below + "/*"
		}
		line += "/**"
	}
	// A class is negated by "!" in an ignore file and by "^" in a pattern.
	line = strings.ReplaceAll(line, "[!", "[^")
	if dir != "" {
		line = path.Join(escape(dir), line)
	}
	g.patterns = append(g.patterns, negate+line)
	if _, err := patternmatcher.New([]string{line}); err != nil {
		return fmt.Errorf("pattern %q: %w", line, err)
	}
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
	g.m, err = patternmatcher.New(g.patterns)
	return err
}

// match says whether the file at a slash-separated path is ignored.
func (g *ignore) match(p string) bool {
	ok, err := g.m.MatchesOrParentMatches(p)
	return err == nil && ok
}
