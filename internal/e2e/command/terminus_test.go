package command

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	types "github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/internal/e2e/e2etest"
	"github.com/berth-eval/berth/internal/testlevel"
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

const editorReplies = `replies:
  - when: {turn: 0}
    text: '{"analysis": "", "plan": "Open the file.", "commands": [{"keystrokes": "vi /app/colours.txt\n", "duration": 1}]}'
  - when: {last: "(?m)^the sea is blue, the sand is grey"}
    text: '{"analysis": "", "plan": "Done.", "commands": [], "task_complete": true}'
  - when: {last: "the sea is red"}
    text: '{"analysis": "", "plan": "Change a word in each line.", "commands": [
      {"keystrokes": "gg0/red\n", "duration": 0.3}, {"keystrokes": "cwblue", "duration": 0.3}, {"keystrokes": "Escape", "duration": 1.2},
      {"keystrokes": "/white\n", "duration": 0.3}, {"keystrokes": "cwgrey", "duration": 0.3}, {"keystrokes": "Escape", "duration": 1.2},
      {"keystrokes": ":wq\n", "duration": 0.5},
      {"keystrokes": "echo $(cat /app/colours.txt); [ \"$(cat /app/colours.txt)\" = \"the sea is blue, the sand is grey\" ] && touch /app/done\n", "duration": 0.5}]}'
  - when: {last: "say again"}
    text: '{"analysis": "", "plan": "", "commands": [], "task_complete": true}'
  - when: {last: ""}
    text: '{"analysis": "", "plan": "Wait.", "commands": [{"keystrokes": "", "duration": 1}]}'
`

// An editor uses the whole screen, and keys that are not text.
func TestTerminusUsesAnEditor(t *testing.T) {
	t.Parallel()
	tree.NeedsSandbox(t)
	testlevel.Program(t, "vi", "vim-tiny")
	dir := t.TempDir()
	task(t, filepath.Join(dir, "tasks"), "editor", "touch /app/done")
	e2etest.Write(t, dir, map[string]string{
		"tasks/editor/instruction.md":          "Edit colours.txt with vi: the sea is blue, and the sand is grey.\n",
		"tasks/editor/environment/Dockerfile":  "FROM debian:bookworm-slim\nWORKDIR /app\nCOPY colours.txt /app/\n",
		"tasks/editor/environment/colours.txt": "the sea is red, the sand is white\n",
		"replies.yaml":                         editorReplies,
	})
	experiment(t, dir, "agent.terminus", "  model = model.m\n")
	hcl := filepath.Join(dir, "experiment.hcl")
	b, err := os.ReadFile(hcl)
	e2etest.Must(t, err)
	e2etest.Write(t, dir, map[string]string{"experiment.hcl": string(b) + `agent "terminus" {
  plugin = "terminus"
  config {
    max_turns = 40
  }
}
model "m" {
  provider = "script"
  script   = "replies.yaml"
}
`})
	r := berth(t, dir, "run", "--json", "--require", "passed = planned")
	r.want(t, 0)
	show := answer[types.ShowRun](t, berth(t, dir, "show", "last", "--json"), "cli-show-run")
	cast, err := os.ReadFile(filepath.Join(show.Trials[0].Attempts[0].Dir, "agent", "terminal.cast"))
	if err != nil || !bytes.Contains(cast, []byte("[?1049h")) {
		t.Errorf("no program took the whole screen: %v", err)
	}
	checkTrajectory(t, show.Trials[0].Attempts[0].Dir)
}
