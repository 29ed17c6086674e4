package trajectory

import (
	"encoding/json"
	"strings"
	"testing"
)

// base is the smallest valid trajectory with a step of each source. The tables
// below change one thing in it.
const base = `{
  "schema_version": "ATIF-v1.7",
  "session_id": "s",
  "agent": {"name": "a", "version": "1"},
  "steps": [
    {"step_id": 1, "source": "system", "message": "be good"},
    {"step_id": 2, "source": "user", "message": "go"},
    {"step_id": 3, "source": "agent", "message": "",
     "tool_calls": [{"tool_call_id": "c", "function_name": "f", "arguments": {}}],
     "observation": {"results": [{"source_call_id": "c", "content": "ok"}]},
     "metrics": {"prompt_tokens": 5}}
  ]
}`

// edit returns base with the value at path replaced by JSON. "DROP" removes
// the key. A path is keys and indexes joined by dots.
func edit(t *testing.T, path, value string) []byte {
	t.Helper()
	var doc any
	if err := json.Unmarshal([]byte(base), &doc); err != nil {
		t.Fatal(err)
	}
	const mark = "\x01mark\x01"
	keys := strings.Split(path, ".")
	at := doc
	for i, k := range keys {
		last := i == len(keys)-1
		switch c := at.(type) {
		case map[string]any:
			switch {
			case last && value == "DROP":
				delete(c, k)
			case last:
				c[k] = mark
			default:
				at = c[k]
			}
		case []any:
			n := int(k[0] - '0')
			if last {
				c[n] = mark
			} else {
				at = c[n]
			}
		default:
			t.Fatalf("path %q leads nowhere at %q", path, k)
		}
	}
	raw, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	quoted, err := json.Marshal(mark)
	if err != nil {
		t.Fatal(err)
	}
	return []byte(strings.ReplaceAll(string(raw), string(quoted), value))
}

// The tables are what Harbor 0.24's own validator accepts and rejects.
func TestAccepts(t *testing.T) {
	t.Parallel()
	audio := func(media, more string) string {
		return `[{"type": "audio", "source": {"media_type": "` + media + `", "path": "a"` + more + `}}]`
	}
	for _, tt := range []struct{ name, path, value string }{
		{"nothing changed", "session_id", `"s"`},
		{"no schema_version", "schema_version", "DROP"},
		{"an old version with later fields", "schema_version", `"ATIF-v1.0"`},
		{"version 1.8", "schema_version", `"ATIF-v1.8"`},
		{"no session_id", "session_id", "DROP"},
		{"session_id null", "session_id", "null"},
		{"empty message", "steps.1.message", `""`},
		{"message without parts", "steps.1.message", `[]`},
		{"message of parts", "steps.1.message", `[{"type": "text", "text": "a"}, {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}}]`},
		{"text part with null source", "steps.1.message", `[{"type": "text", "text": "", "source": null}]`},
		{"observation on a user step", "steps.1.observation", `{"results": []}`},
		{"observation on a system step", "steps.0.observation", `{"results": [{"content": "x"}]}`},
		{"timestamp with Z", "steps.1.timestamp", `"2026-01-31T12:00:00Z"`},
		{"timestamp without zone", "steps.1.timestamp", `"2026-01-31T12:00:00"`},
		{"timestamp with offset", "steps.1.timestamp", `"2026-01-31 12:00:00.5+05:30"`},
		{"timestamp that is a date", "steps.1.timestamp", `"2026-01-31"`},
		{"timestamp with nine digits", "steps.1.timestamp", `"2026-01-31T12:00:00.123456789Z"`},
		{"timestamp in basic form", "steps.1.timestamp", `"20260131T120000"`},
		{"timestamp of a week", "steps.1.timestamp", `"2026-W05-6"`},
		{"timestamp null", "steps.1.timestamp", "null"},
		{"empty tool_call_id", "steps.2.tool_calls.0.tool_call_id", `"c"`},
		{"source_call_id null", "steps.2.observation.results.0.source_call_id", "null"},
		{"content null", "steps.2.observation.results.0.content", "null"},
		{"negative tokens", "steps.2.metrics.prompt_tokens", "-5"},
		{"cost NaN", "steps.2.metrics.cost_usd", "NaN"},
		{"cost Infinity", "steps.2.metrics.cost_usd", "-Infinity"},
		{"tokens as text", "steps.2.metrics.prompt_tokens", `"5"`},
		{"tokens as whole float", "steps.2.metrics.prompt_tokens", "5.0"},
		{"step_id as text", "steps.2.step_id", `"3"`},
		{"step_id as whole float", "steps.2.step_id", "3.0"},
		{"step_id true", "steps.0.step_id", "true"},
		{"is_copied_context as a word", "steps.1.is_copied_context", `"yes"`},
		{"reasoning_effort as text", "steps.2.reasoning_effort", `"high"`},
		{"reasoning_effort as float", "steps.2.reasoning_effort", "0.5"},
		{"reasoning_effort as integer", "steps.2.reasoning_effort", "2"},
		{"agent-only key null elsewhere", "steps.1.metrics", "null"},
		{"a ref with a path", "steps.2.observation.results.0.subagent_trajectory_ref", `[{"trajectory_path": "x.json"}]`},
		{"a ref to an id that is nowhere", "steps.2.observation.results.0.subagent_trajectory_ref", `[{"trajectory_id": "nowhere"}]`},
		{"total_steps that is not the number of steps", "final_metrics", `{"total_steps": 99}`},
		{"embedded subagent", "subagent_trajectories", `[{"trajectory_id": "x", "agent": {"name": "b", "version": "1"}, "steps": [{"step_id": 1, "source": "user", "message": ""}]}]`},
		{"extra at the root", "extra", `{"a": [1, {"b": null}]}`},
		{"audio", "steps.1.message", audio("audio/wav", "")},
		{"audio under an alias", "steps.1.message", audio("audio/X-WAV", "")},
		{"audio with duration", "steps.1.message", audio("audio/mp3", `, "duration_sec": 1.5`)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			doc := edit(t, tt.path, tt.value)
			if got, vs := Parse(doc); len(vs) > 0 || got == nil {
				t.Errorf("Parse: %v, want it accepted\n%s", vs, doc)
			}
		})
	}
}

