package trajectory

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// versions are the schema versions that exist.
var versions = []string{
	"ATIF-v1.0", "ATIF-v1.1", "ATIF-v1.2", "ATIF-v1.3", "ATIF-v1.4",
	"ATIF-v1.5", "ATIF-v1.6", "ATIF-v1.7", "ATIF-v1.8",
}

// mender finds what breaks a rule of the format, and removes it where that makes a
// valid trajectory.
type mender struct{ found []Violation }

func (v *mender) bad(path, format string, args ...any) {
	v.found = append(v.found, Violation{path, fmt.Sprintf(format, args...)})
}

func (v *mender) trajectory(path string, t *Trajectory) {
	if t.SchemaVersion != "" && !slices.Contains(versions, t.SchemaVersion) {
		v.bad(path+"schema_version", "must be one of %v, got %q", versions, t.SchemaVersion)
	}
	if len(t.Steps) == 0 {
		v.bad(path+"steps", "must not be empty")
	}
	for i := range t.Steps {
		at := fmt.Sprintf("%ssteps[%d]", path, i)
		if id := t.Steps[i].StepID; id != int64(i+1) {
			v.bad(at+".step_id", "must be %d, got %d", i+1, id)
		}
		v.step(at, &t.Steps[i])
	}
	v.object(path+"extra", &t.Extra)
	v.object(path+"agent.extra", &t.Agent.Extra)
	for i := range t.Agent.ToolDefinitions {
		v.object(fmt.Sprintf("%sagent.tool_definitions[%d]", path, i), &t.Agent.ToolDefinitions[i])
	}
	if t.FinalMetrics != nil {
		v.object(path+"final_metrics.extra", &t.FinalMetrics.Extra)
	}
	ids := map[string]bool{"": true}
	for i := range t.Subagents {
		at := fmt.Sprintf("%ssubagent_trajectories[%d].", path, i)
		if id := t.Subagents[i].TrajectoryID; ids[id] {
			v.bad(at+"trajectory_id", "must be there and used once, got %q", id)
		}
		ids[t.Subagents[i].TrajectoryID] = true
		v.trajectory(at, &t.Subagents[i])
	}
}

func (v *mender) step(path string, s *Step) {
	if !slices.Contains([]Source{System, User, Model}, s.Source) {
		v.bad(path+".source", "must be system, user or agent, got %q", s.Source)
		s.Source = System
	}
	if s.Timestamp != "" && !isTime(s.Timestamp) {
		v.bad(path+".timestamp", "must be a time such as 2026-01-31T12:00:00Z, got %q", s.Timestamp)
		s.Timestamp = ""
	}
	if s.Source != Model && (s.ModelName != "" || s.ReasoningEffort != "" || s.ReasoningContent != "" || s.ToolCalls != nil || s.Metrics != nil) {
		v.bad(path, "has fields that are for steps of the agent only, and is of %s", s.Source)
		s.ModelName, s.ReasoningEffort, s.ReasoningContent, s.ToolCalls, s.Metrics = "", "", "", nil, nil
	}
	if s.LLMCallCount != nil && (*s.LLMCallCount < 0 || (*s.LLMCallCount == 0 && (s.Metrics != nil || s.ReasoningContent != ""))) {
		v.bad(path+".llm_call_count", "does not go with the step, got %d", *s.LLMCallCount)
		s.LLMCallCount = nil
	}
	v.object(path+".extra", &s.Extra)
	if s.Metrics != nil {
		v.object(path+".metrics.extra", &s.Metrics.Extra)
	}
	v.parts(path+".message", &s.Message)
	s.ToolCalls = slices.Clone(s.ToolCalls)
	for i := range s.ToolCalls {
		p := fmt.Sprintf("%s.tool_calls[%d]", path, i)
		v.object(p+".arguments", &s.ToolCalls[i].Arguments)
		v.object(p+".extra", &s.ToolCalls[i].Extra)
	}
	v.observation(path, s)
}

func (v *mender) observation(path string, s *Step) {
	if s.Observation == nil {
		return
	}
	o := Observation{Results: slices.Clone(s.Observation.Results)}
	for i := range o.Results {
		r := &o.Results[i]
		p := fmt.Sprintf("%s.observation.results[%d]", path, i)
		known := slices.ContainsFunc(s.ToolCalls, func(c ToolCall) bool { return c.ID == r.SourceCallID })
		if r.SourceCallID != "" && !known {
			v.bad(p+".source_call_id", "%q is not a tool call of this step", r.SourceCallID)
			r.SourceCallID = ""
		}
		r.Subagents = slices.DeleteFunc(slices.Clone(r.Subagents), func(s SubagentRef) bool {
			nowhere := s.TrajectoryID == "" && s.TrajectoryPath == ""
			if nowhere {
				v.bad(p+".subagent_trajectory_ref", "must have a trajectory_id or a trajectory_path")
			}
			return nowhere
		})
		for j := range r.Subagents {
			v.object(fmt.Sprintf("%s.subagent_trajectory_ref[%d].extra", p, j), &r.Subagents[j].Extra)
		}
		if r.Content != nil {
			content := *r.Content
			v.parts(p+".content", &content)
			r.Content = &content
		}
		v.object(p+".extra", &r.Extra)
	}
	s.Observation = &o
}

// parts removes parts of a content that are neither a text nor a file.
func (v *mender) parts(path string, c *Content) {
	c.Parts = slices.DeleteFunc(slices.Clone(c.Parts), func(p Part) bool {
		var wrong bool
		switch p.Type {
		case PartText:
			wrong = p.Source != nil
		case PartImage:
			wrong = p.Text != "" || p.Source == nil || !slices.Contains(imageTypes, p.Source.MediaType) || p.Source.DurationSec != nil
		case PartAudio:
			wrong = p.Text != "" || p.Source == nil || !slices.Contains(audioTypes, p.Source.MediaType)
		default:
			wrong = true
		}
		if wrong {
			v.bad(path, "has a part of type %q that is neither a text nor an image or audio with a source", p.Type)
		}
		return wrong
	})
}

var (
	imageTypes = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}
	audioTypes = []string{"audio/wav", "audio/mpeg", "audio/mp4", "audio/aac", "audio/ogg", "audio/flac", "audio/webm", "audio/aiff"}
)

// object removes what is no JSON object.
func (v *mender) object(path string, raw *json.RawMessage) {
	var m map[string]json.RawMessage
	if len(*raw) == 0 {
		return
	}
	if err := json.Unmarshal(*raw, &m); err != nil {
		v.bad(path, "is not a JSON object")
	}
	if m == nil {
		*raw = nil
	}
}

// isTime reports whether a text is a date, or a date and a time.
func isTime(s string) bool {
	return slices.ContainsFunc([]string{time.RFC3339, "2006-01-02T15:04:05", time.DateOnly}, func(layout string) bool {
		_, err := time.Parse(layout, s)
		return err == nil
	})
}
