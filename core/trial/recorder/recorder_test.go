package recorder_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/trial/limits"
	"github.com/berth-eval/berth/core/trial/recorder"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/trajectory"
	"github.com/berth-eval/berth/plugins/verifier"
)

// journal keeps lines in memory, and fails when it is told.
type journal struct {
	mu    sync.Mutex
	files map[string][]string
	err   error
}

func (j *journal) Append(file string, v any) error {
	b, err := json.Marshal(v)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.files == nil {
		j.files = map[string][]string{}
	}
	j.files[file] = append(j.files[file], string(b))
	return errors.Join(err, j.err)
}

func newScribe(j *journal, live func(record.Event)) *recorder.Recorder {
	return recorder.New(j, func() time.Time { return time.Unix(1, 0).UTC() }, live)
}

func TestFindingsAreBoundedButNeverTheSevere(t *testing.T) {
	t.Parallel()
	j := &journal{}
	s := newScribe(j, nil)
	at := record.Phase{Name: record.PhaseVerify, Stage: "s"}
	for range limits.Findings + 10 {
		s.Note(at, "odd", "again")
	}
	s.Exposed(at, "left_running", "sleep")
	all := s.All()
	if len(all) != limits.Findings+2 || all[limits.Findings].Severity != verifier.Exposed || !strings.Contains(all[len(all)-1].Text, "10 further") {
		t.Errorf("%d findings, the last two %+v", len(all), all[limits.Findings:])
	}
	if all[0].By != recorder.ByCore || all[0].Phase != record.PhaseVerify || all[0].Stage != "s" {
		t.Errorf("finding %+v", all[0])
	}
}

func TestTheLogIsBounded(t *testing.T) {
	t.Parallel()
	j := &journal{}
	s := newScribe(j, nil)
	s.LogAtMost(10 * limits.LogLine)
	long := strings.Repeat("x", 2*limits.LogLine)
	for range 20 {
		s.Log("agent", "s", long)
	}
	lines := j.files[record.LogFile]
	if len(lines) > 11 || !strings.Contains(lines[len(lines)-1], "no more is kept") {
		t.Errorf("%d lines, the last %.200s", len(lines), lines[len(lines)-1])
	}
}

func TestAFailureToWriteIsKept(t *testing.T) {
	t.Parallel()
	j := &journal{err: errors.New("no space left on device")}
	s := newScribe(j, nil)
	if s.Broken() != nil {
		t.Error("broken before anything was written")
	}
	s.Event(record.Event{Type: record.EventPhaseStart})
	if err := s.Broken(); err == nil || !strings.Contains(err.Error(), "no space") || !strings.Contains(err.Error(), record.EventsFile) {
		t.Errorf("broken: %v", err)
	}
}

func TestHiddenValuesAreHiddenFromThenOn(t *testing.T) {
	t.Parallel()
	j := &journal{}
	var live []record.Event
	s := newScribe(j, func(e record.Event) { live = append(live, e) })
	s.Hide("token-of-a-session")
	s.Hide("another-secret-value")
	s.Note(record.Phase{}, "x", "said token-of-a-session and another-secret-value")
	s.Log("agent", "", "token-of-a-session")
	s.Append(record.TurnsFile, record.Turn{Message: "another-secret-value"})
	if text := fmt.Sprint(j.files, s.All(), live[0].Finding.Text); strings.Contains(text, "token-of") || strings.Contains(text, "another-secret") {
		t.Errorf("written: %s", text)
	}
}

func TestCutKeepsRunesWhole(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{0, 1, 2, 3, 4, 5, 6} {
		got := recorder.Cut("aüü€", limit)
		if !utf8.ValidString(got) || !strings.Contains(got, "bytes more") {
			t.Errorf("Cut(%d) = %q", limit, got)
		}
	}
	if got := recorder.Cut("aüü€", 8); got != "aüü€" {
		t.Errorf("Cut(8) = %q", got)
	}
	if got := recorder.Cut("a\xffb", 10); !utf8.ValidString(got) {
		t.Errorf("Cut of bytes = %q", got)
	}
}