func TestAcceptsDuplicateAndEmptyCallIDs(t *testing.T) {
	t.Parallel()
	doc := edit(t, "steps.2.tool_calls",
		`[{"tool_call_id": "c", "function_name": "f", "arguments": {}}, {"tool_call_id": "c", "function_name": "f", "arguments": {}},
		  {"tool_call_id": "", "function_name": "f", "arguments": {}}]`)
	if vs := Validate(doc); len(vs) > 0 {
		t.Errorf("Validate: %v, want it accepted", vs)
	}
}

func TestAcceptsNoModelCallWithoutMetrics(t *testing.T) {
	t.Parallel()
	doc := strings.Replace(base, `"metrics": {"prompt_tokens": 5}`, `"llm_call_count": 0`, 1)
	if vs := Validate([]byte(doc)); len(vs) > 0 {
		t.Errorf("Validate: %v, want it accepted", vs)
	}
}

func TestRejects(t *testing.T) {
	t.Parallel()
	part := func(s string) string { return "[" + s + "]" }
	sub := `{"agent": {"name": "b", "version": "1"}, "steps": [{"step_id": 1, "source": "user", "message": ""}]}`
	named := strings.Replace(sub, "{", `{"trajectory_id": "x", `, 1)
	for _, tt := range []struct{ name, path, value, where string }{
		{"a version to come", "schema_version", `"ATIF-v1.9"`, "schema_version"},
		{"a version without its name", "schema_version", `"1.7"`, "schema_version"},
		{"version null", "schema_version", "null", "schema_version"},
		{"no steps", "steps", "[]", "steps"},
		{"steps missing", "steps", "DROP", "steps"},
		{"step_id 0", "steps.0.step_id", "0", "steps[0].step_id"},
		{"gap in step ids", "steps.2.step_id", "4", "steps[2].step_id"},
		{"step_id 1.5", "steps.0.step_id", "1.5", "steps[0].step_id"},
		{"unknown key at the root", "foo", "1", "foo"},
		{"unknown key in the agent", "agent.foo", "1", "agent.foo"},
		{"unknown key in a step", "steps.0.foo", "null", "steps[0].foo"},
		{"unknown key in a tool call", "steps.2.tool_calls.0.foo", "1", "steps[2].tool_calls[0].foo"},
		{"unknown key in a result", "steps.2.observation.results.0.foo", "1", "steps[2].observation.results[0].foo"},
		{"unknown key in metrics", "steps.2.metrics.foo", "1", "steps[2].metrics.foo"},
		{"message null", "steps.0.message", "null", "steps[0].message"},
		{"message missing", "steps.0.message", "DROP", "steps[0].message"},
		{"image without source", "steps.1.message", part(`{"type": "image"}`), "steps[1].message[0].source"},
		{"text with source", "steps.1.message", part(`{"type": "text", "text": "a", "source": {"media_type": "image/png", "path": "a"}}`), "steps[1].message[0].source"},
		{"text without text", "steps.1.message", part(`{"type": "text"}`), "steps[1].message[0].text"},
		{"image/bmp", "steps.1.message", part(`{"type": "image", "source": {"media_type": "image/bmp", "path": "a"}}`), "steps[1].message[0].source.media_type"},
		{"image/jpg", "steps.1.message", part(`{"type": "image", "source": {"media_type": "image/jpg", "path": "a"}}`), "steps[1].message[0].source.media_type"},
		{"image with duration", "steps.1.message", part(`{"type": "image", "source": {"media_type": "image/png", "path": "a", "duration_sec": 1}}`), "steps[1].message[0].source.duration_sec"},
		{"audio with an image's source", "steps.1.message", part(`{"type": "audio", "source": {"media_type": "image/png", "path": "a"}}`), "steps[1].message[0].source.media_type"},
		{"audio with text", "steps.1.message", part(`{"type": "audio", "text": "a", "source": {"media_type": "audio/wav", "path": "a"}}`), "steps[1].message[0].text"},
		{"audio with negative duration", "steps.1.message", part(`{"type": "audio", "source": {"media_type": "audio/wav", "path": "a", "duration_sec": -1}}`), "steps[1].message[0].source.duration_sec"},
		{"audio of unknown type", "steps.1.message", part(`{"type": "audio", "source": {"media_type": "audio/opus", "path": "a"}}`), "steps[1].message[0].source.media_type"},
		{"image with an audio's source", "steps.1.message", part(`{"type": "image", "source": {"media_type": "audio/wav", "path": "a"}}`), "steps[1].message[0].source.media_type"},
		{"video", "steps.1.message", part(`{"type": "video", "source": {"media_type": "video/mp4", "path": "a"}}`), "steps[1].message[0].type"},
		{"source assistant", "steps.2.source", `"assistant"`, "steps[2].source"},
		{"tool calls on a user step", "steps.1.tool_calls", "[]", "steps[1].tool_calls"},
		{"model name on a system step", "steps.0.model_name", `""`, "steps[0].model_name"},
		{"reasoning on a user step", "steps.1.reasoning_content", `"x"`, "steps[1].reasoning_content"},
		{"effort on a user step", "steps.1.reasoning_effort", "1", "steps[1].reasoning_effort"},
		{"metrics on a user step", "steps.1.metrics", "{}", "steps[1].metrics"},
		{"timestamp of words", "steps.1.timestamp", `"yesterday"`, "steps[1].timestamp"},
		{"timestamp with month 13", "steps.1.timestamp", `"2026-13-01T00:00:00Z"`, "steps[1].timestamp"},
		{"timestamp with day 30 of February", "steps.1.timestamp", `"2026-02-30"`, "steps[1].timestamp"},
		{"timestamp with hour 25", "steps.1.timestamp", `"2026-01-01T25:00:00Z"`, "steps[1].timestamp"},
		{"timestamp that ends early", "steps.1.timestamp", `"2026-01-01T"`, "steps[1].timestamp"},
		{"timestamp empty", "steps.1.timestamp", `""`, "steps[1].timestamp"},
		{"timestamp a number", "steps.1.timestamp", "1767225600", "steps[1].timestamp"},
		{"arguments a text", "steps.2.tool_calls.0.arguments", `"{}"`, "steps[2].tool_calls[0].arguments"},
		{"arguments null", "steps.2.tool_calls.0.arguments", "null", "steps[2].tool_calls[0].arguments"},
		{"source_call_id of no call", "steps.2.observation.results.0.source_call_id", `"d"`, "steps[2].observation.results[0].source_call_id"},
		{"observation without results", "steps.2.observation", "{}", "steps[2].observation.results"},
		{"tokens 1.5", "steps.2.metrics.prompt_tokens", "1.5", "steps[2].metrics.prompt_tokens"},
		{"llm_call_count 0 with metrics", "steps.2.llm_call_count", "0", "steps[2].metrics"},
		{"llm_call_count -1", "steps.2.llm_call_count", "-1", "steps[2].llm_call_count"},
		{"ref with session only", "steps.2.observation.results.0.subagent_trajectory_ref", `[{"session_id": "x"}]`, "steps[2].observation.results[0].subagent_trajectory_ref[0]"},
		{"ref that is not a list", "steps.2.observation.results.0.subagent_trajectory_ref", `{"trajectory_id": "x"}`, "steps[2].observation.results[0].subagent_trajectory_ref"},
		{"subagent without id", "subagent_trajectories", part(sub), "subagent_trajectories[0].trajectory_id"},
		{"two subagents of one id", "subagent_trajectories", part(named + "," + named), "subagent_trajectories[1].trajectory_id"},
		{"total_steps -1", "final_metrics", `{"total_steps": -1}`, "final_metrics.total_steps"},
		{"agent version missing", "agent.version", "DROP", "agent.version"},
		{"agent version null", "agent.version", "null", "agent.version"},
		{"agent version a number", "agent.version", "1", "agent.version"},
		{"agent a text", "agent", `"a"`, "agent"},
		{"extra a list", "extra", "[]", "extra"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			doc := edit(t, tt.path, tt.value)
			got, vs := Parse(doc)
			if got != nil || len(vs) == 0 {
				t.Fatalf("accepted:\n%s", doc)
			}
			for _, v := range vs {
				if v.Path == tt.where {
					return
				}
			}
			t.Errorf("violations %v; want one at %s", vs, tt.where)
		})
	}
}

