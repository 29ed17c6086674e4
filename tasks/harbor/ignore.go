package harbor

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// ignore is a list of gitignore lines, of one file or of several from the top
// down; the last line that matches decides.
//
// Digests depend on it, so it agrees with the format's own tool, which reads
// the lines as git does but for three points: "a/**" also ignores the folder a,
// so that nothing below it can be brought back; "a/**/" means "a/"; and in a
// .gitignore "a/*" does not match anything deeper. The libraries that we tried
// (sabhiram/go-gitignore, go-git, moby/patternmatcher) differ from git in
// classes, anchors, or in what "!" brings back.
type ignore struct{ rules []rule }

// rule is one line.
type rule struct {
	negate  bool
	dirOnly bool
	shallow bool           // it ends with "/*"
	path    *regexp.Regexp // matches a whole path
	inside  *regexp.Regexp // of a line that ends with "/**": the folder before it; or nil
}

// add takes one line of an ignore file in dir; an empty dir is the top. A line
// that is malformed matches nothing.
func (g *ignore) add(dir, line string) {
	line = trimLine(line)
	if line == "" || line[0] == '#' {
		return
	}
	r := rule{}
	if line[0] == '!' {
		r.negate, line = true, line[1:]
	}
	r.dirOnly = strings.HasSuffix(line, "/")
	line = strings.TrimSuffix(line, "/")
	anchored := strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	if line == "" {
		return
	}
	if !anchored {
		line = "**/" + line
	}
	if r.dirOnly {
		line = strings.TrimSuffix(line, "/**")
	}
	r.shallow = anchored && !r.dirOnly && (line == "*" || strings.HasSuffix(line, "/*"))
	prefix := ""
	if dir != "" {
		prefix = regexp.QuoteMeta(dir + "/")
	}
	r.path = pattern(prefix, line)
	if base, ok := strings.CutSuffix(line, "/**"); ok {
		r.inside = pattern(prefix, base)
	}
	if r.path != nil {
		g.rules = append(g.rules, r)
	}
}

// trimLine drops the line's end and trailing spaces that are not escaped.
func trimLine(line string) string {
	line = strings.TrimSuffix(line, "\r")
	for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
		line = line[:len(line)-1]
	}
	return line
}

// pattern makes an expression of a glob whose segments "**" stand for any
// number of folders; nil when the glob is malformed.
func pattern(prefix, glob string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString("^" + prefix)
	segments := strings.Split(glob, "/")
	for i, s := range segments {
		last := i == len(segments)-1
		switch {
		case s == "**" && last:
			b.WriteString("(?s:.+)")
			continue
		case s == "**":
			b.WriteString("(?:(?s:.*)/)?")
			continue
		}
		if !segment(&b, s) {
			return nil
		}
		if !last {
			b.WriteByte('/')
		}
	}
	re, err := regexp.Compile(b.String() + "$")
	if err != nil {
		return nil
	}
	return re
}

// segment writes what matches one name, and says whether it is well-formed.
func segment(b *strings.Builder, s string) bool {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '*':
			b.WriteString("[^/]*")
		case '?':
			b.WriteString("[^/]")
		case '[':
			n := class(b, s[i+1:])
			if n == 0 {
				return false
			}
			i += n
		case '\\':
			i++
			if i == len(s) {
				return false
			}
			b.WriteString(regexp.QuoteMeta(s[i : i+1]))
		default:
			n := 1 + strings.IndexAny(s[i+1:]+"*", `*?[\`) // as far as nothing is special
			b.WriteString(regexp.QuoteMeta(s[i : i+n]))
			i += n - 1
		}
	}
	return true
}

// class writes a class whose text begins after "[", and returns how long it is
// with its "]"; 0 means that it is not closed.
func class(b *strings.Builder, s string) int {
	body, negate := strings.CutPrefix(s, "!")
	if !negate {
		body, negate = strings.CutPrefix(s, "^")
	}
	var members strings.Builder
	escaped := false
	for i, c := range body {
		switch {
		case escaped:
			escaped = false
			fmt.Fprintf(&members, `\x{%x}`, c)
		case c == ']' && i > 0:
			b.WriteString("[")
			if negate {
				b.WriteString("^/")
			}
			b.WriteString(members.String() + "]")
			return len(s) - len(body) + i + 1
		case c == '\\':
			escaped = true
		case c == '-':
			members.WriteByte('-')
		default:
			fmt.Fprintf(&members, `\x{%x}`, c)
		}
	}
	return 0
}

func (r *rule) matches(p string, isDir bool) bool {
	if r.path.MatchString(p) && (isDir || !r.dirOnly) {
		return true
	}
	return isDir && r.inside != nil && r.inside.MatchString(p)
}

// file says whether the file at a slash-separated path is ignored. A line
// counts when it matches the file or a folder above it, so that a line with
// "!" brings a file back also when its folder is ignored.
func (g *ignore) file(p string) bool {
	for _, r := range slices.Backward(g.rules) {
		hit := r.matches(p, false)
		for i, c := range p {
			hit = hit || (c == '/' && !r.shallow && r.matches(p[:i], true))
		}
		if hit {
			return !r.negate
		}
	}
	return false
}

// under says whether the file or folder at a path is ignored, by itself or
// because a folder above it is, which nothing brings back.
func (g *ignore) under(p string, isDir bool) bool {
	for i, c := range p {
		if c == '/' && g.one(p[:i], true) {
			return true
		}
	}
	return g.one(p, isDir)
}

func (g *ignore) one(p string, isDir bool) bool {
	for _, r := range slices.Backward(g.rules) {
		if r.matches(p, isDir) {
			return !r.negate
		}
	}
	return false
}
