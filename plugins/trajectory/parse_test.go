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

// What Harbor 0.24's own validator accepts as well.
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
		{"empty message", "steps.1.message", `""`},
		{"message of parts", "steps.1.message", `[{"type": "text", "text": "a"}, {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}}]`},
		{"observation on a user step", "steps.1.observation", `{"results": []}`},
		{"observation on a system step", "steps.0.observation", `{"results": [{"content": "x"}]}`},
		{"timestamp with a zone", "steps.1.timestamp", `"2026-01-31T12:00:00.5+05:30"`},
		{"timestamp without zone", "steps.1.timestamp", `"2026-01-31T12:00:00"`},
		{"timestamp that is a date", "steps.1.timestamp", `"2026-01-31"`},
		{"source_call_id null", "steps.2.observation.results.0.source_call_id", "null"},
		{"content null", "steps.2.observation.results.0.content", "null"},
		{"reasoning_effort as text", "steps.2.reasoning_effort", `"high"`},
		{"reasoning_effort as float", "steps.2.reasoning_effort", "0.5"},
		{"agent-only key null elsewhere", "steps.1.metrics", "null"},
		{"a ref with a path", "steps.2.observation.results.0.subagent_trajectory_ref", `[{"trajectory_path": "x.json"}]`},
		{"embedded subagent", "subagent_trajectories", `[{"trajectory_id": "x", "agent": {"name": "b", "version": "1"}, "steps": [{"step_id": 1, "source": "user", "message": ""}]}]`},
		{"extra at the root", "extra", `{"a": [1, {"b": null}]}`},
		{"audio", "steps.1.message", audio("audio/wav", "")},
		{"audio with duration", "steps.1.message", audio("audio/mpeg", `, "duration_sec": 1.5`)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			doc := edit(t, tt.path, tt.value)
			if got, vs := Parse(doc); len(vs) > 0 || got == nil {
				t.Errorf("Parse: %v, want it accepted\n%s", vs, doc)
			}
		})
	}
}

func TestRejects(t *testing.T) {
	t.Parallel()
	part := func(s string) string { return "[" + s + "]" }
	sub := `{"agent": {"name": "b", "version": "1"}, "steps": [{"step_id": 1, "source": "user", "message": ""}]}`
	named := strings.Replace(sub, "{", `{"trajectory_id": "x", `, 1)
	for _, tt := range []struct{ name, path, value, where string }{
		{"a version to come", "schema_version", `"ATIF-v1.9"`, "schema_version"},
		{"no steps", "steps", "[]", "steps"},
		{"gap in step ids", "steps.2.step_id", "4", "steps[2].step_id"},
		{"step_id 1.5", "steps.0.step_id", "1.5", "steps.step_id"},
		{"unknown key", "foo", "1", ""},
		{"unknown key in a result", "steps.2.observation.results.0.foo", "1", ""},
		{"image without source", "steps.1.message", part(`{"type": "image"}`), "steps[1].message"},
		{"text with source", "steps.1.message", part(`{"type": "text", "text": "a", "source": {"media_type": "image/png", "path": "a"}}`), "steps[1].message"},
		{"image/bmp", "steps.1.message", part(`{"type": "image", "source": {"media_type": "image/bmp", "path": "a"}}`), "steps[1].message"},
		{"audio with an image's source", "steps.1.message", part(`{"type": "audio", "source": {"media_type": "image/png", "path": "a"}}`), "steps[1].message"},
		{"video", "steps.1.message", part(`{"type": "video", "source": {"media_type": "video/mp4", "path": "a"}}`), "steps[1].message"},
		{"source assistant", "steps.2.source", `"assistant"`, "steps[2].source"},
		{"tool calls on a user step", "steps.1.tool_calls", "[]", "steps[1]"},
		{"metrics on a user step", "steps.1.metrics", "{}", "steps[1]"},
		{"timestamp of words", "steps.1.timestamp", `"yesterday"`, "steps[1].timestamp"},
		{"arguments a text", "steps.2.tool_calls.0.arguments", `"{}"`, "steps[2].tool_calls[0].arguments"},
		{"source_call_id of no call", "steps.2.observation.results.0.source_call_id", `"d"`, "steps[2].observation.results[0].source_call_id"},
		{"llm_call_count 0 with metrics", "steps.2.llm_call_count", "0", "steps[2].llm_call_count"},
		{"ref with session only", "steps.2.observation.results.0.subagent_trajectory_ref", `[{"session_id": "x"}]`, "steps[2].observation.results[0].subagent_trajectory_ref"},
		{"subagent without id", "subagent_trajectories", part(sub), "subagent_trajectories[0].trajectory_id"},
		{"two subagents of one id", "subagent_trajectories", part(named + "," + named), "subagent_trajectories[1].trajectory_id"},
		{"agent version a number", "agent.version", "1", "agent.version"},
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

func FuzzParse(f *testing.F) {
	f.Add([]byte(base))
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
