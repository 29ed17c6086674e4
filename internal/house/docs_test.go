package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/berth-eval/berth/internal/testlevel"
)

// link finds [text](target) outside code; its group is the target without the
// fragment.
var link = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)\s]*)?\)`)

// brokenLinks lists the relative targets in a Markdown file that do not exist.
func brokenLinks(f file) []string {
	var broken []string
	for _, m := range link.FindAllStringSubmatch(f.text, -1) {
		target := m[1]
		if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, filepath.Dir(f.path), target)); err != nil {
			broken = append(broken, target)
		}
	}
	return broken
}

func TestDocumentsLinkToWhatExists(t *testing.T) {
	t.Parallel()
	for _, f := range files(t, ".") {
		if filepath.Ext(f.path) != ".md" {
			continue
		}
		for _, target := range brokenLinks(f) {
			t.Errorf("%s links to %s, which does not exist", f.path, target)
		}
	}
}

// A newcomer types the commands of the README: each `make` command in it, and
// in the other documents of the root, must be a target of the Makefile.
func TestMakeCommandsInDocumentsExist(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	testlevel.Must(t, err)
	command := regexp.MustCompile("(?m)(?:^    |`)make ([a-z]+)")
	seen := 0
	for _, f := range files(t, ".") {
		if filepath.Ext(f.path) != ".md" {
			continue
		}
		for _, m := range command.FindAllStringSubmatch(f.text, -1) {
			seen++
			if !regexp.MustCompile(`(?m)^` + m[1] + `:`).Match(makefile) {
				t.Errorf("%s says make %s, which the Makefile does not have", f.path, m[1])
			}
		}
	}
	if seen < 2 {
		t.Errorf("found %d make commands in the documents, want at least run and test", seen)
	}
}
