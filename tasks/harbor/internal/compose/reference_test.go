package compose

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// The reference names every key of a service that is carried out, ignored or
// refused with a reason, each in its place.
func TestReferenceHasTheKeysOfServices(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/reference/task.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Several containers\n")
	served, refused, _ := strings.Cut(section, "these are refused:\n")
	var without string // effect
	for line := range strings.Lines(served) {
		if strings.Contains(line, "| no effect;") {
			without = line
		}
	}
	for _, key := range allowed["services.*"] {
		if !strings.Contains(served, "`"+key+"`") {
			t.Errorf("the page does not name %q", key)
		}
		if _, no := ignored[key]; no != strings.Contains(without, "`"+key+"`") && key != "networks" {
			t.Errorf("%q: the reader says that it has no effect: %t, the page says otherwise", key, no)
		}
	}
	for key := range dangerous {
		if !strings.Contains(refused, "`"+key+"`") {
			t.Errorf("the page does not say that %q is refused", key)
		}
	}
	for quoted := range strings.SplitSeq(refused, "`") {
		if _, bad := dangerous[quoted]; !bad && slices.Contains(allowed["services.*"], quoted) {
			t.Errorf("the page says that %q is refused", quoted)
		}
	}
}
