package harbor

import (
	"slices"
	"strings"
	"testing"
)

// What Harbor 0.25 leaves out, which was compared on 1,200 random folders with
// these lines and their like; in a .gitignore (file) and in an .harborignore
// (under).
func TestIgnoreLines(t *testing.T) {
	t.Parallel()
	all := strings.Fields("a b.txt a.log d/a d/b.txt d/e/a d/e/b.txt e/d/a x[y ä.txt")
	for _, tt := range []struct{ lines, file, under string }{
		{"a", "a d/a d/e/a e/d/a", "a d/a d/e/a e/d/a"},
		{"/a", "a", "a"},
		{"d", "d/a d/b.txt d/e/a d/e/b.txt e/d/a", "d/a d/b.txt d/e/a d/e/b.txt e/d/a"},
		{"/d/", "d/a d/b.txt d/e/a d/e/b.txt", "d/a d/b.txt d/e/a d/e/b.txt"},
		{"a/", "", ""},
		{"d/e", "d/e/a d/e/b.txt", "d/e/a d/e/b.txt"},
		{"**/e", "d/e/a d/e/b.txt e/d/a", "d/e/a d/e/b.txt e/d/a"},
		{"d/**", "d/a d/b.txt d/e/a d/e/b.txt", "d/a d/b.txt d/e/a d/e/b.txt"},
		{"d/**/", "d/a d/b.txt d/e/a d/e/b.txt", "d/a d/b.txt d/e/a d/e/b.txt"},
		{"d/**/a", "d/a d/e/a", "d/a d/e/a"},
		{"d/*", "d/a d/b.txt", "d/a d/b.txt d/e/a d/e/b.txt"},
		{"/d/*.txt", "d/b.txt", "d/b.txt"},
		{"?.txt", "b.txt d/b.txt d/e/b.txt ä.txt", "b.txt d/b.txt d/e/b.txt ä.txt"},
		{"[!b].txt", "ä.txt", "ä.txt"},
		{"[a-c].*", "b.txt a.log d/b.txt d/e/b.txt", "b.txt a.log d/b.txt d/e/b.txt"},
		{`x\[y`, "x[y", "x[y"},
		{"x[[]y", "x[y", "x[y"},
		{"x[y", "", ""},
		{"# a", "", ""},
		{"a   ", "a d/a d/e/a e/d/a", "a d/a d/e/a e/d/a"},
		{"*.txt\n!b.txt", "ä.txt", "ä.txt"},
		{"d\n!d/e/a", "d/a d/b.txt d/e/b.txt e/d/a", "d/a d/b.txt d/e/a d/e/b.txt e/d/a"},
		{"!a\na", "a d/a d/e/a e/d/a", "a d/a d/e/a e/d/a"},
	} {
		g := &ignore{}
		for line := range strings.SplitSeq(tt.lines, "\n") {
			g.add("", line)
		}
		var file, under []string
		for _, p := range all {
			if g.file(p) {
				file = append(file, p)
			}
			if g.under(p, false) {
				under = append(under, p)
			}
		}
		if want := strings.Fields(tt.file); !slices.Equal(file, want) {
			t.Errorf("file, %q: got %q, want %q", tt.lines, file, want)
		}
		if want := strings.Fields(tt.under); !slices.Equal(under, want) {
			t.Errorf("under, %q: got %q, want %q", tt.lines, under, want)
		}
	}
}

func TestIgnoreFileOfAFolderCountsBelowIt(t *testing.T) {
	t.Parallel()
	g := &ignore{}
	g.add("tests/a+b", "/x")
	g.add("tests/a+b", "y")
	for p, want := range map[string]bool{
		"tests/a+b/x": true, "tests/a+b/c/x": false, "tests/a+b/c/y": true, "tests/y": false, "tests/aab/x": false,
	} {
		if g.under(p, false) != want {
			t.Errorf("%s: want %v", p, want)
		}
	}
}

func FuzzIgnoreLine(f *testing.F) {
	for _, line := range []string{"a", "[!", `\`, "**/**", "!/", "[]-]", "a**b/"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		g := &ignore{}
		g.add("d", line)
		if g.under("outside", false) || g.file("outside/x") {
			t.Errorf("%q in d ignores what is not in d", line)
		}
	})
}