func TestRejectsWhatIsNoObject(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{"[]", `"x"`, "1", "null", "", "{", base + "{}"} {
		if got, vs := Parse([]byte(doc)); got != nil || len(vs) == 0 {
			t.Errorf("Parse(%.20q) accepted", doc)
		}
	}
}

func TestParseReturnsProperTypes(t *testing.T) {
	t.Parallel()
	doc := edit(t, "steps.2.metrics", `{"prompt_tokens": "7", "completion_tokens": 2.0, "cost_usd": NaN, "logprobs": [-0.5, -Infinity]}`)
	got, vs := Parse(doc)
	if len(vs) > 0 {
		t.Fatal(vs)
	}
	m := got.Steps[2].Metrics
	if *m.PromptTokens != 7 || *m.CompletionTokens != 2 || m.CostUSD != nil || len(m.Logprobs) != 2 || m.Logprobs[1] > -1e300 {
		t.Errorf("metrics are %+v", *m)
	}
}

func TestNaNInsideATextStaysAsItIs(t *testing.T) {
	t.Parallel()
	doc := edit(t, "steps.1.message", `"NaN \" NaN, \\"`)
	got, vs := Parse(doc)
	if len(vs) > 0 || got.Steps[1].Message.Text != `NaN " NaN, \` {
		t.Errorf("message is %+v, %v", got, vs)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(base))
	f.Add([]byte(`{"agent": NaN}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, vs := Parse(data)
		if (got == nil) != (len(vs) > 0) {
			t.Fatalf("trajectory %v with %d violations", got != nil, len(vs))
		}
		if got == nil {
			return
		}
		if _, err := Encode(got); err != nil {
			t.Errorf("accepted, but cannot be written again: %v", err)
		}
	})
}
