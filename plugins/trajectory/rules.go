package trajectory

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// versions are the schema versions that exist.
var versions = []string{
	"ATIF-v1.0", "ATIF-v1.1", "ATIF-v1.2", "ATIF-v1.3", "ATIF-v1.4",
	"ATIF-v1.5", "ATIF-v1.6", "ATIF-v1.7", "ATIF-v1.8",
}

// agentOnly are the keys that only a step of the agent may have.
var agentOnly = []string{"model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics"}

func (v *validator) trajectory(path string, x any, embedded bool) any {
	t := v.object(path, x, map[string]field{
		"schema_version": {check: v.word(versions...)}, // has a default
		"session_id":     opt(v.text),
		"trajectory_id":  {required: embedded, nullable: !embedded, check: v.text},
		"agent":          req(v.agent),
		"steps":          req(v.list(v.step)),
		"notes":          opt(v.text),
		"final_metrics":  opt(v.finalMetrics),

		"continued_trajectory_ref": opt(v.text),
		"extra":                    opt(v.free),
		"subagent_trajectories": opt(v.list(func(p string, x any) any {
			return v.trajectory(p, x, true)
		})),
	})
	v.sequence(at(path, "steps"), t["steps"])
	v.unique(at(path, "subagent_trajectories"), t["subagent_trajectories"])
	return t
}

// sequence checks that there is a step and that the step ids are 1, 2, 3, ….
func (v *validator) sequence(path string, x any) {
	steps, ok := x.([]any)
	if !ok {
		return
	}
	if len(steps) == 0 {
		v.bad(path, "must not be empty")
	}
	for i, s := range steps {
		m, _ := s.(map[string]any)
		if id, ok := m["step_id"].(int64); ok && id != int64(i+1) {
			v.bad(fmt.Sprintf("%s[%d].step_id", path, i), "must be %d, got %d", i+1, id)
		}
	}
}

func (v *validator) unique(path string, x any) {
	seen := map[string]bool{}
	list, _ := x.([]any)
	for i, t := range list {
		m, _ := t.(map[string]any)
		id, ok := m["trajectory_id"].(string)
		if ok && seen[id] {
			v.bad(fmt.Sprintf("%s[%d].trajectory_id", path, i), "is used twice: %q", id)
		}
		seen[id] = true
	}
}

func (v *validator) agent(path string, x any) any {
	return v.object(path, x, map[string]field{
		"name": req(v.text), "version": req(v.text), "model_name": opt(v.text),
		"tool_definitions": opt(v.list(v.free)), "extra": opt(v.free),
	})
}

func (v *validator) step(path string, x any) any {
	s := v.object(path, x, map[string]field{
		"step_id":           req(v.integer),
		"timestamp":         opt(v.timestamp),
		"source":            req(v.word(string(System), string(User), string(Model))),
		"message":           req(v.content),
		"model_name":        opt(v.text),
		"reasoning_effort":  opt(v.effort),
		"reasoning_content": opt(v.text),
		"tool_calls":        opt(v.list(v.toolCall)),
		"metrics":           opt(v.metrics),
		"observation":       opt(v.observation),
		"is_copied_context": opt(v.truth),
		"llm_call_count":    opt(v.atLeastZero),
		"extra":             opt(v.free),
	})
	if s["source"] != string(Model) {
		for _, k := range agentOnly {
			if s[k] != nil {
				v.bad(at(path, k), "is for steps of the agent only, this one is of %v", s["source"])
			}
		}
	} else if s["llm_call_count"] == int64(0) {
		for _, k := range []string{"metrics", "reasoning_content"} {
			if s[k] != nil {
				v.bad(at(path, k), "must be absent when llm_call_count is 0")
			}
		}
	}
	v.answered(path, s)
	return s
}

// answered checks that each observation with a call's id answers a call of the
// same step.
func (v *validator) answered(path string, s map[string]any) {
	calls, _ := s["tool_calls"].([]any)
	ids := map[any]bool{}
	for _, c := range calls {
		m, _ := c.(map[string]any)
		ids[m["tool_call_id"]] = true
	}
	o, _ := s["observation"].(map[string]any)
	results, _ := o["results"].([]any)
	for i, r := range results {
		m, _ := r.(map[string]any)
		if id, ok := m["source_call_id"]; ok && !ids[id] {
			v.bad(fmt.Sprintf("%s.observation.results[%d].source_call_id", path, i), "%q is not a tool call of this step", id)
		}
	}
}

// effort accepts a text or a number.
func (v *validator) effort(path string, x any) any {
	switch x := x.(type) {
	case string:
		return x
	case json.Number:
		return x
	default:
		v.bad(path, "must be a text or a number, got %s", show(x))
		return nil
	}
}

func (v *validator) toolCall(path string, x any) any {
	return v.object(path, x, map[string]field{
		"tool_call_id": req(v.text), "function_name": req(v.text), "arguments": req(v.free), "extra": opt(v.free),
	})
}

func (v *validator) metrics(path string, x any) any {
	return v.object(path, x, map[string]field{
		"prompt_tokens": opt(v.integer), "completion_tokens": opt(v.integer), "cached_tokens": opt(v.integer),
		"cost_usd": opt(v.number), "prompt_token_ids": opt(v.list(v.integer)), "completion_token_ids": opt(v.list(v.integer)),
		"logprobs": opt(v.list(v.logprob)), "extra": opt(v.free),
	})
}

