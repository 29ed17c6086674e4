package command

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	types "github.com/berth-eval/berth/cmd/berth/output"
)

// TestTheTerminusExample runs the example with the scripted model: a program
// that needs a terminal, a pager, and one that prints 50,000 lines.
func TestTheTerminusExample(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	dir := t.TempDir()
	r := berth(t, dir, "run", filepath.Join(tree.Root, "examples", "terminus"), "--json", "--require", "agent=terminus: passed = planned")
	r.want(t, 0)
	if a := answer[types.Run](t, r, "cli-run"); a.Summary.Planned != 3 {
		t.Errorf("summary: %+v", a.Summary)
	}
	lines := map[string]int{"berth/wizard": 10, "berth/pager": 130, "berth/long-output": 50000}
	show := answer[types.ShowRun](t, berth(t, dir, "show", "last", "--json"), "cli-show-run")
	for _, tr := range show.Trials {
		attempt := tr.Attempts[0].Dir
		checkTrajectory(t, attempt)
		cast, err := os.ReadFile(filepath.Join(attempt, "agent", "terminal.cast"))
		if err != nil {
			t.Error(err)
			continue
		}
		head, events, _ := bytes.Cut(bytes.TrimSpace(cast), []byte("\n"))
		var h struct{ Version, Width, Height int }
		if err = json.Unmarshal(head, &h); err != nil || h.Version != 2 || h.Width != 160 || h.Height != 40 {
			t.Errorf("%s: the recording begins with %s: %v", tr.Task, head, err)
		}
		shown := 0
		for line := range bytes.SplitSeq(events, []byte("\n")) {
			var e []any
			if err = json.Unmarshal(line, &e); err != nil || len(e) != 3 {
				t.Fatalf("%s: event %.80q of the recording: %v", tr.Task, line, err)
			}
			if text, ok := e[2].(string); ok && e[1] == "o" {
				shown += strings.Count(text, "\n")
			}
		}
		if shown < lines[tr.Task] {
			t.Errorf("%s: the recording has %d lines, want at least %d", tr.Task, shown, lines[tr.Task])
		}
		text := berth(t, dir, "show", "last", tr.ID[:16], "--trajectory")
		text.want(t, 0)
		if !strings.Contains(text.out, "→ task_complete") || strings.Contains(text.out, "\x1b") {
			t.Errorf("%s: the trajectory reads %q", tr.Task, text.out)
		}
	}
	berth(t, dir, "show", "last", "--trajectory").want(t, 2)
}
