package trajectory

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestEveryFieldSurvivesWritingAndReading(t *testing.T) {
	t.Parallel()
	content := Content{Parts: []Part{
		{Type: PartText, Text: "see"},
		{Type: PartImage, Source: &PartSource{MediaType: "image/png", Path: "a.png"}},
		{Type: PartAudio, Source: &PartSource{MediaType: "audio/wav", Path: "a.wav", DurationSec: new(1.5)}},
	}}
	extra := json.RawMessage(`{"k":1}`)
	in := Trajectory{
		SchemaVersion: VersionAudio, SessionID: "s", TrajectoryID: "t", Notes: "n", ContinuedRef: "next.json", Extra: extra,
		Agent: Agent{Name: "a", Version: "1", ModelName: "m", ToolDefinitions: []json.RawMessage{extra}, Extra: extra},
		Steps: []Step{{
			StepID: 1, Timestamp: Stamp(time.Unix(1, 5e6)), Source: Model, Message: content, ModelName: "m",
			ReasoningEffort: "high", ReasoningContent: "why", CopiedContext: true, LLMCallCount: new(int64(2)), Extra: extra,
			ToolCalls: []ToolCall{{ID: "c", Name: "f", Arguments: json.RawMessage(`{"a":[1]}`), Extra: extra}},
			Metrics: &Metrics{
				PromptTokens: new(int64(3)), CompletionTokens: new(int64(4)), CachedTokens: new(int64(1)), CostUSD: new(0.25),
				PromptTokenIDs: []int64{1, 2}, CompletionTokenIDs: []int64{3}, Logprobs: []float64{-0.5}, Extra: extra,
			},
			Observation: &Observation{Results: []Result{{
				SourceCallID: "c", Content: &Content{Text: "ok"}, Extra: extra,
				Subagents: []SubagentRef{{TrajectoryID: "x", TrajectoryPath: "x.json", SessionID: "s", Extra: extra}},
			}}},
		}},
		FinalMetrics: &FinalMetrics{
			PromptTokens: new(int64(3)), CompletionTokens: new(int64(4)), CachedTokens: new(int64(1)),
			CostUSD: new(0.25), Steps: new(int64(1)), Extra: extra,
		},
		Subagents: []Trajectory{{
			SchemaVersion: Version, TrajectoryID: "x", Agent: Agent{Name: "b", Version: "1"},
			Steps: []Step{{StepID: 1, Source: User, Message: Text("go")}},
		}},
	}
	raw, err := Encode(&in)
	if err != nil {
		t.Fatal(err)
	}
	out, vs := Parse(raw)
	if len(vs) > 0 {
		t.Fatal(vs)
	}
	if diff := cmp.Diff(&in, out); diff != "" {
		t.Errorf("lost on the way (-in +out):\n%s", diff)
	}
}

func TestVersionIsTheOldestThatFits(t *testing.T) {
	t.Parallel()
	sound := Content{Parts: []Part{{Type: PartAudio, Source: &PartSource{MediaType: "audio/wav", Path: "a"}}}}
	for _, tt := range []struct {
		name string
		step Step
		want string
	}{
		{"text", Step{Source: User, Message: Text("x")}, Version},
		{"sound in a message", Step{Source: User, Message: sound}, VersionAudio},
		{"sound in an observation", Step{Source: User, Observation: &Observation{Results: []Result{{Content: &sound}}}}, VersionAudio},
	} {
		tr, vs, err := New(Agent{Name: "a", Version: "1"}, "s", []Step{tt.step})
		if err != nil || len(vs) > 0 {
			t.Fatal(vs, err)
		}
		if tr.SchemaVersion != tt.want {
			t.Errorf("%s: New says version %s, want %s", tt.name, tr.SchemaVersion, tt.want)
		}
		raw, err := Encode(tr)
		if err != nil || !strings.Contains(string(raw), `"schema_version": "`+tt.want+`"`) {
			t.Errorf("%s: want version %s, got %v\n%s", tt.name, tt.want, err, raw)
		}
	}
}

// An agent that was killed, or a parser that met an odd event, leaves steps
// like these; none of them may cost the others.
func TestNewMakesAValidTrajectoryOfOddSteps(t *testing.T) {
	t.Parallel()
	odd := []Step{
		{},
		{StepID: 40, Source: "assistant", Message: Text("x"), Timestamp: "noon"},
		{Source: User, Message: Text("go"), ModelName: "m", ToolCalls: []ToolCall{}, Metrics: &Metrics{}},
		{Source: Model, ToolCalls: []ToolCall{{Name: "f", Arguments: json.RawMessage(`[1]`)}}, Extra: json.RawMessage(`null`)},
		{Source: Model, LLMCallCount: new(int64(0)), Metrics: &Metrics{PromptTokens: new(int64(1))}},
		{Source: Model, Observation: &Observation{Results: []Result{{SourceCallID: "lost", Subagents: []SubagentRef{{}}}}}},
		{Source: Model, Observation: &Observation{}},
	}
	tr, vs, err := New(Agent{Name: "a", Version: "1"}, "s", odd)
	if err != nil {
		t.Fatal(err)
	}
	if len(vs) < 6 {
		t.Errorf("only %d repairs reported: %v", len(vs), vs)
	}
	if _, err := Encode(tr); err != nil {
		t.Error(err)
	}
	if odd[1].StepID != 40 || odd[5].Observation.Results[0].SourceCallID != "lost" {
		t.Error("the caller's steps were changed")
	}
}

func TestNewOfNothingIsErrNoSteps(t *testing.T) {
	t.Parallel()
	if _, _, err := New(Agent{}, "", nil); !errors.Is(err, ErrNoSteps) {
		t.Errorf("got %v", err)
	}
}

func TestTotals(t *testing.T) {
	t.Parallel()
	priced := Step{Source: Model, Metrics: &Metrics{PromptTokens: new(int64(10)), CompletionTokens: new(int64(2)), CostUSD: new(0.5)}}
	unpriced := Step{Source: Model, Metrics: &Metrics{PromptTokens: new(int64(1))}}
	copied := priced
	copied.CopiedContext = true
	for _, tt := range []struct {
		name   string
		steps  []Step
		prompt int64
		cost   *float64
	}{
		{"sums", []Step{priced, {Source: User}, priced}, 20, new(1.0)},
		{"an unpriced step makes the cost unknown", []Step{priced, unpriced}, 11, nil},
		{"copied context is not counted again", []Step{copied, priced}, 10, new(0.5)},
	} {
		tr, _, err := New(Agent{Name: "a", Version: "1"}, "", tt.steps)
		if err != nil {
			t.Fatal(err)
		}
		f := tr.FinalMetrics
		if *f.PromptTokens != tt.prompt || *f.Steps != int64(len(tt.steps)) || !cmp.Equal(f.CostUSD, tt.cost) {
			t.Errorf("%s: got %s", tt.name, dump(f))
		}
	}
}

func dump(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func TestEncodeRefusesAnInvalidTrajectory(t *testing.T) {
	t.Parallel()
	_, err := Encode(&Trajectory{Agent: Agent{Name: "a"}, Steps: []Step{{StepID: 2, Source: User}}})
	if err == nil || !strings.Contains(err.Error(), "steps[0].step_id") {
		t.Errorf("got %v", err)
	}
}
