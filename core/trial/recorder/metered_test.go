package recorder_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/recorder"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// stepLine is a line of steps.jsonl. what is "user", "agent" with maybe the id
// of the response, "own" (an agent's step with metrics of its own), or "none"
// (one without a request).
func stepLine(second int, stage string, turn int, what string) string {
	id, more := "", ""
	switch kind, of, _ := strings.Cut(what, " "); kind {
	case "agent":
		id = of
	case "own":
		what, more = "agent", `,"metrics":{"prompt_tokens":7,"completion_tokens":7,"cost_usd":7,"extra":{"kept":true}}`
	case "none":
		what, more = "agent", `,"llm_call_count":0`
	}
	if id != "" {
		what, more = "agent", `,"extra":{"response_id":"`+id+`"}`
	}
	return fmt.Sprintf(`{"time":"2026-01-01T00:00:%02dZ","role":"agent","stage":%q,"turn":%d,"step":{"step_id":1,"source":%q,"message":"m"%s}}`, second, stage, turn, what, more)
}

// replyLine is a line of exchanges.jsonl with n input and one output token.
func replyLine(second, n int, more string) string {
	return fmt.Sprintf(`{"time":"2026-01-01T00:00:%02d.5Z","kind":"generate","role":"agent","status":200,"usage":{"input":%d,"cached":1,"output":1},"cost_usd":0.5%s}`, second, n, more)
}

func TestStepsHaveTheUsageThatWasMeasured(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		steps   []string
		replies []string
		want    string // input tokens of each step; 7: its own
		rest    string // input tokens that are in no step
	}{
		{"one after the other", []string{"user", "agent", "none", "own"}, []string{replyLine(1, 10, ""), replyLine(2, 20, "")}, "- 10 0 20", ""},
		{"an answer more than steps", []string{"user", "own", "agent"}, []string{replyLine(1, 10, ""), replyLine(2, 20, ""), replyLine(3, 30, "")}, "- 7 -", "53"},
		{"an answer that was cut off and is in no step", []string{"user", "agent"}, []string{replyLine(1, 10, ""), replyLine(2, 20, `,"broken":"client"`)}, "- 10", "20"},
		{"an answer that was cut off and is a step", []string{"user", "agent", "agent"}, []string{replyLine(1, 10, ""), replyLine(2, 20, `,"broken":"client"`)}, "- 10 20", ""},
		{
			"by id, beside those of a sub-agent",
			[]string{"user", "agent a", "agent c"},
			[]string{replyLine(1, 10, `,"response_id":"a"`), replyLine(2, 20, `,"response_id":"b"`), replyLine(3, 30, `,"response_id":"c"`)},
			"- 10 30", "20",
		},
		{"by id, and the rest in order", []string{"user", "agent", "agent a"}, []string{replyLine(1, 10, `,"response_id":"a"`), replyLine(2, 20, "")}, "- 20 10", ""},
		{"an id that is not known", []string{"user", "agent x"}, []string{replyLine(1, 10, `,"response_id":"a"`)}, "- 10", ""},
		{"others' requests and counts of tokens", []string{"user", "agent"}, []string{
			replyLine(1, 10, ""), strings.Replace(replyLine(2, 20, ""), `"agent"`, `"judge"`, 1), strings.Replace(replyLine(2, 20, ""), "generate", "count", 1),
			`{"time":"2026-01-01T00:00:03Z","kind":"generate","role":"agent","status":503}`, `{"time":`,
		}, "- 10", ""},
		{"no request is known", []string{"user", "own"}, nil, "- 7", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var lines []string
			for _, s := range tt.steps {
				lines = append(lines, stepLine(0, "s", 1, s))
			}
			got := trajectoryOf(t, dir, lines, tt.replies)
			if have, rest := inputs(got), restOf(t, got); have != tt.want || rest != tt.rest {
				t.Errorf("steps have %q and %q is in none; want %q and %q", have, rest, tt.want, tt.rest)
			}
		})
	}
}

// The requests of a turn belong to the steps of that turn.
func TestStepsHaveTheUsageOfTheirTurn(t *testing.T) {
	t.Parallel()
	steps := []string{
		stepLine(0, "one", 1, "user"), stepLine(2, "one", 1, "agent"), stepLine(10, "one", 2, "user"), stepLine(12, "one", 2, "agent"),
		stepLine(20, "two", 1, "user"), stepLine(22, "two", 1, "own"),
	}
	replies := []string{replyLine(1, 10, ""), replyLine(11, 20, ""), replyLine(12, 30, ""), replyLine(21, 40, "")}
	got := trajectoryOf(t, t.TempDir(), steps, replies)
	if have := inputs(got); have != "- 10 - - - 40" {
		t.Errorf("steps have %q", have)
	}
	if m := got.Steps[5].Metrics; *m.CostUSD != 0.5 || *m.CachedTokens != 1 || string(m.Extra) == "" {
		t.Errorf("metrics %+v", m)
	}
}

func trajectoryOf(t *testing.T, dir string, steps, replies []string) *trajectory.Trajectory {
	t.Helper()
	used := []record.Usage{{Role: "agent"}}
	for file, lines := range map[string][]string{record.StepsFile: steps, record.ExchangesFile: replies} {
		path := filepath.Join(dir, file)
		testlevel.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		testlevel.Must(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	}
	for _, line := range replies {
		var x struct {
			Role, Kind string
			Usage      struct{ Input, Output int64 }
		}
		if json.Unmarshal([]byte(line), &x) == nil && x.Role == "agent" && x.Kind == "generate" {
			used[0].InputTokens, used[0].OutputTokens = used[0].InputTokens+x.Usage.Input, used[0].OutputTokens+x.Usage.Output
		}
	}
	if replies == nil {
		used = nil
	}
	b, err := newScribe(&journal{}, nil).Trajectory(record.Phase{}, dir, trajectory.Agent{Name: "a", Version: "1"}, recorder.Whole{Used: used})
	testlevel.Must(t, err)
	got, problems := trajectory.Parse(b)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return got
}

// inputs lists the input tokens of the steps; "-" is none, and 0 a step without
// a request.
func inputs(tr *trajectory.Trajectory) string {
	var out []string
	for _, s := range tr.Steps {
		if s.Metrics == nil && s.LLMCallCount != nil {
			out = append(out, fmt.Sprint(*s.LLMCallCount))
			continue
		}
		if s.Metrics == nil || s.Metrics.PromptTokens == nil {
			out = append(out, "-")
			continue
		}
		out = append(out, fmt.Sprint(*s.Metrics.PromptTokens))
	}
	return strings.Join(out, " ")
}

func restOf(t *testing.T, tr *trajectory.Trajectory) string {
	t.Helper()
	var extra struct {
		Rest *struct {
			Input int64 `json:"prompt_tokens"`
		} `json:"in_no_step"`
	}
	if raw := tr.FinalMetrics.Extra; raw != nil {
		testlevel.Must(t, json.Unmarshal(raw, &extra))
	}
	if extra.Rest == nil {
		return ""
	}
	return fmt.Sprint(extra.Rest.Input)
}
