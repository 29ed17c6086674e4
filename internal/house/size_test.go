package house

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/berth-eval/berth/internal/testlevel"
)

// maxFileLines is the largest length of a file, also of tests. Packages have no
// limit.
const maxFileLines = 500

func lines(s string) int { return strings.Count(s, "\n") }

func TestNoFileIsTooLong(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		for _, name := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
			data, err := os.ReadFile(filepath.Join(p.Dir, name))
			testlevel.Must(t, err)
			f := file{path: p.rel() + "/" + name, text: string(data)}
			if f.generated() {
				continue
			}
			if n := lines(f.text); n > maxFileLines {
				t.Errorf("%s has %d lines, more than %d", f.path, n, maxFileLines)
			}
		}
	}
}

// nolint matches a directive; its groups are the linters and the reason.
var nolint = regexp.MustCompile(`//\s*nolint(:[a-z0-9,]+)?(.*)$`)

// unexplained returns the fault of the nolint directive in line, or "".
func unexplained(line string) string {
	m := nolint.FindStringSubmatch(line)
	switch {
	case m == nil:
		return ""
	case m[1] == "":
		return "names no linter"
	case !strings.HasPrefix(m[2], " // ") || len(m[2]) < len(" // why"):
		return "gives no reason"
	}
	return ""
}

func TestLintIsSwitchedOffOnlyWithAReason(t *testing.T) {
	t.Parallel()
	for _, f := range files(t, ".") {
		if !strings.HasSuffix(f.path, ".go") || f.generated() || strings.HasPrefix(f.path, "internal/house/") {
			continue
		}
		for i, line := range strings.Split(f.text, "\n") {
			if why := unexplained(line); why != "" {
				t.Errorf("%s:%d: nolint %s: write //nolint:linter // reason", f.path, i+1, why)
			}
		}
	}
}

// Open work belongs in an issue, not in a comment.
func TestNothingIsLeftToDoInAComment(t *testing.T) {
	t.Parallel()
	todo := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)
	for _, f := range files(t, ".") {
		for i, line := range strings.Split(f.text, "\n") {
			if w := todo.FindString(line); w != "" && !strings.Contains(line, "mktemp") {
				t.Errorf("%s:%d: %s: %s", f.path, i+1, w, strings.TrimSpace(line))
			}
		}
	}
}

// Every package has a comment that says what it is for.
func TestEveryPackageHasAParagraph(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if len(p.GoFiles) == 0 || strings.Contains(p.rel(), "/proto/") {
			continue
		}
		if doc := packageComment(t, p); len(doc) < 80 {
			t.Errorf("%s: the package comment is %q: say what the package is for and what must not be in it", p.rel(), doc)
		}
	}
}

// packageComment returns the text above the package clauses of p.
func packageComment(t *testing.T, p pkg) string {
	t.Helper()
	var doc strings.Builder
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
		testlevel.Must(t, err)
		doc.WriteString(f.Doc.Text())
	}
	return doc.String()
}