func (v *validator) finalMetrics(path string, x any) any {
	return v.object(path, x, map[string]field{
		"total_prompt_tokens": opt(v.integer), "total_completion_tokens": opt(v.integer), "total_cached_tokens": opt(v.integer),
		"total_cost_usd": opt(v.number), "total_steps": opt(v.atLeastZero), "extra": opt(v.free),
	})
}

func (v *validator) observation(path string, x any) any {
	return v.object(path, x, map[string]field{"results": req(v.list(v.result))})
}

func (v *validator) result(path string, x any) any {
	return v.object(path, x, map[string]field{
		"source_call_id": opt(v.text), "content": opt(v.content),
		"subagent_trajectory_ref": opt(v.list(v.subagentRef)), "extra": opt(v.free),
	})
}

func (v *validator) subagentRef(path string, x any) any {
	r := v.object(path, x, map[string]field{
		"trajectory_id": opt(v.text), "trajectory_path": opt(v.text), "session_id": opt(v.text), "extra": opt(v.free),
	})
	if r != nil && r["trajectory_id"] == nil && r["trajectory_path"] == nil {
		v.bad(path, "must have a trajectory_id or a trajectory_path")
	}
	return r
}

// content accepts a text or a list of parts.
func (v *validator) content(path string, x any) any {
	switch x.(type) {
	case string:
		return x
	case []any:
		return v.list(v.part)(path, x)
	default:
		v.bad(path, "must be a text or a list of parts, got %s", show(x))
		return nil
	}
}

func (v *validator) part(path string, x any) any {
	source := v.image
	if m, ok := x.(map[string]any); ok && m["type"] == string(PartAudio) {
		source = v.audio
	}
	p := v.object(path, x, map[string]field{
		"type": req(v.word(string(PartText), string(PartImage), string(PartAudio))), "text": opt(v.text), "source": opt(source),
	})
	if p == nil {
		return nil
	}
	needs, forbids := "source", "text"
	if p["type"] == string(PartText) {
		needs, forbids = forbids, needs
	}
	if p[needs] == nil {
		v.bad(at(path, needs), "is missing in a part of type %v", p["type"])
	}
	if p[forbids] != nil {
		v.bad(at(path, forbids), "does not belong in a part of type %v", p["type"])
	}
	return p
}

func (v *validator) image(path string, x any) any {
	return v.object(path, x, map[string]field{
		"media_type": req(v.word("image/jpeg", "image/png", "image/gif", "image/webp")), "path": req(v.text),
	})
}

var audioTypes = []string{
	"audio/wav", "audio/mpeg", "audio/mp4", "audio/aac", "audio/ogg", "audio/flac", "audio/webm", "audio/aiff",
}

// audioAliases are other names of audioTypes.
var audioAliases = map[string]string{
	"audio/mp3": "audio/mpeg", "audio/mpga": "audio/mpeg", "audio/x-mpeg": "audio/mpeg",
	"audio/x-wav": "audio/wav", "audio/wave": "audio/wav", "audio/vnd.wave": "audio/wav",
	"audio/x-m4a": "audio/mp4", "audio/m4a": "audio/mp4",
	"audio/x-aac": "audio/aac", "audio/x-flac": "audio/flac", "audio/x-aiff": "audio/aiff",
}

func (v *validator) audio(path string, x any) any {
	return v.object(path, x, map[string]field{
		"media_type": req(func(p string, x any) any {
			s, _ := x.(string)
			s = strings.ToLower(strings.TrimSpace(s))
			if to, ok := audioAliases[s]; ok {
				s = to
			}
			if !slices.Contains(audioTypes, s) {
				v.bad(p, "must be one of %s, got %s", strings.Join(audioTypes, ", "), show(x))
			}
			return s
		}),
		"path": req(v.text),
		"duration_sec": opt(func(p string, x any) any {
			n := v.number(p, x)
			if f, ok := n.(float64); ok && f < 0 {
				v.bad(p, "must not be negative, got %v", f)
			}
			return n
		}),
	})
}

var (
	isoDate = regexp.MustCompile(`^(?:(\d{4})-?(\d{2})-?(\d{2})|\d{4}-?W(\d{2})(?:-?([1-7]))?)`)
	isoTime = regexp.MustCompile(`^(\d{2})(?::?(\d{2})(?::?(\d{2})(?:[.,]\d+)?)?)?(?:Z|[+-](\d{2})(?::?(\d{2})(?::?\d{2}(?:[.,]\d+)?)?)?)?$`)
)

// timestamp accepts ISO 8601: a date, or a date and a time with any one
// character between them, with or without a time zone.
func (v *validator) timestamp(path string, x any) any {
	s, ok := x.(string)
	if !ok || !validTimestamp(s) {
		v.bad(path, "must be an ISO 8601 time such as 2026-01-31T12:00:00Z, got %s", show(x))
	}
	return s
}

func validTimestamp(s string) bool {
	date := isoDate.FindStringSubmatch(s)
	if date == nil {
		return false
	}
	if date[1] != "" {
		if _, err := time.Parse("2006-01-02", date[1]+"-"+date[2]+"-"+date[3]); err != nil {
			return false
		}
	} else if date[4] < "01" || date[4] > "53" {
		return false
	}
	rest := []rune(s[len(date[0]):])
	if len(rest) == 0 {
		return true
	}
	clock := isoTime.FindStringSubmatch(string(rest[1:]))
	return clock != nil && clock[1] < "24" && clock[2] < "60" && clock[3] < "60" && clock[4] < "24" && clock[5] < "60"
}