func TestAPenWritesOnlyDuringATurn(t *testing.T) {
	t.Parallel()
	j := &journal{}
	p := recorder.ForSession(newScribe(j, nil), agent.RoleAgent)
	step := trajectory.Step{Source: trajectory.Model, Message: trajectory.Text("x")}
	if p.Step(step) == nil || p.Log("x") == nil {
		t.Error("it wrote before the first turn")
	}
	p.Said("s", 1, "Do it.")
	p.Begin("s", 1, nil)
	user := trajectory.Step{Source: trajectory.User, Message: trajectory.Text("Do it.")}
	if err := errors.Join(p.Step(user), p.Step(step), p.Step(user), p.Artifact("a.cast")); err != nil {
		t.Error(err)
	}
	p.End()
	if p.Step(step) == nil {
		t.Error("it wrote after the turn")
	}
	p.Resume()
	if err := p.Step(step); err != nil {
		t.Error(err)
	}
	// The message once, though the agent repeats it first; then each step.
	if got := j.files[record.StepsFile]; len(got) != 4 {
		t.Errorf("steps %q", got)
	}
}

func TestAPenStopsAtItsBounds(t *testing.T) {
	t.Parallel()
	j := &journal{}
	s := newScribe(j, nil)
	p := recorder.ForSession(s, agent.RoleAgent)
	p.AtMost(100)
	p.Begin("s", 1, nil)
	for range 105 {
		testlevel.Must(t, p.Step(trajectory.Step{Source: trajectory.Model}))
	}
	if n := len(j.files[record.StepsFile]); n != 100 || len(s.All()) != 1 {
		t.Errorf("%d steps, findings %v", n, s.All())
	}
}

func TestAStepOfAnySizeFits(t *testing.T) {
	t.Parallel()
	j := &journal{}
	p := recorder.ForSession(newScribe(j, nil), agent.RoleAgent)
	p.Begin("s", 1, nil)
	long := strings.Repeat("y", limits.StepBytes/3)
	args, err := json.Marshal(map[string]string{"a": long})
	testlevel.Must(t, err)
	step := trajectory.Step{Source: trajectory.Model, Message: trajectory.Content{Parts: []trajectory.Part{{Type: trajectory.PartText, Text: long}}}, ReasoningContent: long}
	for i := range 3 {
		content := trajectory.Text(long)
		step.ToolCalls = append(step.ToolCalls, trajectory.ToolCall{ID: fmt.Sprint(i), Name: "f", Arguments: args})
		if step.Observation == nil {
			step.Observation = &trajectory.Observation{}
		}
		step.Observation.Results = append(step.Observation.Results, trajectory.Result{SourceCallID: fmt.Sprint(i), Content: &content})
	}
	testlevel.Must(t, p.Step(step))
	if line := j.files[record.StepsFile][0]; len(line) > limits.StepBytes || !strings.Contains(line, `"cut":true`) {
		t.Errorf("a line of %d bytes", len(line))
	}
}

func TestTheTrajectoryIsMadeOfWhatWasWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newScribe(&journal{}, nil)
	at := record.Phase{Name: record.PhaseCollect}
	used := []record.Usage{{InputTokens: 10, OutputTokens: 2, CostUSD: new(float64)}, {InputTokens: 5, CachedTokens: 3, OutputTokens: 1}}
	if b, err := s.Trajectory(at, dir, trajectory.Agent{Name: "a", Version: "1"}, recorder.Whole{Session: "t/1", Used: used}); b != nil || err != nil {
		t.Errorf("of nothing: %s, %v", b, err)
	}
	lines := `{"role":"agent","step":{"step_id":7,"source":"user","message":"Do it."}}
{"role":"user","step":{"step_id":1,"source":"agent","message":"not the agent's"}}
not JSON
{"role":"agent","step":{"step_id":9,"source":"agent","message":"did it, a-secret-of-ours"}}
{"role":"agent","step":{"step_id":10,"source":"ag`
	testlevel.Must(t, os.WriteFile(filepath.Join(dir, record.StepsFile), []byte(lines), 0o600))
	s.Hide("a-secret-of-ours")
	b, err := s.Trajectory(at, dir, trajectory.Agent{Name: "a", Version: "1"}, recorder.Whole{Session: "t/1", Used: used})
	testlevel.Must(t, err)
	var tr trajectory.Trajectory
	if err := json.Unmarshal(b, &tr); err != nil || len(tr.Steps) != 2 || tr.Steps[1].StepID != 2 || strings.Contains(string(b), "a-secret") {
		t.Errorf("trajectory %s, %v", b, err)
	}
	if f := tr.FinalMetrics; f == nil || *f.PromptTokens != 15 || *f.CachedTokens != 3 || *f.CompletionTokens != 3 || f.CostUSD != nil {
		t.Errorf("final metrics %+v; want what was metered, and no cost since one is not known", tr.FinalMetrics)
	}
}

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
