package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/trajectory"
)

func TestATrajectoryIsPrintedForReading(t *testing.T) {
	t.Parallel()
	n := func(i int64) *int64 { return &i }
	long := trajectory.Text(strings.Repeat("line\n", 100))
	steps := []record.Step{
		{Step: trajectory.Step{StepID: 1, Source: trajectory.User, Message: trajectory.Text("Do it.")}},
		{Step: trajectory.Step{
			StepID: 2, Source: trajectory.Model, Message: trajectory.Text("a\nb"), ReasoningContent: "hm", ModelName: "m",
			Metrics:     &trajectory.Metrics{PromptTokens: n(7), CompletionTokens: n(3)},
			ToolCalls:   []trajectory.ToolCall{{Name: "type", Arguments: json.RawMessage(`{"keystrokes":"ls\n","duration":0.5}`)}},
			Observation: &trajectory.Observation{Results: []trajectory.Result{{Content: &long, Subagents: []trajectory.SubagentRef{{TrajectoryPath: "agent/x.json"}}}}},
		}},
	}
	shown := func(all bool) string {
		var b bytes.Buffer
		Trajectory(&terminal.Printer{Out: &b}, steps, all)
		return b.String()
	}
	want := "1 user\n    Do it.\n\n2 agent  m, 7 tokens in, 3 out\n  ~ hm\n    a\n    b\n  → type  duration: 0.5  keystrokes: ls\n  │ line\n"
	got := shown(false)
	if !strings.HasPrefix(got, want) || !strings.Contains(got, fmt.Sprintf("  │ … %d lines: --all shows them\n", 100-maxShown)) || !strings.Contains(got, "see agent/x.json") {
		t.Errorf("got:\n%s\nwant it to begin:\n%s", got, want)
	}
	if got = shown(true); strings.Count(got, "│ line\n") != 100 {
		t.Errorf("with all: %d lines", strings.Count(got, "│ line\n"))
	}
}

// Each session counts its steps from 1: where there are several, it is said
// which one it is.
func TestStepsOfSeveralStagesAreToldApart(t *testing.T) {
	t.Parallel()
	step := func(stage, role string, id int64) record.Step {
		return record.Step{Stage: stage, Role: role, Step: trajectory.Step{StepID: id, Source: trajectory.Model, Message: trajectory.Text("x")}}
	}
	steps := []record.Step{step("one", "agent", 1), step("one", "agent", 2), step("one", "user", 1), step("two", "agent", 1)}
	for name, show := range map[string]func(*terminal.Printer, []record.Step, bool){"for reading": Trajectory, "of an attempt": stepsText} {
		var b bytes.Buffer
		show(&terminal.Printer{Out: &b}, steps, true)
		rest := b.String()
		for _, next := range []string{"stage one, agent", "1 agent", "2 agent", "stage one, user", "1 agent", "stage two, agent", "1 agent"} {
			_, after, found := strings.Cut(rest, next)
			if rest = after; !found {
				t.Errorf("%s: no %q at its place:\n%s", name, next, b.String())
				break
			}
		}
		b.Reset()
		show(&terminal.Printer{Out: &b}, steps[:2], true)
		if strings.Contains(b.String(), "stage one") {
			t.Errorf("%s: one stage is named, too:\n%s", name, b.String())
		}
	}
}
